"""Calls that go wrong in ways that no command has to itself: what is typed, where it is sent, who may not."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.cli.application import QUESTIONS
from laminar_delta.cli.exits import BROKEN_PIPE
from tests.cli.support import ORDERS, PAYMENTS, Run
from tests.support.typed import ROOT

SCRIPT = [sys.executable, "-m", "laminar_delta.cli.main"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["latest", ORDERS, "--at", "99999999d ago"], 2, "is no time. Write 2026-11-16T03:12"),
        (["show", ORDERS, "3", "--at", "03:12"], 2, "give a checkpoint or a time, not both"),
        (["show", ORDERS, "-1"], 2, "-1 is below 0, and no number here is. `laminar-delta show --help`"),
        (["show", ORDERS, str(2**63)], 2, f"to {2**63 - 1}"),
        (["pin", ORDERS, "5", "--reason"], 2, "requires an argument. `laminar-delta pin --help`"),
        (["offsets", "undo", ORDERS, "--reason"], 2, "requires an argument. `laminar-delta offsets undo --help`"),
        (["pin", ORDERS, "5", "--reason", "bad \udcff"], 2, "'bad \\udcff' is not UTF-8"),
        (["sql", "SELECT '\udcff'"], 2, "is not UTF-8"),
        (["sql", " "], 2, "the query is empty. Begin with SELECT or WITH"),
        (["sql", "SHOW TABLES"], 2, "Begin with SELECT or WITH, for example `SELECT * FROM latest_checkpoints`"),
        (
            ["history", ORDERS, "--since", "2026-01-02", "--until", "2026-01-01"],
            2,
            "--since 2026-01-02 00:00:00 UTC is after --until 2026-01-01 00:00:00 UTC. Give both with their dates",
        ),
        (["export", "out", "--pipeline", "order"], 3, "Did you mean 'orders'?"),
        (["ls", "--catalog", "a-file"], 2, "is a file. Name the directory that the catalog is in"),
        (["init", "--catalog", "a-file"], 2, "is a file. Name the directory that the catalog is in"),
        (["ls", "--catalog", ""], 2, "not a text of one character or more"),
        (["demo", "--directory", "a-file/x"], 2, "cannot be made: Not a directory. Name a directory in a place"),
    ],
    ids=lambda value: ascii(" ".join(value)) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_one_sentence_with_a_next_step(
    run: Run, place: Path, words: list[str], code: int, sentence: str
) -> None:
    Path("a-file").write_text("")
    where = [] if words[0] == "demo" or "--catalog" in words else ["--catalog", place]
    # Before the rest: an option that lacks its value would take the next word for it.
    done = run(*words[:1], *where, *words[1:]) if words[0] != "offsets" else run(*words[:2], *where, *words[2:])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    assert sentence in done.stderr


def test_a_setting_that_is_not_utf8_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINAR_DELTA_CATALOG", "\udcff")
    done = run("ls")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "not text in UTF-8" in done.stderr


@pytest.mark.parametrize("said", ["owner", "reason"])
def test_the_library_refuses_half_a_character_before_anything_is_written(catalog: ld.Catalog, said: str) -> None:
    bad: dict[str, Any] = {said: "x\udcff"}
    orders = catalog.pipeline(ORDERS)
    calls: list[Callable[[], object]] = [
        lambda: catalog.writer("new", **bad),
        lambda: orders.pin(5, **{"reason": "r", **bad}),
        lambda: orders.unpin(2, **bad),
    ]
    if said == "owner":
        calls.append(lambda: orders.recover(**bad))
    else:
        with catalog.writer(ORDERS) as writer, pytest.raises(ld.InvalidInputError, match="UTF-8"):
            writer.rewind(3, **bad)
    before = len(catalog.audit())
    for call in calls:
        with pytest.raises(ld.InvalidInputError, match="UTF-8"):
            call()
    assert len(catalog.audit()) == before


def test_what_would_go_is_named_however_long_the_list_is(run: Run, tmp_path: Path) -> None:
    """Two pipelines, of which the first alone fills the table with what stays."""
    catalog = ld.open_catalog(str(tmp_path / "long"))
    for name, count in (("a", 60), ("b", 3)):
        with catalog.writer(name) as writer:
            for number in range(1, count + 1):
                writer.save(ld.CheckpointManifest.new(number, number, number))
    told = run("prune", "--keep-last", 55, "--catalog", tmp_path / "long").stdout
    assert "Would go: 1-5 of 'a'. Nothing was changed: --apply does it." in told
    # There is no --limit to point to.
    assert "… and 13 more; --json shows all." in told
    assert "more; --limit shows more, --json all." in run("ls", "a", "--catalog", tmp_path / "long").stdout
    with catalog.writer("c") as writer:
        for number in range(1, 13):
            with writer.checkpoint() as cp:
                cp.state("agg", bytes(range(256)) * 400 + bytes([number]) * 1000)
    heads = run("ls", "c", "--catalog", tmp_path / "long", "--json").json["checkpoints"]
    assert heads[0]["needs"] == ["c/10", "c/11"]  # by number, from where the chain was based anew
    assert " 10-11 " in run("ls", "c", "--catalog", tmp_path / "long").stdout
    nothing = run("prune", "b", "--keep-last", 9, "--catalog", tmp_path / "long")
    assert nothing.stdout.endswith("Nothing would go.\n")


def test_what_goes_stands_before_what_stays(run: Run, place: Path) -> None:
    told = run("prune", "--keep-last", 0, "--catalog", place).stdout
    lines = [line for line in told.splitlines() if line.startswith("│")]
    assert ["would go" in line for line in lines] == [True] * 2 + [False] * (len(lines) - 2)
    assert "Would go: 4 of 'orders', 2 of 'payments'." in told


def test_recover_says_why_there(run: Run, catalog: ld.Catalog, place: Path) -> None:
    assert "ago: it is the newest, and valid." in run("recover", ORDERS, "--catalog", place).stdout
    with catalog.writer(ORDERS) as writer, writer.checkpoint() as cp:
        cp.sink("warehouse")
    assert "checkpoint 5, saved" in (told := run("recover", ORDERS, "--catalog", place).stdout)
    assert ": the newest of 6 that can be used." in told
    nothing = run("recover", ORDERS, "--chose", 41, "--catalog", place)
    assert nothing.stdout == "No recovery of orders is on record that chose 41; --past shows those there are.\n"


def test_help_answers_what_people_come_with(run: Run, place: Path) -> None:
    """Each question, and what to type for it; the page has the same."""
    told = run("--help").stdout
    page = (ROOT / "docs" / "cli.md").read_text()
    # Within the first screen of a terminal.
    assert told.index("How do I go back?") < len("\n".join(told.splitlines()[:24]))
    for question, answer in QUESTIONS.items():
        assert question in told
        assert question.rstrip("?") in page
        assert answer in told
        for command in answer.replace("then ", "").replace("or ", "").split(", "):
            words = command.replace("41", "3").replace("38", "3").split()
            done = run(*words, "--catalog", place)
            assert done.returncode == 0 or "--at" in words, done.stderr


@pytest.mark.parametrize("columns", [40, 50, 80])
def test_help_is_cut_nowhere(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert "..." not in run("--help").stdout.split("Options:")[1]


@pytest.mark.processes
@pytest.mark.parametrize("words", [["audit"], ["audit", "--json"], ["metrics"], ["--help"]], ids=" ".join)
def test_a_reader_that_went_away_is_no_finding(template: Path, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    where = [] if words == ["--help"] else ["--catalog", str(template)]
    done = subprocess.run([*SCRIPT, *words, *where], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, b"")


@pytest.mark.processes
@pytest.mark.parametrize("words", [["ls"], ["ls", "--json"], ["--help"]], ids=" ".join)
def test_an_answer_that_cannot_be_written_is_told(template: Path, words: list[str]) -> None:
    where = [] if words == ["--help"] else ["--catalog", str(template)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*SCRIPT, *words, *where], stdout=full, stderr=subprocess.PIPE, check=False, text=True, env=os.environ
        )
    assert (done.returncode, done.stderr.count("\n")) == (6, 1)
    assert "the answer cannot be written: No space left on device" in done.stderr


@pytest.mark.processes
def test_without_a_standard_output_the_exit_code_answers(template: Path) -> None:
    command = " ".join([*SCRIPT, "validate", PAYMENTS, "--catalog", str(template), ">&-"])
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.processes
def test_an_interrupt_while_it_is_loaded_leaves_no_traceback() -> None:
    """The module that takes long to import interrupts it."""
    program = (
        "import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from laminar_delta.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "ls"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_take_interrupts,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def _take_interrupts() -> None:
    """Also where whoever started the tests does not: a shell in the background ignores them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.processes
