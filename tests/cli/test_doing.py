"""What commands do when they are told to: what goes, what is asked first, what is refused."""

import contextlib
import datetime as dt
import fcntl
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import laminar_delta as ld
from laminar_delta.catalog.later import ensure
from laminar_delta.catalog.tables import QUERY_PROGRESS
from laminar_delta.engine.predicate import col
from tests.cli.support import ORDERS, PAYMENTS, Run


def _ids(place: Path, pipeline: str) -> list[int]:
    return [head.checkpoint_id for head in ld.open_catalog(str(place)).pipeline(pipeline).list()]


@pytest.mark.parametrize(
    "arguments",
    [
        ["prune", "--keep-last", "1"],
        ["orphans"],
        ["maintain", "--grace", "0s"],
        ["rewind", ORDERS, "2", "--reason", "r"],
        ["fork", ORDERS, "copy", "--reason", "r"],
        ["offsets", "set", ORDERS, "kafka", "0=1", "--reason", "r"],
        ["upgrade"],
    ],
)
def test_without_apply_nothing_is_committed_anywhere(run: Run, place: Path, arguments: list[str]) -> None:
    before = {path.name: DeltaTable(str(path)).version() for path in place.iterdir() if path.is_dir()}
    assert run(*arguments, "--catalog", place).returncode == 0
    assert {path.name: DeltaTable(str(path)).version() for path in place.iterdir() if path.is_dir()} == before


def test_where_nobody_can_be_asked_nothing_is_done_without_yes(run: Run, place: Path) -> None:
    refused = run("prune", PAYMENTS, "--keep-last", "1", "--apply", "--catalog", place)
    assert refused.returncode == 2
    assert "This retires 2 of 'payments'" in refused.stderr
    assert _ids(place, PAYMENTS) == [2, 3]
    done = run("prune", PAYMENTS, "--keep-last", "1", "--apply", "--yes", "--catalog", place, "--json")
    assert done.json["applied"] is True
    assert done.json["pipelines"][0]["retire"] == [2]
    assert _ids(place, PAYMENTS) == [3]
    assert run("restore", PAYMENTS, 2, "--catalog", place).returncode == 0
    assert _ids(place, PAYMENTS) == [2, 3]


def test_a_pin_keeps_and_the_plan_says_so(run: Run, place: Path) -> None:
    plan = run("prune", ORDERS, "--keep-last", "1", "--catalog", place, "--json").json["pipelines"][0]
    assert {kept["checkpoint_id"]: kept["reason"] for kept in plan["keep"]}[2] == "pinned"
    assert 2 not in plan["retire"]


def test_orphans_go_and_the_catalog_stays(run: Run, place: Path) -> None:
    told = run("orphans", "--catalog", place, "--json").json
    assert [orphan["checkpoint_id"] for orphan in told["orphans"]] == [4]
    gone = run("orphans", "--apply", "--yes", "--catalog", place, "--json").json
    assert (gone["applied"], gone["orphans"]) == (True, told["orphans"])
    assert run("orphans", "--catalog", place, "--json").json["orphans"] == []
    assert run("validate", ORDERS, "--all", "--catalog", place).returncode == 0


def test_maintenance_removes_what_was_retired(run: Run, place: Path) -> None:
    done = run("maintain", "--grace", "0s", "--apply", "--yes", "--catalog", place, "--json")
    assert done.returncode == 0
    assert done.json["removed"] == {PAYMENTS: [1]}
    assert run("restore", PAYMENTS, 1, "--catalog", place).returncode == 3


def test_maintenance_removes_what_queries_said_long_ago_and_asks_first(run: Run, place: Path) -> None:
    engine = ld.open_catalog(str(place)).engine
    ensure(engine, QUERY_PROGRESS)
    rows = [{"query_id": "q", "timestamp_ms": 1}]
    engine.append(QUERY_PROGRESS.name, pa.Table.from_pylist(rows, schema=QUERY_PROGRESS.schema))
    wanted = ["maintain", "--no-vacuum", "--keep-progress-for", "30d", "--catalog", place]
    told = run(*wanted)
    assert "query_progress" in told.stdout
    refused = run(*wanted, "--apply")
    assert refused.returncode == 2
    assert "1 rows of what streaming queries said of themselves" in refused.stderr
    assert engine.read(QUERY_PROGRESS.name).num_rows == 1
    assert run(*wanted, "--apply", "--yes", "--json").json["progress"] == 1
    assert engine.read(QUERY_PROGRESS.name).num_rows == 0
    wrong = run("maintain", "--keep-progress-for", "soon", "--catalog", place)
    assert (wrong.returncode, wrong.stdout) == (2, "")


