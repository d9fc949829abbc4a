"""A terminal of 80 columns: every word can be read, as a table or row after row."""

import re
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.cli.output import Output
from laminar_delta.cli.texts import cell
from tests.cli.support import ORDERS, Run


@pytest.fixture(autouse=True)
def narrow(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `run`, which has room for everything."""
    monkeypatch.setenv("COLUMNS", "80")


def test_a_query_for_everything_shows_every_column_and_value(run: Run, place: Path, catalog: ld.Catalog) -> None:
    query = "SELECT * FROM latest_checkpoints ORDER BY pipeline"
    done = run("sql", query, "--catalog", place)
    assert done.returncode == 0
    expected = [
        [f"{name}: {cell(value)}".rstrip() for name, value in row.items()] for row in catalog.sql(query).to_pylist()
    ]
    assert [record.splitlines() for record in done.stdout.rstrip("\n").split("\n\n")] == expected
    nothing = run("sql", "SELECT * FROM latest_checkpoints WHERE pipeline = 'none'", "--catalog", place)
    assert nothing.stdout.startswith("No rows. The columns are: pipeline, checkpoint_id,")


def test_few_columns_are_a_table(run: Run, place: Path) -> None:
    done = run("sql", "SELECT pipeline, checkpoint_id FROM latest_checkpoints ORDER BY pipeline", "--catalog", place)
    assert [re.findall(r"\w+", line) for line in done.stdout.splitlines() if re.search(r"\w", line)] == [
        ["pipeline", "checkpoint_id"],
        ["orders", "5"],
        ["payments", "3"],
    ]


@pytest.mark.parametrize("columns", [20, 40, 80, 120, 160])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["ls"], ["pipeline", "sinks", "owed", "payments", "job-9"]),
        (["ls", ORDERS], ["checkpoint", "saved", "(UTC)", "generation", "abandoned"]),
        (["audit"], ["operation", "source_offsets", "checkpoint", "job-8"]),
    ],
    ids=" ".join,
)
def test_no_word_is_broken(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch, columns: int, command: list[str], words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = run(*command, "--catalog", place).stdout
    for word in words:
        assert re.search(rf"(?<!\S){re.escape(word)}(:|\s|$)", shown, re.MULTILINE), word


def test_a_long_text_goes_on_below_between_words(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(["undelivered"] * 9)
    Output().table(["when", "why"], [["2026-11-16 03:12:44", text]], title="Findings")
    shown = capsys.readouterr().out
    assert shown.startswith("Findings")
    assert "2026-11-16 03:12:44" in shown
    assert shown.count("undelivered") == 9
    assert max(map(len, shown.splitlines())) <= 80


def test_no_line_of_a_value_looks_like_another_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    Output().table(["why", "length", "", "empty"], [["it failed\nlength: 7", 5, "would go", None]], title="Findings")
    assert capsys.readouterr().out == "\nFindings\nwhy: it failed\n  length: 7\nlength: 5\nwould go\nempty:\n"
