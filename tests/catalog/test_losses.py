"""Rows of `manifests` and `retention` that somebody took out, or whose file is gone, after their log entries were cleaned."""

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog import decision_rows, generations, statuses
from laminar_delta.catalog.attempt import stage_offsets
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.committed_attempts import committed_attempts
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.generations import Generation, stands_at
from laminar_delta.catalog.healing import find_rows
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.numbers import CheckpointNumbers
from laminar_delta.catalog.standing import RETIRED
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_SNAPSHOTS, RETENTION, SINK_STATUSES, SOURCE_OFFSETS
from laminar_delta.catalog.validation import HISTORY_GONE
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.answer import HistoryEntry
from laminar_delta.engine.local.log import entry_path
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence
from laminar_delta.engine.settle import HISTORY_WINDOW
from laminar_delta.errors import ConflictError, CorruptionError, StorageError
from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint
from tests.support.catalogs import QUICK_ENGINES, ready_made
from tests.support.damage import clean_logs, data_files, overwrite

OF_ORDERS = col("pipeline").eq("orders")


@pytest.fixture(params=QUICK_ENGINES)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return ready_made(request.param, tmp_path / "catalog", request)()


def _save(catalog: ld.Catalog, count: int, *, sink: bool = False, pipeline: str = "orders") -> None:
    with catalog.writer(pipeline, owner="job") as writer:
        for _ in range(count):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": str(100 * cp.id)})
                if sink:
                    cp.sink("warehouse")
            if sink:
                writer.sink_committed(cp.id, "warehouse")


def _take_out(catalog: ld.Catalog, how: str) -> None:
    """What somebody does to the pipeline's manifests, without knowing what they are."""
    if how == "delete":
        catalog.engine.delete(MANIFESTS.name, OF_ORDERS)
    elif how == "update":
        overwrite(catalog.engine, MANIFESTS, OF_ORDERS, {"pipeline": "elsewhere"})
    else:
        before = catalog.engine.version(MANIFESTS.name)
        catalog.engine.delete(MANIFESTS.name, OF_ORDERS)
        after = catalog.engine.version(MANIFESTS.name)
        catalog.engine.restore(MANIFESTS.name, before)
        catalog.engine.restore(MANIFESTS.name, after)


@pytest.mark.parametrize("how", ["delete", "update", "restore"])
def test_manifests_taken_out_after_their_log_entries_were_cleaned_are_found_in_the_version_before(
    catalog: ld.Catalog, how: str
) -> None:
    _save(catalog, 5)
    clean_logs(catalog)
    _take_out(catalog, how)
    orders = catalog.pipeline("orders")
    report = orders.recover(dry_run=True)
    assert (report.chosen_id, report.examined, report.skipped) == (5, 5, ())
    assert sorted(healed.checkpoint_id for healed in report.healed) == [1, 2, 3, 4, 5]
    assert report.manifest is not None
    assert report.manifest.source_offsets["kafka"].offsets == {"0": "500"}
    writer = catalog.writer("orders")
    assert writer.recover().chosen_id == 5
    assert writer.next_id == 6
    with pytest.raises(ConflictError, match="is committed"):
        CheckpointNumbers(writer.reading, "orders").check_new([5])
    # They are nobody's orphans: what heals them is their children.
    assert orders.remove_orphans() == ()
    assert catalog.engine.read(SOURCE_OFFSETS.name, where=OF_ORDERS).num_rows == 5
    assert orders.recover(dry_run=True).chosen_id == 5


def _forget(catalog: ld.Catalog) -> None:
    """Takes a pipeline's rows out, and by and by everything that tells that somebody did."""
    catalog.engine.delete(MANIFESTS.name, OF_ORDERS)
    _save(catalog, 1, pipeline="other")
    clean_logs(catalog)


@pytest.mark.parametrize("takeovers", [0, 2])
def test_a_pipeline_that_left_no_trace_but_its_fence_is_no_new_one(catalog: ld.Catalog, takeovers: int) -> None:
    """With all of its state in the manifest row there are no children. A takeover passes on that there was something."""
    with catalog.writer("orders") as writer:
        for _ in range(3):
            with writer.checkpoint() as cp:
                cp.state("sum", b"small")
    for _ in range(takeovers):
        catalog.writer("orders").close()
    _forget(catalog)
    orders = catalog.pipeline("orders")
    for look in (orders.latest, orders.list, lambda: orders.recover(dry_run=True), lambda: catalog.writer("orders")):
        for _ in range(2):
            with pytest.raises(CorruptionError, match="'orders' is no new one"):
                look()
    assert catalog.pipeline("never").list() == []
    with catalog.writer("never") as writer:
        assert writer.recover().is_fresh_start