def test_offsets_are_moved_and_the_move_is_undone(run: Run, place: Path) -> None:
    where = ["--catalog", place, "--apply", "--yes", "--json"]
    moved = run("offsets", "set", ORDERS, "kafka", "0=7", "1=", "--reason", "replay", *where).json
    assert (moved["applied"], moved["from_id"], moved["over_id"]) == (True, 5, 5)
    assert run("offsets", "get", ORDERS, "--catalog", place, "--json").json["sources"]["kafka"]["offsets"] == {"0": "7"}
    undone = run("offsets", "undo", ORDERS, "--reason", "wrong", *where).json
    assert undone["from_id"] == 5
    offsets = run("offsets", "get", ORDERS, "--catalog", place, "--json").json["sources"]["kafka"]["offsets"]
    assert offsets == {"0": "350", "1": "35"}
    back = run("rewind", ORDERS, 2, "--reason", "bad deploy", *where).json
    assert back["checkpoint_id"] == undone["checkpoint_id"] + 1
    state = ld.open_catalog(str(place)).pipeline(ORDERS).state(back["checkpoint_id"]).read("agg")
    assert state.endswith(b"\x02" * 1000)
    shown = run("show", ORDERS, "--catalog", place, "--json").json
    assert (shown["derived"]["how"], shown["derived"]["from_id"], shown["derived"]["reason"]) == (
        "rewind",
        2,
        "bad deploy",
    )


def test_a_fork_labels_each_line_of_what_it_brings(run: Run, place: Path) -> None:
    told = run("fork", ORDERS, "copy", "--reason", "r", "--catalog", place).stdout
    lines = [[cell.strip() for cell in line.split("│")[1:4]] for line in told.splitlines() if "kafka" in line]
    assert [line[1] for line in lines] == ["epoch", "0", "1"]


def test_a_pipeline_that_is_held_is_not_taken_without_saying_so(run: Run, place: Path) -> None:
    command = ["rewind", PAYMENTS, 2, "--reason", "r", "--apply", "--yes", "--catalog", place]
    held = run(*command)
    assert held.returncode == 4
    assert "has a writer: 'job-9'" in held.stderr
    assert _ids(place, PAYMENTS) == [2, 3]
    assert run(*command, "--takeover").returncode == 0
    assert _ids(place, PAYMENTS) == [2, 3, 4]


def test_where_a_pipeline_was_at_a_time(run: Run, place: Path) -> None:
    head = ld.open_catalog(str(place)).pipeline(ORDERS).list()[2]
    moment = dt.datetime.fromtimestamp(head.timestamp_ms / 1000, dt.timezone.utc).isoformat()
    assert run("latest", ORDERS, "--at", moment, "--catalog", place, "--json").json["checkpoint_id"] == 3
    assert run("offsets", "get", ORDERS, "--at", moment, "--catalog", place, "--json").json["checkpoint_id"] == 3


def test_a_time_before_everything_is_told_as_a_time(run: Run, place: Path) -> None:
    done = run("sql", "SELECT 1 AS one", "--at", "2001-02-03T04:05", "--catalog", place)
    assert done.returncode == 3
    assert "as old as 2001-02-03 04:05:00 UTC. Ask for a later time" in done.stderr


def test_where_nothing_is_found_a_sentence_says_so(run: Run, place: Path, tmp_path: Path) -> None:
    nothing = run("history", ORDERS, "--until", "2001-01-01", "--catalog", place)
    assert (nothing.returncode, nothing.stdout) == (0, "Nothing happened to orders in that time.\n")
    assert run("init", "--catalog", tmp_path / "new").returncode == 0
    idle = run("maintain", "--catalog", tmp_path / "new")
    assert (idle.returncode, idle.stdout) == (0, "There is nothing to do.\n")


def test_why_recovery_chose(run: Run, place: Path) -> None:
    found = run("recover", ORDERS, "--past", "--chose", 3, "--catalog", place, "--json").json["recoveries"]
    (passed,) = found[0]["skipped"]
    assert passed["checkpoint_id"] == 4
    assert passed["reason"].startswith("undelivered: sink 'warehouse' is Failed")
    assert "disk full" in passed["reason"]
    assert run("recover", ORDERS, "--past", "--chose", 1, "--catalog", place, "--json").json["recoveries"] == []


