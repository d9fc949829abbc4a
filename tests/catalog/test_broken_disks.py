"""Disks that fill up, refuse writes or lose the catalog, and a clock set back: clear errors, no damage, and then it goes on."""

import datetime as dt
import json
import os
import resource
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.tables import RECOVERIES, TABLES
from laminar_delta.errors import FencedError, NotFoundError, StorageError
from laminar_delta.testing.forks import run_forked
from laminar_delta.testing.invariants import assert_goes_on, assert_sound, holdings
from laminar_delta.testing.scenarios import PIPELINE, SINK, save
from tests.support import disks
from tests.support.harnesses import EmbeddedHarness

YEAR_DAYS = 365
UNUSED = {"operator_deltas", "state_batches", "session_steps"}
"""Tables that no operation of the test uses."""


@pytest.fixture
def mounts() -> None:
    if not disks.mounts_allowed():
        if os.environ.get("CI"):
            pytest.fail("CI is where these promises are kept: let its processes mount in namespaces of their own")
        pytest.skip("this system does not let a process mount in namespaces of its own")


@pytest.mark.processes
@pytest.mark.usefixtures("mounts")
def test_a_disk_that_fills_up_costs_saves_and_nothing_else(tmp_path: Path) -> None:
    said = disks.happened("full", tmp_path)
    tight = [line for line in said if line["free"] != "again"]
    refused = [line for line in tight if line["told"] != "done"]
    assert {line["told"] for line in refused} == {"StorageError"}
    assert all(line["next"] and "No space left" in line["text"] for line in refused)
    # It ran out of room while staging offsets, while staging state, and in the commit itself.
    where = {
        table
        for table in ("source_offsets", "operator_snapshots", "manifests")
        for line in refused
        if table in line["text"]
    }
    assert where == {"source_offsets", "operator_snapshots", "manifests"}
    for line in tight:
        assert line["lost"] == {}
        assert line["new"] == ([line["answer"]] if line["told"] == "done" else [])
    assert all(line["told"] == "done" for line in said if line["free"] == "again")


@pytest.mark.processes
@pytest.mark.usefixtures("mounts")
def test_a_disk_that_turns_read_only_is_still_read(tmp_path: Path) -> None:
    said = {line["tried"]: line for line in disks.happened("read-only", tmp_path)}
    assert said.pop("open")["answer"] is True
    report = said.pop("recover")["answer"]
    assert (report["chosen"], report["stored"]) == (1, False)
    assert "not stored" in report["notes"][0]
    assert set(said) == {"save", "status", "takeover", "pin", "close", "create"}
    for line in said.values():
        assert line["told"] == "StorageError"
        assert line["next"]
        assert "Read-only file system" in line["text"]


@pytest.mark.processes
def test_files_that_may_not_grow_cost_saves_and_nothing_else(tmp_path: Path) -> None:
    """Needs no rights: a limit on the size of files, met first by a state's data file."""
    assert run_forked(_limited, str(tmp_path)) == 0
    outcome = json.loads((tmp_path / "outcome").read_text())
    assert outcome["told"] == "StorageError"
    assert outcome["next"]
    assert "File too large" in outcome["text"]


def _limited(place: str) -> None:
    catalog = ld.open_catalog(place, engine="embedded")
    writer = catalog.writer(PIPELINE)
    save(writer)
    before = holdings(catalog)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, resource.RLIM_INFINITY))

    def large() -> None:
        with writer.checkpoint() as cp:
            cp.state("noise", Path("/dev/urandom").open("rb").read(100_000))  # noqa: SIM115

    outcome = disks.tried(large)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert holdings(catalog) == before
    assert_goes_on(catalog, PIPELINE)
    assert_sound(catalog)
    (Path(place) / "outcome").write_text(json.dumps(outcome))
    sys.exit(0)