def test_a_cleaner_between_claim_and_fence_passes_on_that_there_was_something(
    catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("sum", b"small")
    engine = catalog.engine

    def clean_first(*args: Any) -> Generation:
        monkeypatch.undo()
        catalog.pipeline("orders").remove_orphans()
        # By whoever cleaned, in place of the one who claimed.
        assert stands_at(engine, "orders") == (2, 1)
        return raise_fences(*args)

    raise_fences = generations._raise_fences
    monkeypatch.setattr(generations, "_raise_fences", clean_first)
    writer = catalog.writer("orders")
    assert (writer.held.number, writer.held.begun) == (2, 1)
    with writer.checkpoint() as cp:
        cp.state("sum", b"more")
    assert stands_at(engine, "orders") == (2, 2)


def test_a_fence_raised_without_a_commit_is_a_beginning_while_the_log_tells_all(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        # What settling a save that never landed does.
        catalog.engine.raise_fence(MANIFESTS.name, writer.held.fence(1))
    with catalog.writer("orders") as writer:
        assert writer.recover().is_fresh_start
        assert (writer.next_id, writer.held.begun) == (1, 1)
        with writer.checkpoint() as cp:
            cp.state("sum", b"small")
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1]


def test_what_maintenance_removed_is_not_looked_for(catalog: ld.Catalog) -> None:
    _save(catalog, 3)
    orders = catalog.pipeline("orders")
    orders.prune(ld.RetentionPolicy(keep_last=1))
    catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0), vacuum=False))
    clean_logs(catalog)
    report = orders.recover(dry_run=True)
    assert (report.chosen_id, report.examined, report.healed) == (3, 1, ())


def test_vacuum_never_takes_a_row_whose_children_are_whole_and_older_than_history_is_kept(catalog: ld.Catalog) -> None:
    _save(catalog, 3, sink=True)
    clean_logs(catalog)
    catalog.engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").eq(3))
    assert catalog.pipeline("orders").recover(dry_run=True).chosen_id == 3
    with pytest.raises(ConflictError, match="only good copy of checkpoint 3"):
        catalog.maintain()


@pytest.mark.parametrize("traces", ["decision", "status", "children", "old-children"])
def test_manifests_of_which_no_version_is_left_are_no_fresh_start(catalog: ld.Catalog, traces: str) -> None:
    _save(catalog, 2, sink=traces == "status")
    _save(catalog, 1, pipeline="other")
    orders = catalog.pipeline("orders")
    if traces == "decision":
        orders.pin(2, reason="audit")
    catalog.engine.delete(MANIFESTS.name, OF_ORDERS)
    if traces in ("decision", "status"):
        catalog.engine.delete(SOURCE_OFFSETS.name, OF_ORDERS)
    if traces != "children":
        # So long ago that the log does not tell of the delete either.
        catalog.engine.raise_fence(MANIFESTS.name, Fence("somebody", 1))
    clean_logs(catalog)
    report = orders.recover(dry_run=True)
    assert report.chosen_id is None
    assert not report.is_fresh_start
    assert {skipped.checkpoint_id for skipped in report.skipped} == ({2} if traces == "decision" else {1, 2})
    assert all("no version of manifests that can be read has its row" in skipped.reason for skipped in report.skipped)
    # Who was never there, or began and did not get to a commit, starts afresh all the same.
    assert catalog.pipeline("new").recover(dry_run=True).is_fresh_start
    if traces != "children":
        writer = catalog.writer("new")
        with writer.attempting(writer.next_id) as attempt:
            began = writer.checkpoint(checkpoint_id=attempt.checkpoint_id)
            began.source("kafka", {"0": "lost"})
            stage_offsets(catalog.engine, attempt, began.manifest())
        assert catalog.pipeline("new").recover(dry_run=True).is_fresh_start
    assert catalog.pipeline("other").recover(dry_run=True).chosen_id == 1
    # Nor are their ids given out again.
    assert catalog.writer("orders").next_id == 3
    orders.remove_orphans()
    kept = {row["checkpoint_id"] for row in catalog.engine.read(SOURCE_OFFSETS.name, where=OF_ORDERS).to_pylist()}
    assert kept == ({1, 2} if "children" in traces else set())


