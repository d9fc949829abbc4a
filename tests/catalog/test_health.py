"""What makes trouble later is found, and how to mend it is said."""

import datetime as dt
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import laminar_delta as ld
from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.formats import plan_upgrade
from laminar_delta.catalog.health import Check, Level, check_catalog
from laminar_delta.catalog.opening import upgrade_catalog
from laminar_delta.catalog.steps import write_steps
from laminar_delta.catalog.tables import WRITERS
from laminar_delta.engine import open_engine
from laminar_delta.engine.local.lock import CatalogLock
from laminar_delta.errors import FormatError, NotFoundError


@pytest.fixture
def place(tmp_path: Path) -> Path:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    with catalog.writer("a") as writer, writer.checkpoint() as cp:
        cp.source("kafka", offsets={"0": "1"})
    return tmp_path / "catalog"


def _checks(place: Path, policy: ld.MaintenancePolicy | None = None) -> dict[str, Check]:
    found = list(check_catalog(ld.open_catalog(str(place)), policy or ld.MaintenancePolicy()))
    assert all(check.fix for check in found if check.level in (Level.WARNING, Level.PROBLEM))
    return {check.name: check for check in found}


def test_a_catalog_in_order_has_nothing_to_mend(place: Path) -> None:
    assert {check.level for check in _checks(place).values()} == {Level.OK}


def test_a_changed_property_is_found_by_name(place: Path) -> None:
    table = DeltaTable(str(place / "retention"))
    table.alter.set_table_properties({"delta.checkpointInterval": "7"})
    found = _checks(place)["tables"]
    assert found.level is Level.WARNING
    assert found.found == "retention: delta.checkpointInterval is '7', made with '50'"


def test_retention_that_is_too_short_is_a_problem(place: Path) -> None:
    DeltaTable(str(place / "writers")).alter.set_table_properties({"delta.logRetentionDuration": "interval 2 hours"})
    found = _checks(place)
    assert found["retention"].level is Level.PROBLEM
    assert "'writers' is kept for 2:00:00" in found["retention"].found


def test_a_table_that_cannot_be_read_is_a_problem_and_the_other_checks_go_on(place: Path) -> None:
    shutil.rmtree(place / "recoveries")
    found = _checks(place)
    assert found["tables"].level is Level.PROBLEM
    assert found["lock"].level is Level.OK


def test_a_lock_that_is_held_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laminar_delta.catalog.health._LOCK_PATIENCE_S", 0.1)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with CatalogLock(place).held():
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    try:
        found = _checks(place)["lock"]
    finally:
        done.set()
        holder.join()
    assert (found.level, "held the lock" in found.found) == (Level.WARNING, True)


def test_a_network_disk_is_a_problem(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laminar_delta.catalog.health._file_system", lambda _: "nfs4")
    assert _checks(place)["disk"].level is Level.PROBLEM


def test_a_commit_from_the_future_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = dt.datetime.now(dt.timezone.utc) - dt.timedelta(hours=1)
    monkeypatch.setattr("laminar_delta.catalog.health.now", lambda: earlier)
    assert _checks(place)["clock"].level is Level.WARNING


def test_what_this_user_cannot_write_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Asked of the system this would depend on who runs the tests: root may write everywhere.
    monkeypatch.setattr("os.access", lambda path, _: "writers" not in str(path))
    found = _checks(place)["permissions"]
    assert (found.level, str(place / "writers") in found.found) == (Level.WARNING, True)


def test_a_writer_that_died_is_told(place: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    catalog = ld.open_catalog(str(place))
    catalog.writer("a", owner="alive")
    assert _checks(place)["writers"].level is Level.OK
    rows = catalog.engine.read("writers").to_pylist()
    gone = {**max(rows, key=lambda row: row["generation"]), "generation": 9, "owner": "dead", "pid": ended.pid}
    catalog.engine.append(
        "writers", pa.Table.from_pylist([{**gone, "host": socket.gethostname()}], schema=WRITERS.schema)
    )
    found = _checks(place)["writers"]
    assert (found.level, "'dead' of pipeline 'a'" in found.found) == (Level.NOTE, True)


def test_leftovers_are_told(place: Path) -> None:
    catalog = ld.open_catalog(str(place))
    store = ld.SourceCheckpointStore(catalog, "a")
    session = store.session()
    session.__enter__()
    token = session.token
    write_steps(catalog.engine, token, [{"source": "s", "sequence": 1, "position": b"x"}], owner="task")
    writer = catalog.writer("a")
    writer.stage(Attempt.new(writer.held, 1), catalog.pipeline("a").get(1))
    with writer.checkpoint():
        pass
    with catalog.writer("a") as successor, successor.checkpoint() as cp:
        cp.sink("x")
    successor_again = catalog.writer("a")
    successor_again.sink_failed(cp.id, "x", "no")
    catalog.pipeline("a").prune(ld.RetentionPolicy(keep_last=0))
    found = _checks(place, ld.MaintenancePolicy(grace=dt.timedelta(0)))
    assert (found["orphans"].level, found["orphans"].found) == (Level.WARNING, "left behind by failed attempts: a (1)")
    assert (found["steps"].level, found["steps"].found) == (Level.WARNING, "1 staged steps of sessions that ended")
    assert (found["sinks"].level, found["sinks"].found) == (Level.WARNING, f"failed to deliver: a {cp.id}")
    assert f"`laminar-delta show a {cp.id}`" in str(found["sinks"].fix)
    assert found["removal"].level is Level.NOTE


def test_a_failed_sink_is_told_until_a_newer_checkpoint_can_be_used(place: Path) -> None:
    with ld.open_catalog(str(place)).writer("a") as writer:
        with writer.checkpoint() as cp:
            cp.sink("x")
        writer.sink_failed(cp.id, "x", "no")
        assert _checks(place)["sinks"].level is Level.WARNING
        writer.rewind(1, reason="the sink is lost")
    # A restart goes on from what was rewound to: there is nothing to mend.
    assert _checks(place)["sinks"].level is Level.OK


def test_there_is_one_format_so_far(place: Path) -> None:
    plan = upgrade_catalog(str(place))
    assert (plan.found, plan.wanted, plan.steps) == (1, 1, ())
    with pytest.raises(NotFoundError):
        upgrade_catalog(str(place / "nowhere"))
    for version, words in (("7", "newer laminar_delta"), ("0", "never was such a format"), ("one", "format is 'one'")):
        DeltaTable(str(place / "manifests")).alter.set_table_properties(
            {"laminar.format": version}, raise_if_not_exists=False
        )
        with pytest.raises(FormatError, match=words):
            plan_upgrade(open_engine("embedded", str(place)))
        with pytest.raises(FormatError):
            upgrade_catalog(str(place))