def test_options_of_recover_that_do_not_go_together_are_not_ignored(run: Run, place: Path) -> None:
    (found,) = run("recover", ORDERS, "--chose", 3, "--catalog", place, "--json").json["recoveries"]
    assert found["chosen_id"] == 3
    for wrong in (["--past", "--record"], ["--past", "--accept-failed"], ["--chose", 3, "--record"]):
        refused = run("recover", ORDERS, *wrong, "--catalog", place)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert f"{wrong[-1]} is for a new recovery" in refused.stderr
    assert len(ld.open_catalog(str(place)).pipeline(ORDERS).recoveries()) == 1


def test_recover_tells_when_the_checkpoint_was_saved_and_past_ones_when_they_were(
    run: Run, catalog: ld.Catalog, place: Path
) -> None:
    writer = catalog.writer(ORDERS, takeover=True)
    writer.save(ld.CheckpointManifest.new(6, 6, 1_000_000_000_000))
    now = run("recover", ORDERS, "--catalog", place).stdout
    assert "orders would go on from checkpoint 6, saved 2001-09-09 01:46:40 UTC" in now
    (report,) = catalog.pipeline(ORDERS).recoveries()
    when = dt.datetime.fromtimestamp(report.started_at_ms / 1000, dt.timezone.utc)
    past = run("recover", ORDERS, "--past", "--catalog", place).stdout
    assert f"On {when:%Y-%m-%d %H:%M:%S} UTC orders chose 3, under generation 2." in past
    assert "go" not in past.splitlines()[0]


def test_an_invalid_checkpoint_is_a_finding(run: Run, catalog: ld.Catalog, place: Path) -> None:
    catalog.engine.delete("source_offsets", col("checkpoint_id").eq(3))
    done = run("validate", ORDERS, 3, "--catalog", place, "--json")
    assert done.returncode == 1
    assert done.json["checkpoints"][0]["findings"][0]["code"] == "children-missing"
    assert run("validate", ORDERS, "--catalog", place).returncode == 0


def test_what_is_intact_and_passed_over_is_told_as_recovery_tells_it(
    run: Run, catalog: ld.Catalog, place: Path
) -> None:
    with catalog.writer(ORDERS) as writer:
        with writer.checkpoint() as cp:
            cp.sink("warehouse")
        writer.sink_failed(cp.id, "warehouse", "disk full")
    (skipped, *_) = catalog.pipeline(ORDERS).recover(dry_run=True).skipped
    done = run("validate", ORDERS, "--catalog", place)
    assert done.returncode == 0
    assert f"orders {cp.id}: intact, but undelivered: sink 'warehouse' is Failed" in done.stdout
    assert "so recovery passes over it" in done.stdout
    (found,) = run("validate", ORDERS, "--catalog", place, "--json").json["checkpoints"]
    assert (found["valid"], found["passed_over"]) == (True, skipped.reason)
    every = run("validate", ORDERS, 3, 4, "--catalog", place, "--json").json["checkpoints"]
    assert every[0]["passed_over"] is None
    assert every[1]["passed_over"].startswith("abandoned: ")
    catalog.engine.delete("source_offsets", col("checkpoint_id").eq(4))
    assert f"{ORDERS} 4: damaged" in run("validate", ORDERS, 4, "--catalog", place).stdout


def test_a_newer_format_is_refused_by_all_and_by_upgrade(run: Run, place: Path) -> None:
    DeltaTable(str(place / "manifests")).alter.set_table_properties({"laminar.format": "2"}, raise_if_not_exists=False)
    for command in (["ls"], ["upgrade"], ["upgrade", "--apply", "--yes"]):
        done = run(*command, "--catalog", place)
        assert done.returncode == 5
        assert "has format 2" in done.stderr
    assert "newer laminar_delta" in run("upgrade", "--catalog", place).stderr


def test_init_makes_a_catalog_once(run: Run, tmp_path: Path) -> None:
    first = run("init", "--catalog", tmp_path / "new", "--json").json
    assert (first["created"], first["engine"], first["format"]) == (True, "embedded", 1)
    assert run("init", "--catalog", tmp_path / "new", "--json").json["created"] is False
    assert "The catalog is empty." in run("ls", "--catalog", tmp_path / "new").stdout