@pytest.mark.parametrize("traces", ["decision", "status"])
def test_going_back_behind_manifests_of_which_no_version_is_left_is_told(catalog: ld.Catalog, traces: str) -> None:
    _save(catalog, 4, sink=traces == "status")
    if traces == "decision":
        catalog.pipeline("orders").pin(3, reason="audit")
        catalog.pipeline("orders").pin(4, reason="audit")
    catalog.engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").ge(3))
    # So long ago that the log does not tell of the delete either.
    catalog.engine.raise_fence(MANIFESTS.name, Fence("somebody", 1))
    clean_logs(catalog)
    report = catalog.pipeline("orders").recover(dry_run=True)
    assert report.chosen_id == 2
    assert [skipped.checkpoint_id for skipped in report.skipped] == [4, 3]
    assert all("no version of manifests that can be read has its row" in skipped.reason for skipped in report.skipped)
    # What other tables tell by now is not missing from how manifests was before.
    before = catalog.as_of(versions={MANIFESTS.name: catalog.engine.version(MANIFESTS.name)})
    assert before.pipeline("orders").recover(dry_run=True).skipped == ()


def test_children_that_say_of_no_attempt_whose_they_are_count_as_a_checkpoint_s(catalog: ld.Catalog) -> None:
    _save(catalog, 2)
    overwrite(catalog.engine, SOURCE_OFFSETS, OF_ORDERS & col("checkpoint_id").eq(2), {"attempt_id": "rotten"})
    catalog.engine.delete(MANIFESTS.name, OF_ORDERS)
    catalog.engine.raise_fence(MANIFESTS.name, Fence("somebody", 1))
    clean_logs(catalog)
    report = catalog.pipeline("orders").recover(dry_run=True)
    assert not report.is_fresh_start
    assert {skipped.checkpoint_id for skipped in report.skipped} == {1, 2}


