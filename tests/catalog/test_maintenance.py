"""Maintenance: what goes and what never does, refusals, cut off and finished, beside running saves."""

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import laminar_delta as ld
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.later import ensure
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.needs import keep_needed
from laminar_delta.catalog.removal import ORDER, remove_retired
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.standing import RETIRED, standing
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_SNAPSHOTS, QUERY_PROGRESS, SINK_STATUSES, SOURCE_OFFSETS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, InvalidInputError, NotFoundError, SessionStateError, StorageError
from tests.support.catalogs import QUICK_ENGINES, ready_made
from tests.support.damage import data_files, overwrite

Opener = Callable[[], ld.Catalog]

AT_ONCE = MaintenancePolicy(grace=dt.timedelta(0), compact_after=2)


@pytest.fixture(params=QUICK_ENGINES)
def quick(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return ready_made(request.param, tmp_path / "quick", request)()


def _save(writer: Writer, count: int) -> None:
    for _ in range(count):
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": str(cp.id)})
            cp.state("agg", b"s" * 40_000 + bytes([cp.id]))
            cp.sink("warehouse")
        writer.sink_committed(cp.id, "warehouse")


def _numbers(catalog: ld.Catalog, table: str) -> list[int]:
    return sorted({row["checkpoint_id"] for row in catalog.engine.read(table, columns=["checkpoint_id"]).to_pylist()})


def test_what_was_retired_long_enough_ago_goes_and_nothing_else(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _save(writer, 5)
    orders = catalog.pipeline("orders")
    orders.pin(2, reason="audit")
    orders.prune(RetentionPolicy(keep_last=2))
    assert catalog.maintain(MaintenancePolicy()).removed == {}
    looked = catalog.maintain(AT_ONCE, dry_run=True)
    assert looked.removed == {"orders": (1, 3)}
    assert {MANIFESTS.name, SOURCE_OFFSETS.name} <= looked.compacted.keys()
    assert _numbers(catalog, MANIFESTS.name) == [1, 2, 3, 4, 5]
    told: list[str] = []
    report = catalog.maintain(AT_ONCE, owner="nightly", progress=told.append)
    assert report.removed == {"orders": (1, 3)}
    assert {MANIFESTS.name, SOURCE_OFFSETS.name} <= report.compacted.keys() <= looked.compacted.keys()
    assert report.put_off == {}
    assert told[0] == "checking"
    for spec in ORDER[:3]:
        assert _numbers(catalog, spec.name) == [2, 4, 5]
    assert _numbers(catalog, MANIFESTS.name) == [2, 4, 5]
    recovery = orders.recover()
    assert (recovery.chosen_id, recovery.skipped) == (5, ())
    assert orders.state(2).read("agg")[-1] == 2
    with pytest.raises(NotFoundError):
        orders.restore(1)
    with pytest.raises(ConflictError, match="was committed before, and removed"):
        writer.save(orders.get(4).__class__.from_dict({**orders.get(4).to_dict(), "checkpoint_id": 3}))
    assert catalog.maintain(AT_ONCE).removed == {}
    assert any(entry.operation == "compact" and entry.owner == "nightly" for entry in catalog.audit())


def test_a_removal_cut_off_is_finished_by_the_next(quick: ld.Catalog) -> None:
    _save(quick.writer("orders"), 3)
    quick.pipeline("orders").prune(RetentionPolicy(keep_last=1))
    real = quick.engine._delete

    def fail(table: str, where: object, made: object) -> object:
        if table == OPERATOR_SNAPSHOTS.name:
            raise StorageError("the disk went away")
        return real(table, where, made)  # type: ignore[arg-type]

    quick.engine._delete = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(StorageError):
        quick.maintain(AT_ONCE)
    quick.engine._delete = real  # type: ignore[method-assign]
    assert _numbers(quick, SOURCE_OFFSETS.name) == [3]
    assert _numbers(quick, MANIFESTS.name) == [1, 2, 3]
    # Half removed is not restored: its rows would not be whole.
    with pytest.raises(NotFoundError, match="removed"):
        quick.pipeline("orders").restore(1)
    assert quick.maintain(AT_ONCE).removed == {"orders": (1, 2)}
    assert _numbers(quick, MANIFESTS.name) == [3]


def test_what_a_kept_checkpoint_uses_is_not_removed(quick: ld.Catalog) -> None:
    writer = quick.writer("orders")
    _save(writer, 2)
    writer.rewind(1, reason="back")
    quick.writer("copy").fork("orders", 2, reason="try")
    # As if somebody had retired them without asking.
    retired = [Decision(checkpoint_id=number, word=RETIRED) for number in (1, 2)]
    decide(quick.engine, "orders", lambda _: retired, owner="ops")
    assert quick.maintain(AT_ONCE).removed == {}
    assert quick.pipeline("orders").state(3).read("agg")[-1] == 1
    assert quick.pipeline("copy").state(1).read("agg")[-1] == 2


def test_a_checkpoint_that_needs_what_was_removed_meanwhile_is_told(quick: ld.Catalog) -> None:
    writer = quick.writer("orders")
    _save(writer, 2)
    looked = writer.rewind(1, reason="back")
    retired = [Decision(checkpoint_id=number, word=RETIRED) for number in (1, looked.checkpoint_id)]
    decide(quick.engine, "orders", lambda _: retired, owner="ops")
    remove_retired(quick.engine, "orders", grace=dt.timedelta(0), owner="ops")
    assert standing(writer.reading, "orders").removed == {1, 3}
    made = quick.engine.read(MANIFESTS.name).to_pylist()[0]
    late = {**made, "checkpoint_id": 4, "state_pipeline": "orders", "state_checkpoint_id": 1}
    import pyarrow as pa

    quick.engine.append(MANIFESTS.name, pa.Table.from_pylist([late], schema=MANIFESTS.schema))
    with pytest.raises(ConflictError, match="which maintenance removed"):
        keep_needed(quick.engine, "orders", 4, owner="ops")
    assert 4 in standing(writer.reading, "orders").retired


def test_vacuum_never_cuts_the_healing_window(quick: ld.Catalog) -> None:
    with pytest.raises(InvalidInputError, match="healing window") as refused:
        quick.maintain(MaintenancePolicy(vacuum_after=dt.timedelta(hours=1)))
    assert (refused.value.expected, refused.value.found) == ("at least 7 days, 0:00:00", dt.timedelta(hours=1))
    quick.maintain(MaintenancePolicy(vacuum_after=dt.timedelta(days=8)))
    quick.maintain(MaintenancePolicy(vacuum_after=dt.timedelta(hours=1), vacuum=False))


def test_vacuum_leaves_files_for_as_long_as_told_and_no_shorter(quick: ld.Catalog) -> None:
    with patch.object(quick.engine, "vacuum", wraps=quick.engine.vacuum) as asked:
        quick.maintain(MaintenancePolicy(vacuum_after=dt.timedelta(days=7, minutes=1)))
    assert {call.kwargs["older_than_hours"] for call in asked.call_args_list} == {7 * 24 + 1}


@pytest.mark.parametrize("hours", [0, 23])
def test_vacuum_never_takes_what_may_be_written_ahead_of_a_commit(tmp_path: Path, hours: int) -> None:
    catalog = ld.open_catalog(str(tmp_path))
    window = {"delta.deletedFileRetentionDuration": f"interval {hours} hours"}
    DeltaTable(str(tmp_path / OPERATOR_SNAPSHOTS.name)).alter.set_table_properties(window)
    with pytest.raises(InvalidInputError, match="written ahead") as refused:
        catalog.maintain()
    assert (refused.value.expected, refused.value.found) == ("at least 1 day, 0:00:00", dt.timedelta(hours=hours))
    catalog.maintain(MaintenancePolicy(vacuum=False))


@pytest.mark.also_on_spark
def test_vacuum_is_refused_where_it_would_take_the_only_good_copy(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        for _ in range(2):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": str(cp.id)})
    catalog.pipeline("orders").pin(1, reason="audit")
    catalog.engine.delete(SOURCE_OFFSETS.name, col("pipeline").eq("orders") & col("checkpoint_id").eq(1))
    with pytest.raises(ConflictError, match="only good copy of checkpoint 1"):
        catalog.maintain()


@pytest.mark.parametrize("table", [SOURCE_OFFSETS.name, MANIFESTS.name])
def test_vacuum_never_takes_the_only_good_copy_of_a_pinned_checkpoint(quick: ld.Catalog, table: str) -> None:
    _save(quick.writer("orders"), 3)
    orders = quick.pipeline("orders")
    orders.pin(2, reason="audit")
    quick.engine.delete(table, col("pipeline").eq("orders") & col("checkpoint_id").eq(2))
    with pytest.raises(ConflictError, match="only good copy of checkpoint 2"):
        quick.maintain()
    quick.maintain(MaintenancePolicy(vacuum=False))
    orders.unpin(2)
    quick.maintain()


OF_ORDERS = col("pipeline").eq("orders")


def _take_out(catalog: ld.Catalog, what: str) -> int:
    """Three delivered checkpoints and, for some, one that is not; then rows are gone. The checkpoint that only the past has."""
    writer, engine = catalog.writer("orders"), catalog.engine
    _save(writer, 3)
    if what in ("offsets of the one delivered", "row of the one delivered", "newest row, not delivered"):
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": "4"})
            cp.sink("warehouse")
    if what == "all rows":
        engine.delete(MANIFESTS.name, OF_ORDERS)
    elif what == "newest row":
        engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").eq(3))
    elif what == "newest row, not delivered":
        engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").eq(4))
        return 4
    elif what == "newest row changed":
        overwrite(engine, MANIFESTS, OF_ORDERS & col("checkpoint_id").eq(3), {"epoch": 77})
    elif what == "row of the one delivered":
        engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").eq(3))
    elif what == "offsets of the one delivered":
        engine.delete(SOURCE_OFFSETS.name, OF_ORDERS & col("checkpoint_id").eq(3))
    else:
        engine.delete(SINK_STATUSES.name, OF_ORDERS & col("checkpoint_id").eq(3))
    return 3


@pytest.mark.parametrize(
    "what",
    [
        "newest row",
        "newest row changed",
        "newest row, not delivered",
        "all rows",
        "row of the one delivered",
        "offsets of the one delivered",
        "what its sinks told",
    ],
)
def test_vacuum_never_takes_the_only_good_copy_of_the_newest_or_of_what_recovery_goes_back_to(
    quick: ld.Catalog, what: str
) -> None:
    with quick.writer("others") as others:
        _save(others, 1)
    number, orders = _take_out(quick, what), quick.pipeline("orders")
    assert orders.recover(dry_run=True).chosen_id == 3
    for policy in (MaintenancePolicy(), AT_ONCE):
        with pytest.raises(
            ConflictError, match=f"only good copy of checkpoint {number} of pipeline 'orders'"
        ) as refused:
            quick.maintain(policy)
    only_told = what == "what its sinks told"
    assert ("Record again" if only_told else "Derive a checkpoint") in (refused.value.next_step or "")
    quick.maintain(MaintenancePolicy(vacuum=False))
    assert orders.recover(dry_run=True).chosen_id == 3
    with quick.writer("orders") as writer:
        if only_told:
            # As it says.
            writer.sink_committed(3, "warehouse")
            quick.maintain()
            assert orders.recover(dry_run=True).healed == ()
        writer.rewind(number, reason="its rows are gone", accept_undelivered=number == 4)
    quick.maintain()
    assert orders.recover(dry_run=True).chosen_id == 5 if number == 4 else orders.list()[-1].checkpoint_id


def test_what_a_checkpoint_needs_stays_also_when_its_own_row_is_gone(quick: ld.Catalog) -> None:
    writer = quick.writer("orders")
    _save(writer, 4)
    writer.rewind(1, reason="back")
    quick.writer("copy").fork("orders", 2, reason="try")
    quick.engine.delete(MANIFESTS.name, OF_ORDERS & col("checkpoint_id").eq(5))
    quick.engine.delete(MANIFESTS.name, col("pipeline").eq("copy"))
    orders = quick.pipeline("orders")
    assert orders.prune(RetentionPolicy(keep_last=1)).retire == (1, 2, 3)
    policy = MaintenancePolicy(grace=dt.timedelta(0), vacuum=False)
    assert quick.maintain(policy, dry_run=True).removed == {"orders": (3,)}
    assert quick.maintain(policy).removed == {"orders": (3,)}
    assert orders.recover(dry_run=True).chosen_id == 5
    assert orders.state(5).read("agg")[-1] == 1
    assert quick.pipeline("copy").state(1).read("agg")[-1] == 2


@pytest.mark.parametrize("pinned", [False, True], ids=["all-retired", "one-pinned"])
def test_what_recovery_would_need_is_not_removed_while_the_newest_is_damaged(tmp_path: Path, pinned: bool) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    with catalog.writer("orders") as writer:
        _save(writer, 4)
    orders = catalog.pipeline("orders")
    if pinned:
        orders.pin(1, reason="audit")
    (file,) = (file for file in data_files(catalog.engine, OPERATOR_SNAPSHOTS.name) if file.touches("orders", 4))
    with file.rotten(1.0):
        assert orders.recover(dry_run=True).chosen_id == 3
        retired = (2, 3) if pinned else (1, 2, 3)
        assert orders.prune(RetentionPolicy(keep_last=1)).retire == retired
        assert orders.recover(dry_run=True).chosen_id == (1 if pinned else None)
        for dry_run in (True, False):
            report = catalog.maintain(AT_ONCE, dry_run=dry_run)
            assert report.removed == {}
            assert "checkpoint 4 cannot be used" in report.put_off["orders"]
            assert report.put_off["orders"].endswith(", ".join(map(str, retired)))
        orders.restore(3)
        assert orders.recover(dry_run=True).chosen_id == 3
        # From here on there is something to go back to.
        assert catalog.maintain(AT_ONCE).removed == {"orders": (2,) if pinned else (1, 2)}
        orders.prune(RetentionPolicy(keep_last=1))
    report = catalog.maintain(AT_ONCE)
    assert (report.removed, report.put_off) == ({"orders": (3,)}, {})


def test_what_was_never_delivered_keeps_nothing_from_being_removed(quick: ld.Catalog) -> None:
    with quick.writer("orders") as writer:
        _save(writer, 2)
        with writer.checkpoint() as cp:
            cp.sink("warehouse")
    retired = [Decision(checkpoint_id=number, word=RETIRED) for number in (1, 2)]
    decide(quick.engine, "orders", lambda _: retired, owner="ops")
    report = quick.maintain(AT_ONCE)
    assert (report.removed, report.put_off) == ({"orders": (1, 2)}, {})


def test_rows_that_are_gone_are_searched_for_once_however_many_pipelines_there_are(quick: ld.Catalog) -> None:
    for number in range(6):
        with quick.writer(f"p{number}") as writer:
            _save(writer, 1)
    policy = MaintenancePolicy(compact_after=1000)
    for taken in (False, True):
        if taken:
            quick.engine.delete(MANIFESTS.name, col("pipeline").eq("p3"))
        with patch.object(quick.engine, "history", wraps=quick.engine.history) as asked:
            if taken:
                with pytest.raises(ConflictError, match="of pipeline 'p3'"):
                    quick.maintain(policy)
            else:
                quick.maintain(policy)
        # And once more for the one that misses some; and once to see whether compaction pays.
        assert sum(call.args[0] == MANIFESTS.name for call in asked.call_args_list) == 2


def test_policies_that_make_no_sense_are_refused(quick: ld.Catalog) -> None:
    with pytest.raises(InvalidInputError):
        MaintenancePolicy(grace=dt.timedelta(seconds=-1))
    with pytest.raises(InvalidInputError):
        MaintenancePolicy(compact_after=0)
    with pytest.raises(InvalidInputError, match="keep_progress_for"):
        MaintenancePolicy(keep_progress_for=dt.timedelta(seconds=-1))
    _save(quick.writer("orders"), 1)
    with pytest.raises(SessionStateError):
        quick.as_of(versions={MANIFESTS.name: 0}).maintain()


def test_what_queries_said_long_ago_goes_when_a_policy_says_so(quick: ld.Catalog) -> None:
    keep = MaintenancePolicy(keep_progress_for=dt.timedelta(days=30), vacuum=False)
    _save(quick.writer("orders"), 1)
    assert quick.maintain(keep).progress == 0  # there is no such table yet
    ensure(quick.engine, QUERY_PROGRESS)
    today = int(dt.datetime.now(dt.timezone.utc).timestamp() * 1000)
    day = 24 * 3600 * 1000
    rows = [{"query_id": "q", "batch_id": age, "timestamp_ms": today - age * day} for age in (0, 29, 31, 400)]
    quick.engine.append(QUERY_PROGRESS.name, pa.Table.from_pylist(rows, schema=QUERY_PROGRESS.schema))

    def left() -> list[int]:
        return sorted(row["batch_id"] for row in quick.engine.read(QUERY_PROGRESS.name).to_pylist())

    assert quick.maintain(MaintenancePolicy(vacuum=False)).progress == 0
    assert quick.maintain(keep, dry_run=True).progress == 2
    assert left() == [0, 29, 31, 400]
    assert quick.maintain(keep, owner="ops").progress == 2
    assert left() == [0, 29]
    (entry,) = [entry for entry in quick.audit() if entry.operation == "remove-progress"]
    assert entry.owner == "ops"
    assert quick.maintain(keep).progress == 0


def test_saves_go_on_beside_maintenance(quick: ld.Catalog) -> None:
    writer = quick.writer("orders")
    _save(writer, 2)
    failed: list[BaseException] = []

    def saving() -> None:
        try:
            _save(writer, 8)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    thread = threading.Thread(target=saving)
    thread.start()
    removed: list[int] = []
    while thread.is_alive():
        quick.pipeline("orders").prune(RetentionPolicy(keep_last=2))
        removed.extend(quick.maintain(AT_ONCE).removed.get("orders", ()))
    thread.join()
    assert failed == []
    quick.pipeline("orders").prune(RetentionPolicy(keep_last=2))
    removed.extend(quick.maintain(AT_ONCE).removed.get("orders", ()))
    assert removed == list(range(1, 9))
    assert quick.pipeline("orders").recover().chosen_id == 10
    assert all(quick.pipeline("orders").validate(number).valid for number in (9, 10))