def test_a_query_comes_from_a_file_or_from_standard_input(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("q.sql").write_text("SELECT COUNT(*) AS n FROM checkpoints")
    assert run("sql", "--file", "q.sql", "--catalog", place, "--json").json["rows"] == [{"n": 7}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1 AS one"))
    assert run("sql", "-", "--catalog", place, "--json").json["rows"] == [{"one": 1}]
    assert run("sql", "--file", "nowhere.sql", "--catalog", place).returncode == 2
    assert run("sql", "--catalog", place).returncode == 2


@pytest.mark.processes
@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [("n\n", 9, [2, 3]), ("y\n", 0, [3]), ("\x03", 130, [2, 3]), ("\x04", 9, [2, 3])],
    ids=["no", "yes", "Ctrl-C", "Ctrl-D"],
)
def test_a_person_at_a_terminal_is_asked_and_the_question_names_what_goes(
    place: Path, answer: str, code: int, left: list[int]
) -> None:
    command: list[object] = ["prune", PAYMENTS, "--keep-last", "1", "--apply", "--catalog", place]
    ended, told = _at_a_terminal(command, lambda told: "[y/N]" in told, answer)
    assert ended == code
    assert "This retires 2 of 'payments'. Go on? [y/N]" in told
    assert "Aborted" not in told
    assert _ids(place, PAYMENTS) == left


@pytest.mark.processes
def test_an_interrupted_race_ends_without_a_traceback(tmp_path: Path) -> None:
    logs = tmp_path / "race" / "race" / "_delta_log"
    command: list[object] = ["race", "--rounds", "200", "--directory", tmp_path / "race"]
    ended, told = _at_a_terminal(command, lambda _: (logs / f"{1:020}.json").exists(), "\x03")
    assert ended == 130
    assert "Traceback" not in told


def _at_a_terminal(arguments: list[object], ready: Callable[[str], bool], typed: str) -> tuple[int, str]:
    """Runs the script with a terminal of its own and types once it is so far; its exit code, and all it said."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "laminar_delta.cli.main", *map(str, arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(slave)
    told, has_typed, idle, deadline = "", False, 0, time.monotonic() + 120
    with contextlib.suppress(OSError):  # EIO: whoever had the other end is gone
        while time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                told += os.read(master, 4096).decode()
                idle = 0
            elif has_typed:
                idle += 1
                if idle == 30 and typed == "\x03":
                    # The terminal was just being set up, and took it for a letter: a person presses it again.
                    os.write(master, typed.encode())
            if not has_typed and ready(told):
                os.write(master, typed.encode())
                has_typed = True
    assert has_typed, told
    ended = process.wait(timeout=120)
    os.close(master)
    return ended, told


def _take_terminal() -> None:
    """What a shell does before it starts a program: Ctrl-C reaches it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.processes
def test_the_script_itself_ends_with_the_code_and_prints_no_traceback(place: Path) -> None:
    script = Path(sys.executable).parent / "laminar-delta"

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "LAMINAR_DELTA_CATALOG": str(place)}
        return subprocess.run([str(script), *arguments], capture_output=True, text=True, check=False, env=environment)

    good = start("ls", "--json")
    assert [one["pipeline"] for one in json.loads(good.stdout)["pipelines"]] == [ORDERS, PAYMENTS]
    bad = start("show", ORDERS, "99")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (3, "", 1)
    traced = start("show", ORDERS, "99", "--debug")
    assert (traced.returncode, "Traceback" in traced.stderr) == (3, True)
    assert start("show").returncode == 2


@pytest.mark.processes
def test_a_terminal_without_the_letters_shows_names_all_the_same(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    with catalog.writer("größe→", owner="job") as writer, writer.checkpoint():
        pass
    environment = {**os.environ, "LAMINAR_DELTA_CATALOG": str(tmp_path / "catalog"), "PYTHONIOENCODING": "ascii"}
    for more, shown in ((["--json"], '"gr\\u00f6\\u00dfe\\u2192"'), ([], "gr\\xf6\\xdfe\\u2192")):
        done = subprocess.run(
            [sys.executable, "-m", "laminar_delta.cli.main", "ls", *more],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert shown in done.stdout
        assert done.stderr == ""