def test_what_storage_says_in_its_own_log_stands_beside_no_error() -> None:
    """delta-rs warns of credentials it looks for, with all it knows of them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RUST_"))}
    environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:9"
    command = [*SCRIPT, "ls", "--catalog", "s3://bucket/catalog", "--storage-option", "max_retries=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (6, 1), done.stderr


def test_a_name_does_nothing_to_the_terminal(run: Run, tmp_path: Path) -> None:
    """Escape sequences, and what turns the direction of writing, are shown and not obeyed; JSON has them as they are."""
    name = "a\x1b]0;owned\x07\x9b31m\u202eb"
    catalog = ld.open_catalog(str(tmp_path / "odd"))
    with catalog.writer(name, owner="x\x1b[2J") as writer, writer.checkpoint() as cp:
        cp.source("k\x1b[1m", offsets={"0": "\x1b[8m1"})
    for words in (["ls"], ["ls", name], ["show", name], ["history", name], ["audit"], ["recover", name], ["usage"]):
        done = run(*words, "--catalog", tmp_path / "odd")
        assert done.returncode == 0
        assert not set(done.stdout) & set("\x1b\x07\x9b\u202e"), words
    assert r"a\x1b]0;owned\x07\x9b31m\u202eb" in run("ls", "--catalog", tmp_path / "odd").stdout
    wrong = run("show", name, 9, "--catalog", tmp_path / "odd")
    assert not set(wrong.stderr) & set("\x1b\x07\x9b\u202e")
    assert run("ls", "--catalog", tmp_path / "odd", "--json").json["pipelines"][0]["pipeline"] == name


@pytest.mark.processes
def test_a_look_at_maintenance_waits_for_no_lock(run: Run, place: Path) -> None:
    """A lock that nobody can take, as for a user who may only read."""
    (place / ".laminar.turn").unlink(missing_ok=True)
    (place / ".laminar.turn").mkdir()
    assert "checkpoints removed" in run("maintain", "--grace", "0s", "--catalog", place).stdout
    refused = run("maintain", "--grace", "0s", "--apply", "--yes", "--catalog", place)
    assert refused.returncode == 6
    assert "lock file" in refused.stderr
