"""The documentation: it builds without a warning, loads nothing from elsewhere, and what it names is there."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import laminar_delta as ld
from tests.support.histories import add_delta, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COOKBOOK = (DOCS / "cookbook.md").read_text()
QUESTIONS = {match[1]: match[2] for match in re.finditer(r"## (\d+)\..*?```sql\n(.*?)```", COOKBOOK, re.DOTALL)}


class _Loads(HTMLParser):
    """What a page loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.found.append(named.get("src") or "")
        if tag == "link" and named.get("rel") not in ("canonical", "prev", "next"):
            self.found.append(named.get("href") or "")


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "cookbook.html", "reference.html"} <= {page.name for page in pages}
    for page in pages:
        loads = _Loads()
        loads.feed(page.read_text())
        elsewhere = [address for address in loads.found if re.match(r"(\w+:)?//", address)]
        assert elsewhere == [], page.name
    for page in DOCS.rglob("*.md"):
        made = tmp_path / "site" / page.relative_to(DOCS).with_suffix(".html")
        assert made.exists() or page.name == "0000-template.md"
    api = (tmp_path / "site" / "reference.html").read_text()
    for name in ("open_catalog", "Writer", "RecoveryReport", "FencedError", "write_report"):
        assert name in api


def test_every_guarantee_names_tests_that_exist() -> None:
    for page in (DOCS / "guarantees.md", ROOT / "README.md"):
        rows = [line for line in page.read_text().splitlines() if re.match(r"\| (?!promise|---).*\.py` \|$", line)]
        assert len(rows) > 5, page.name
        for row in rows:
            proofs = re.findall(r"`([\w/.]+\.py)`", row.rsplit("|", 2)[1])
            assert proofs, row
            for proof in proofs:
                assert (ROOT / proof).is_file(), f"{page.name}: {proof}"


def test_every_concept_has_its_drawing() -> None:
    concepts = (DOCS / "concepts.md").read_text().split("\n## ")[1:]
    drawings = [re.findall(r"\]\((drawings/\w+\.svg)\)", concept) for concept in concepts]
    assert all(len(found) == 1 for found in drawings)
    assert {DOCS / found[0] for found in drawings} == set((DOCS / "drawings").iterdir())


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> ld.Catalog:
    made = ld.open_catalog(str(tmp_path_factory.mktemp("cookbook") / "catalog"))
    fill(made)
    add_delta(made)
    with made.writer("stuck") as writer, writer.checkpoint() as cp:
        cp.sink("warehouse")
    return made


def test_there_are_fifteen_questions() -> None:
    assert list(QUESTIONS) == [str(number) for number in range(1, 16)]


@pytest.mark.parametrize("number", QUESTIONS)
def test_a_question_of_the_cookbook_has_its_answer(number: str, catalog: ld.Catalog) -> None:
    rows = catalog.sql(QUESTIONS[number]).to_pylist()
    assert rows
    if number == "1":
        safe = {row["pipeline"]: (row["newest"], row["newest_delivered"]) for row in rows}
        assert safe["orders"] == (5, 5)
        assert safe["stuck"] == (1, None)
    if number == "2":
        assert {row["partition_key"]: row["offset_text"] for row in rows} == {"0": "5000"}
    if number == "4":
        assert [(row["checkpoint_id"], row["outcome"]) for row in rows] == [(4, "skipped"), (3, "chosen")]
    if number == "12":
        assert [(row["derived_how"], row["derived_reason"]) for row in rows] == [
            ("fork", "a try"),
            ("edit", "read again"),
        ]
    if number == "13":
        assert [(row["checkpoint_id"], row["decided_by"], row["reason"]) for row in rows] == [(2, "ops", "audit")]
    if number == "14":
        assert [row["checkpoint_id"] for row in rows] == [1, 4]
    if number == "15":
        assert {row["state_pipeline"] for row in rows} == {"orders"}


@pytest.mark.spark
@pytest.mark.soak
def test_spark_answers_the_cookbook_alike(catalog: ld.Catalog, spark: "SparkSession") -> None:
    from laminar_delta.engine.spark import SparkEngine

    there = ld.Catalog(SparkEngine(catalog.engine.location, spark=spark))
    for number, query in QUESTIONS.items():
        here, answer = catalog.sql(query), there.sql(query)
        assert answer.schema == here.schema, number
        assert answer.to_pylist() == here.to_pylist(), number