def test_a_catalog_removed_under_a_running_writer_is_missed_and_not_made_anew(tmp_path: Path) -> None:
    home, away = tmp_path / "catalog", tmp_path / "away"
    catalog = ld.open_catalog(str(home), engine="embedded")
    writer = catalog.writer(PIPELINE)
    save(writer)
    before = holdings(catalog)
    home.rename(away)
    with pytest.raises(StorageError, match="is gone") as caught:
        save(writer)
    assert caught.value.next_step
    with pytest.raises(StorageError, match="is gone"):
        writer.close()
    with pytest.raises(NotFoundError):
        catalog.pipeline(PIPELINE).latest()
    with pytest.raises(NotFoundError):
        ld.open_catalog(str(home), engine="embedded", create=False)
    assert not home.exists()
    away.rename(home)
    assert holdings(catalog) == before
    assert_goes_on(catalog, PIPELINE)


@pytest.mark.parametrize("table", [spec.name for spec in TABLES if spec.name not in {*UNUSED, RECOVERIES.name}])
def test_a_table_removed_under_a_running_writer_is_missed_and_not_made_anew(tmp_path: Path, table: str) -> None:
    home = tmp_path / "catalog"
    catalog = ld.open_catalog(str(home), engine="embedded")
    writer = catalog.writer(PIPELINE)
    save(writer)
    writer.sink_committed(1, SINK)
    before = holdings(catalog)
    (home / table).rename(tmp_path / "away")

    def everything() -> None:
        save(writer)
        writer.sink_committed(1, SINK)
        writer.recover()
        catalog.pipeline(PIPELINE).pin(1, reason="try")
        catalog.writer(PIPELINE)

    with pytest.raises(NotFoundError, match=table):
        everything()
    assert not (home / table).exists()
    (tmp_path / "away").rename(home / table)
    assert holdings(catalog)[PIPELINE]["manifests"]["1"] == before[PIPELINE]["manifests"]["1"]
    assert_goes_on(catalog, PIPELINE)
    assert_sound(catalog)


def test_without_its_table_a_recovery_is_told_and_not_stored(tmp_path: Path) -> None:
    """What was chosen is decided all the same, and the table is not made anew either."""
    home = tmp_path / "catalog"
    catalog = ld.open_catalog(str(home), engine="embedded")
    writer = catalog.writer(PIPELINE)
    save(writer)
    writer.sink_committed(1, SINK)
    (home / RECOVERIES.name).rename(tmp_path / "away")
    report = writer.recover()
    assert (report.chosen_id, report.stored) == (1, False)
    assert any("not stored" in note and RECOVERIES.name in note for note in report.notes)
    assert not (home / RECOVERIES.name).exists()
    (tmp_path / "away").rename(home / RECOVERIES.name)
    assert writer.recover().stored


def test_a_clock_set_back_changes_no_order(tmp_path: Path) -> None:
    """Everything there is comes from next year: what the log says, the files' times, and what the manifests say."""
    place = EmbeddedHarness(tmp_path / "catalog")
    catalog = ld.open_catalog(str(place.root), engine="embedded")
    ahead_ms = YEAR_DAYS * 86_400_000
    writer = catalog.writer(PIPELINE)
    for _ in range(3):
        cp = writer.checkpoint()
        cp.source("kafka", {"0": str(cp.id)})
        writer.save(replace(cp.manifest(), timestamp_ms=int(time.time() * 1000) + ahead_ms))
    catalog.pipeline(PIPELINE).pin(1, reason="audit")
    for spec in TABLES:
        place.age(spec.name, -YEAR_DAYS)
    zombie = writer
    with catalog.writer(PIPELINE) as writer:
        assert writer.recover().chosen_id == 3
        assert save(writer) == 4
        writer.sink_failed(4, SINK, "no route")
        writer.sink_committed(4, SINK)
        with pytest.raises(FencedError):
            save(zombie)
    pipeline = catalog.pipeline(PIPELINE)
    latest = pipeline.latest()
    assert latest is not None
    assert (latest.checkpoint_id, latest.sink_commit_statuses[SINK].is_committed) == (4, True)
    # A checkpoint from the future is younger than any age.
    assert pipeline.prune(RetentionPolicy(keep_for_ms=1)).retire == ()
    assert pipeline.prune(RetentionPolicy(keep_last=1)).retire == (2, 3)
    assert catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0), compact_after=1)).removed == {PIPELINE: (2, 3)}
    assert [head.checkpoint_id for head in pipeline.list()] == [1, 4]
    assert_goes_on(catalog, PIPELINE)
    assert_sound(catalog)
