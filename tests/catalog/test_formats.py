"""Catalogs of every format ever released are read as they were, and a format does not change without a new number."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import FORMAT_VERSION, TABLES
from tests.support.golden_catalog import CATALOG, DATA, EXPECTED, SPECS, describe, observe

RELEASED = sorted(path for path in DATA.iterdir() if re.fullmatch(r"v\d+", path.name))


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("golden", [pytest.param(path, id=path.name) for path in RELEASED])
def test_a_catalog_of_a_released_format_says_what_it_said(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / CATALOG, tmp_path / "catalog")
    seen = observe(ld.open_catalog(str(tmp_path / "catalog"), create=False))
    # Through JSON, as the expected side came: keys are text there.
    assert json.loads(json.dumps(seen)) == _read(golden / EXPECTED)


@pytest.mark.parametrize("golden", [pytest.param(path, id=path.name) for path in RELEASED])
def test_it_can_be_written_on(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / CATALOG, tmp_path / "catalog")
    catalog = ld.open_catalog(str(tmp_path / "catalog"), create=False)
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("agg", b"further")
    assert catalog.pipeline("orders").recover().chosen_id == cp.id


def test_the_tables_are_those_of_the_format_they_say() -> None:
    golden = DATA / f"v{FORMAT_VERSION}"
    assert golden.is_dir(), (
        f"make the golden catalog of format {FORMAT_VERSION}: python -m tests.support.golden_catalog"
    )
    assert _read(golden / SPECS) == {spec.name: describe(spec) for spec in TABLES}, (
        "the tables changed: raise FORMAT_VERSION, go on reading the format before, and make a golden catalog beside the old"
    )


def test_there_is_a_golden_catalog_of_every_format() -> None:
    assert [path.name for path in RELEASED] == [f"v{number}" for number in range(1, FORMAT_VERSION + 1)]


def test_golden_catalogs_are_small_and_name_no_machine() -> None:
    for golden in RELEASED:
        files = [path for path in golden.rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 300_000
        assert not [path for path in files if path.name.startswith(".laminar")]
        for entry in (golden / CATALOG).glob("*/_delta_log/00000000000000000000.json"):
            assert "file:///golden/" in entry.read_text()