def test_a_damaged_file_shared_with_others_stops_nobody_whose_log_tells_all(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    _save(catalog, 3)
    _save(catalog, 6, pipeline="others")
    catalog.engine.optimize(MANIFESTS.name)
    with catalog.writer("orders") as writer, writer.checkpoint(checkpoint_id=10) as cp:
        cp.source("kafka", {"0": "1000"})
    (compacted,) = (file for file in data_files(catalog.engine, MANIFESTS.name) if file.touches("orders", 5))
    with compacted.rotten(1.0):
        # It may hold a checkpoint 5 of orders by its statistics; the log knows that there never was one.
        writer = catalog.writer("orders")
        assert writer.next_id == 11
        assert writer.recover().chosen_id == 10


@pytest.mark.parametrize("cleaned", [False, True], ids=["log-kept", "log-cleaned"])
def test_a_damaged_file_of_a_compaction_is_healed_in_a_few_reads_however_many_rows_it_had(
    tmp_path: Path, cleaned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    _save(catalog, 12)
    if cleaned:
        clean_logs(catalog)
    before = {file.name for file in data_files(catalog.engine, MANIFESTS.name)}
    catalog.engine.optimize(MANIFESTS.name)
    (compacted,) = (file for file in data_files(catalog.engine, MANIFESTS.name) if file.name not in before)
    _save(catalog, 2)
    # Below those that were compacted, in a file of its own: it is not hidden by them.
    with catalog.writer("orders") as writer:
        # As an import takes it: a writer gives out no such id.
        offsets = {"kafka": ConnectorCheckpoint.with_offsets(1, {"0": "0"})}
        save_all(writer, [BulkSave(manifest=replace(CheckpointManifest.new(0, 1), source_offsets=offsets))])
    real, scanned = catalog.engine.scan, list[str]()

    def scan(table: str, **asked: Any) -> pa.RecordBatchReader:
        scanned.append(table)
        return real(table, **asked)

    monkeypatch.setattr(catalog.engine, "scan", scan)
    with compacted.rotten(1.0):
        found = find_rows(catalog.reading, "orders")
    assert [row["checkpoint_id"] for row in found.rows] == list(range(15))
    assert [lost.checkpoint_id for lost in found.lost] == list(range(1, 13))
    # Each for itself would be found damaged, and then looked up: two reads at least.
    assert scanned.count(MANIFESTS.name) < 2 * 12


@pytest.mark.parametrize("damage", ["missing", "rotten"])
def test_one_damaged_file_of_manifests_does_not_hide_the_others(tmp_path: Path, damage: str) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    _save(catalog, 4)
    # Without children: no other table knows of it.
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.describe(pipeline_hash=7)
    _save(catalog, 1)
    clean_logs(catalog)
    orders = catalog.pipeline("orders")
    for number, file in enumerate(data_files(catalog.engine, MANIFESTS.name), 1):
        with file.missing() if damage == "missing" else file.rotten(1.0):
            report = orders.recover(dry_run=True)
            assert report.chosen_id == (6 if number < 6 else 5)
            named = MANIFESTS.name if damage == "rotten" else Path(file.name).name
            assert any("damaged" in note and named in note for note in report.notes), report.notes
            assert [skipped.checkpoint_id for skipped in report.skipped] == ([6] if number == 6 else [])
            if number == 5:
                # Which ids it holds cannot be told, and none is to be given out twice.
                with pytest.raises(StorageError, match=MANIFESTS.name):
                    catalog.writer("orders")
            else:
                assert catalog.writer("orders").recover().chosen_id == report.chosen_id
    assert number == 6


def _abandon_the_newest(catalog: ld.Catalog) -> None:
    """Two checkpoints; a writer goes on from the first, because the second was not delivered by then."""
    writer = catalog.writer("orders", owner="old")
    for _ in range(2):
        with writer.checkpoint() as cp:
            cp.sink("warehouse")
    writer.sink_committed(1, "warehouse")
    assert catalog.writer("orders", owner="new").recover().chosen_id == 1
    catalog.pipeline("orders").pin(1, reason="audit")
    catalog.pipeline("orders").unpin(1)
    assert _ordinals(catalog) == [1, 2, 3, 4]
    # Only now its sink tells: what was passed over is not gone back to.
    rows = catalog.engine.read(SINK_STATUSES.name).to_pylist()
    late = {**rows[0], "checkpoint_id": 2, "attempt_id": _attempt(catalog, 2)}
    late["digest"] = statuses.digest_of(late)
    catalog.engine.append(SINK_STATUSES.name, pa.Table.from_pylist([late], schema=SINK_STATUSES.schema))


def _attempt(catalog: ld.Catalog, number: int) -> str:
    (row,) = catalog.engine.read(MANIFESTS.name, where=OF_ORDERS & col("checkpoint_id").eq(number)).to_pylist()
    return str(row["attempt_id"])


def _ordinals(catalog: ld.Catalog) -> list[int]:
    return sorted(row["ordinal"] for row in catalog.engine.read(RETENTION.name, where=OF_ORDERS).to_pylist())


@pytest.mark.parametrize("cleaned", [False, True], ids=["log-kept", "log-cleaned"])
@pytest.mark.parametrize("which", ["all", "first", "last-of-a-batch"])
def test_decisions_that_were_deleted_stand_all_the_same_and_are_written_again(
    catalog: ld.Catalog, which: str, cleaned: bool
) -> None:
    _abandon_the_newest(catalog)
    if which == "last-of-a-batch":
        # Numbers and fence look as if it had never been made: only the log tells.
        retired = [Decision(checkpoint_id=number, word=RETIRED) for number in (2, 1)]
        decide(catalog.engine, "orders", lambda _: retired, owner="ops")
    if cleaned:
        clean_logs(catalog)
    taken = {"all": col("ordinal").ge(1), "first": col("ordinal").eq(2), "last-of-a-batch": col("ordinal").eq(6)}[which]
    catalog.engine.delete(RETENTION.name, OF_ORDERS & taken)
    orders = catalog.pipeline("orders")
    (seen,) = catalog.overview()
    assert (seen.abandoned, seen.retired) == ((0, 2) if which == "last-of-a-batch" else (1, 0))
    report = orders.recover(dry_run=True)
    assert report.chosen_id == (None if which == "last-of-a-batch" else 1)
    assert any("taken out of retention" in note for note in report.notes)
    count = len(_ordinals(catalog)) + {"all": 4, "first": 1, "last-of-a-batch": 1}[which]
    # With all of them retired there is nothing to go on from: what was delivered is given up, too.
    assert catalog.writer("orders").recover(start_over=True).chosen_id == report.chosen_id
    made = 2 if report.chosen_id is None else 1
    assert _ordinals(catalog) == list(range(1, count + made + 1))
    assert not any("taken out" in note for note in orders.recover(dry_run=True).notes)


def test_the_end_of_the_last_decisions_is_missed_however_many_others_were_made_since(
    catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_rows, "HISTORY_WINDOW", 2)
    _abandon_the_newest(catalog)
    retired = [Decision(checkpoint_id=number, word=RETIRED) for number in (2, 1)]
    decide(catalog.engine, "orders", lambda _: retired, owner="ops")
    catalog.engine.delete(RETENTION.name, OF_ORDERS & col("ordinal").eq(6))
    _save(catalog, 1, pipeline="other")
    for _ in range(3):
        catalog.pipeline("other").pin(1, reason="audit")
        catalog.pipeline("other").unpin(1)
    assert catalog.pipeline("orders").recover(dry_run=True).chosen_id is None


def test_a_decision_does_not_read_the_log_of_all_that_were_made_before(
    catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _save(catalog, 1)
    orders = catalog.pipeline("orders")
    orders.pin(1, reason="audit")
    real, asked = catalog.engine.history, list[tuple[str, int | None]]()

    def history(table: str, *, limit: int | None = None) -> list[HistoryEntry]:
        asked.append((table, limit))
        return real(table, limit=limit)

    monkeypatch.setattr(catalog.engine, "history", history)
    orders.unpin(1)
    orders.pin(1, reason="audit")
    # A store that keeps the last few makes one with every save, and the log is kept for days.
    assert {table for table, _ in asked} == {RETENTION.name}
    assert all(limit is not None and limit <= HISTORY_WINDOW for _, limit in asked)


def test_decisions_of_which_no_version_is_left_are_an_error_that_names_table_and_pipeline(catalog: ld.Catalog) -> None:
    _abandon_the_newest(catalog)
    _save(catalog, 1, pipeline="other")
    catalog.engine.delete(RETENTION.name, OF_ORDERS)
    catalog.engine.raise_fence(RETENTION.name, Fence("somebody", 1))
    clean_logs(catalog)
    orders = catalog.pipeline("orders")
    for asked in (
        lambda: orders.recover(dry_run=True),
        lambda: orders.pin(1, reason="audit"),
        lambda: orders.prune(ld.RetentionPolicy(keep_last=1)),
        lambda: orders.list(),
    ):
        with pytest.raises(CorruptionError, match="'orders' are missing from table 'retention'") as refused:
            asked()
        assert "Restore the table" in (refused.value.next_step or "")
    assert catalog.pipeline("other").recover(dry_run=True).chosen_id == 1
    catalog.pipeline("other").pin(1, reason="audit")


@pytest.mark.parametrize("gone", ["log", "files"])
def test_what_was_lost_longer_ago_than_history_is_kept_is_passed_over_and_the_report_says_so(
    catalog: ld.Catalog, gone: str
) -> None:
    _save(catalog, 1)
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "200"})
        cp.state("agg", b"x" * 100_000)
    orders = catalog.pipeline("orders")
    newest = col("checkpoint_id").eq(2)
    for table in (SOURCE_OFFSETS.name, OPERATOR_SNAPSHOTS.name):
        catalog.engine.delete(table, newest)
    assert [healed.checkpoint_id for healed in orders.recover(dry_run=True).healed] == [2, 2]
    if gone == "log":
        clean_logs(catalog)
    else:
        # As somebody does who wants the space back.
        for table in (SOURCE_OFFSETS.name, OPERATOR_SNAPSHOTS.name):
            catalog.engine.vacuum(table, older_than_hours=0, dry_run=False)
    report = orders.recover(dry_run=True)
    assert report.chosen_id == 1
    (skipped,) = report.skipped
    assert "source_offsets has 0 of 1 rows" in skipped.reason
    for what in ("source_offsets", "the state"):
        assert f"the history of {what} is gone" in skipped.reason
    assert HISTORY_GONE in {finding.code for finding in skipped.findings}


def test_manifests_lost_longer_ago_than_history_is_kept_are_named_and_the_report_says_how_far_it_reaches(
    catalog: ld.Catalog,
) -> None:
    _save(catalog, 2, sink=True)
    catalog.engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").eq(2))
    assert catalog.pipeline("orders").recover(dry_run=True).chosen_id == 2
    catalog.engine.raise_fence(MANIFESTS.name, Fence("somebody", 1))
    clean_logs(catalog)
    report = catalog.pipeline("orders").recover(dry_run=True)
    assert report.chosen_id == 1
    assert any("the log of manifests reaches back to version" in note for note in report.notes)


def test_a_damaged_log_entry_that_is_not_needed_any_more_hides_no_checkpoint_and_makes_no_orphan(
    tmp_path: Path,
) -> None:
    """A log checkpoint covers it, so the table is whole; what it took out is known by its children, and they stay."""
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    _save(catalog, 3)
    catalog.engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").eq(2))
    entry = entry_path(tmp_path / "catalog" / MANIFESTS.name, catalog.engine.version(MANIFESTS.name))
    _save(catalog, 1)
    catalog.engine.log_checkpoint(MANIFESTS.name)
    _save(catalog, 1)
    whole = entry.read_bytes()
    entry.write_bytes(b"")
    orders = catalog.pipeline("orders")
    report = orders.recover(dry_run=True)
    assert report.chosen_id == 5
    assert any(entry.name in note for note in report.notes)
    with pytest.raises(StorageError, match=entry.name):
        catalog.audit(pipeline="orders")
    with pytest.raises(StorageError, match=entry.name):
        catalog.as_of(versions={MANIFESTS.name: int(entry.stem)}).pipeline("orders").list()
    assert catalog.writer("orders").recover().chosen_id == 5
    # Whether an attempt is nobody's could only be told by what cannot be read.
    assert not committed_attempts(catalog.reading, "orders").all_told
    assert orders.remove_orphans() == ()
    entry.write_bytes(whole)
    assert sorted(head.checkpoint_id for head in orders.list()) == [1, 3, 4, 5]
    assert [healed.checkpoint_id for healed in orders.recover(dry_run=True).healed] == [2]


@pytest.mark.parametrize("use", ["delta", "fork", "fork of a delta"])
def test_what_a_checkpoint_refers_to_is_nobodys_orphan_though_its_row_and_the_log_are_gone(
    catalog: ld.Catalog, use: str
) -> None:
    base = bytes(range(256)) * 2000
    with catalog.writer("orders") as writer:
        for first in (b"1", b"2"):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": str(cp.id)})
                cp.state("sums", first + base[1:], inline=False)
        # One whose row stays, and that needs neither.
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": str(cp.id)})
        if use == "delta":
            kept, lost = catalog.pipeline("orders"), [1]
        else:
            with catalog.writer("copy") as copy:
                copy.fork("orders", 1 if use == "fork" else 2, reason="elsewhere")
            kept, lost = catalog.pipeline("copy"), [1, 2]
    catalog.engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").is_in(lost))
    # So long ago that the log does not tell of the delete either.
    catalog.engine.raise_fence(MANIFESTS.name, Fence("somebody", 1))
    clean_logs(catalog)
    newest = max(head.checkpoint_id for head in kept.list() if head.checkpoint_id < 3)
    assert kept.validate(newest).valid
    catalog.writer("orders")
    orders = catalog.pipeline("orders")
    orders.remove_orphans()
    assert kept.validate(newest).valid
    assert kept.state(newest, heal=False).read("sums")[1:] == base[1:]


def test_a_parent_is_nobodys_orphan_though_its_row_and_the_log_are_gone(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        _save_through(writer, 1, parent=None)
        _save_through(writer, 2, parent=1)
    catalog.engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").eq(1))
    catalog.engine.raise_fence(MANIFESTS.name, Fence("somebody", 1))
    clean_logs(catalog)
    catalog.writer("orders")
    assert catalog.pipeline("orders").remove_orphans() == ()
    assert catalog.engine.read(SOURCE_OFFSETS.name, where=OF_ORDERS).num_rows == 2


def _save_through(writer: Writer, number: int, *, parent: int | None) -> None:
    began = writer.checkpoint(checkpoint_id=number)
    began.source("kafka", {"0": str(number)})
    writer.save(replace(began.manifest(), parent_id=parent, is_incremental=parent is not None))


def test_an_attempt_that_was_passed_over_beside_damage_is_an_orphan_all_the_same(catalog: ld.Catalog) -> None:
    _save(catalog, 2)
    writer = catalog.writer("orders")
    with pytest.raises(ZeroDivisionError), writer.attempting(3) as attempt:
        began = writer.checkpoint(checkpoint_id=3)
        began.source("kafka", {"0": "300"})
        stage_offsets(catalog.engine, attempt, began.manifest())
        raise ZeroDivisionError
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": "400"})
        cp.sink("warehouse")
    catalog.engine.optimize(MANIFESTS.name)
    with data_files(catalog.engine, MANIFESTS.name)[-1].missing():
        # Whether it has a row cannot be told: it may be in the file.
        report = writer.recover()
    assert (report.chosen_id, [skipped.checkpoint_id for skipped in report.skipped]) == (2, [4, 3])
    catalog.writer("orders")
    assert [orphan.checkpoint_id for orphan in catalog.pipeline("orders").remove_orphans()] == [3]
