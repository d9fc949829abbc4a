"""What recovery may give up: never what was only delivered, nor what may be whole again tomorrow."""

import datetime as dt
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.coordinator import Coordinator
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.deliveries import DOUBT, Deliveries, delivered_up_to
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.standing import RETIRED, standing
from laminar_delta.catalog.tables import MANIFESTS, RECOVERIES, SINK_STATUSES, SOURCE_OFFSETS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, FencedError, InvalidInputError
from tests.stores.support import destroy
from tests.support.catalogs import QUICK_ENGINES, catalog_opener
from tests.support.damage import clean_logs, data_files, overwrite

Opener = Callable[[], ld.Catalog]


@pytest.fixture(params=QUICK_ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return catalog_opener(request.param, tmp_path / "catalog", request)


@pytest.fixture
def catalog(open_again: Opener) -> ld.Catalog:
    return open_again()


def _save(writer: Writer, count: int, *, sink: bool = False, delivered: bool = True) -> None:
    for _ in range(count):
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": str(100 * cp.id)})
            if sink:
                cp.sink("lake")
        if sink and delivered:
            writer.sink_committed(cp.id, "lake")


# -- status changes that somebody took out ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "overwritten"])
def test_status_changes_that_were_taken_out_are_healed(catalog: ld.Catalog, how: str) -> None:
    orders = catalog.pipeline("orders")
    with catalog.writer("orders") as writer:
        _save(writer, 3, sink=True)
    before = catalog.engine.version(SINK_STATUSES.name)
    every = col("pipeline").eq("orders")
    if how == "deleted":
        catalog.engine.delete(SINK_STATUSES.name, every)
    else:
        overwrite(catalog.engine, SINK_STATUSES, every, {"status": "Failed", "error": "x"})
    with catalog.writer("orders") as writer:
        report = writer.recover()
        assert (report.chosen_id, report.skipped) == (3, ())
        assert [(rows.checkpoint_id, rows.table, rows.version) for rows in report.healed] == [
            (3, SINK_STATUSES.name, before)
        ]
        assert report.manifest is not None
        assert report.manifest.sink_commit_statuses["lake"].is_committed
        # Whoever derives or prunes goes by the same.
        assert writer.rewind(2, reason="it has it").from_id == 2
    reading = Reading(catalog.engine)
    delivered = delivered_up_to(reading, "orders", standing(reading, "orders"))
    assert (delivered.newest, delivered.maybe) == (4, frozenset())
    assert orders.standing().abandoned == frozenset()
    assert orders.validate(3).passed_over is None


def test_a_failure_after_which_nothing_was_told_stays_one_when_it_was_taken_out(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        _save(writer, 1, sink=True)
        _save(writer, 1, sink=True, delivered=False)
        writer.sink_failed(2, "lake", "no route")
    catalog.engine.delete(SINK_STATUSES.name, col("checkpoint_id").eq(2))
    report = catalog.pipeline("orders").recover(dry_run=True)
    assert report.chosen_id == 1
    assert "sink 'lake' is Failed: no route" in report.skipped[0].reason


def test_a_change_that_cannot_be_believed_does_not_hide_those_since_a_compaction(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        _save(writer, 1, sink=True)
        _save(writer, 1, sink=True)
        catalog.engine.optimize(SINK_STATUSES.name)
        _save(writer, 1, sink=True)
    (change,) = catalog.engine.read(SINK_STATUSES.name, where=col("checkpoint_id").eq(3)).to_pylist()
    bad = {**change, "status": "Failed", "error": "x"}
    catalog.engine.append(SINK_STATUSES.name, pa.Table.from_pylist([bad], schema=SINK_STATUSES.schema))
    assert catalog.pipeline("orders").recover(dry_run=True).chosen_id == 3


def test_pruning_reads_status_changes_in_a_few_scans(catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    with catalog.writer("orders") as writer:
        _save(writer, 1, sink=True)
        _save(writer, 30, sink=True, delivered=False)
    reads: list[str] = []
    read = Reading.rows

    def counted(self: Reading, spec: object, **kwargs: object) -> object:
        reads.append(spec.name)  # type: ignore[attr-defined]
        return read(self, spec, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Reading, "rows", counted)
    plan = catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1), dry_run=True)
    assert reads.count(SINK_STATUSES.name) <= 4
    assert 1 not in plan.retire
    assert len(plan.retire) == 29


def _vacuum(catalog: ld.Catalog) -> None:
    """What somebody does who wants the space, whatever was there within the healing window."""
    catalog.engine.vacuum(SINK_STATUSES.name, older_than_hours=0, dry_run=False)


def _lose_statuses(catalog: ld.Catalog, how: str) -> None:
    """Takes out what sinks told, with everything that could tell it; with the log also that somebody did."""
    catalog.engine.delete(SINK_STATUSES.name, col("pipeline").eq("orders"))
    with catalog.writer("other") as writer:
        _save(writer, 1, sink=True)
    _vacuum(catalog)
    if how == "and the log":
        clean_logs(catalog)
        assert Deliveries(Reading(catalog.engine), "orders").unread == []


@pytest.mark.parametrize("how", ["with a trace", "and the log"])
def test_statuses_that_are_lost_for_good_are_no_beginning(open_again: Opener, how: str) -> None:
    catalog = open_again()
    orders = catalog.pipeline("orders")
    with catalog.writer("orders") as writer:
        _save(writer, 3, sink=True)
    _lose_statuses(catalog, how)
    third = replace(orders.get(3), checkpoint_id=4, epoch=4, sink_commit_statuses={})
    writer = open_again().writer("orders")
    with pytest.raises(CorruptionError, match="its sinks may have it") as caught:
        writer.recover()
    assert caught.value.details["maybe_delivered"] == [1, 2, 3]
    assert "sink_committed" in caught.value.next_step
    with ld.DeltaCheckpointStore(open_again(), "orders") as store:
        assert store.recover_latest_validated().chosen_id is None
        with pytest.raises(CorruptionError, match="its sinks may have it"):
            store.save(third)
    assert orders.standing().abandoned == frozenset()
    with open_again().writer("orders") as writer:
        # Who knows says it again, and it is as before.
        writer.sink_committed(3, "lake")
        assert writer.recover().chosen_id == 3


def test_who_begins_anew_over_lost_statuses_gives_them_all_up(open_again: Opener) -> None:
    with open_again().writer("orders") as writer:
        _save(writer, 3, sink=True)
    catalog = open_again()
    _lose_statuses(catalog, "with a trace")
    with catalog.writer("orders") as writer:
        assert writer.recover(start_over=True).chosen_id is None
    assert catalog.pipeline("orders").standing().abandoned == {1, 2, 3}
    with catalog.writer("orders") as writer:
        assert writer.recover().chosen_id is None


def test_what_was_saved_after_a_loss_lost_nothing_in_it(catalog: ld.Catalog) -> None:
    with catalog.writer("other") as writer:
        _save(writer, 2, sink=True)
    catalog.engine.delete(SINK_STATUSES.name, col("pipeline").eq("other"))
    _vacuum(catalog)
    clean_logs(catalog)
    with catalog.writer("orders") as writer:
        _save(writer, 2, sink=True, delivered=False)
    with catalog.writer("orders") as writer:
        assert writer.recover().chosen_id is None
    assert catalog.pipeline("orders").standing().abandoned == {1, 2}


@pytest.mark.parametrize("how", ["with a trace", "and the log"])
def test_retention_leaves_alone_what_sinks_may_have(catalog: ld.Catalog, how: str) -> None:
    orders = catalog.pipeline("orders")
    with catalog.writer("orders") as writer:
        _save(writer, 3, sink=True)
        _save(writer, 1, sink=True, delivered=False)
    _lose_statuses(catalog, how)
    plan = orders.prune(RetentionPolicy(keep_last=1))
    assert plan.retire == ()
    assert [kept.reason for kept in plan.keep] == [*[DOUBT] * 3, "the newest"]
    # Also those that were retired before.
    retired = [Decision(checkpoint_id=number, word=RETIRED) for number in (1, 2, 3)]
    decide(catalog.engine, "orders", lambda _: retired, owner="ops")
    report = catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0)))
    assert report.removed == {}
    assert DOUBT in report.put_off["orders"]
    with catalog.writer("orders") as writer:
        writer.sink_committed(3, "lake")
        orders.restore(3)
        assert writer.recover().chosen_id == 3
    assert orders.prune(RetentionPolicy(keep_last=1)).retire == ()
    assert catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0))).removed == {"orders": (1, 2)}


def test_a_sink_that_is_down_for_long_keeps_nothing_from_retention(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        _save(writer, 1, sink=True)
        _save(writer, 3, sink=True, delivered=False)
    with catalog.writer("other") as writer:
        _save(writer, 1, sink=True)
    clean_logs(catalog)
    assert catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1)).retire == (2, 3)
    assert catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0))).removed == {"orders": (2, 3)}


# -- beginning anew ---------------------------------------------------------------------------------------------------


def test_damage_that_may_be_gone_tomorrow_gives_nothing_up(open_again: Opener) -> None:
    catalog = open_again()
    orders = catalog.pipeline("orders")
    with catalog.writer("orders") as writer:
        _save(writer, 3)
    writer = open_again().writer("orders")
    with ExitStack() as away:
        # A volume that is not mounted any more, a restore under way.
        for file in data_files(catalog.engine, SOURCE_OFFSETS.name):
            away.enter_context(file.missing())
        with pytest.raises(CorruptionError, match="none of them can be used: 3: ") as caught:
            writer.recover()
        assert caught.value.details["damaged"] == [1, 2, 3]
        assert "start_over=True" in caught.value.next_step
        with pytest.raises(CorruptionError, match="none of them can be used"):
            Coordinator(writer, []).resume()
        # To look is no decision.
        report = open_again().pipeline("orders").recover()
        assert (report.chosen_id, len(report.skipped)) == (None, 3)
    assert orders.standing().abandoned == frozenset()
    with open_again().writer("orders") as writer:
        assert writer.recover().chosen_id == 3


def test_who_says_so_begins_anew(open_again: Opener) -> None:
    catalog = open_again()
    with catalog.writer("orders") as writer:
        _save(writer, 2)
    writer = open_again().writer("orders")
    with ExitStack() as away:
        for file in data_files(catalog.engine, SOURCE_OFFSETS.name):
            away.enter_context(file.missing())
        assert writer.recover(start_over=True).chosen_id is None
    assert catalog.pipeline("orders").standing().abandoned == {1, 2}
    # That was decided: who comes next is not asked again, and what is whole again by now stays behind.
    with open_again().writer("orders") as writer:
        assert writer.recover().chosen_id is None
        _save(writer, 1)
        assert writer.recover().chosen_id == 3


def test_a_store_does_not_begin_anew_over_what_cannot_be_used(open_again: Opener) -> None:
    with open_again().writer("orders") as writer:
        _save(writer, 2)
    catalog = open_again()
    store = ld.DeltaCheckpointStore(catalog, "orders")
    third = replace(catalog.pipeline("orders").get(2), checkpoint_id=3, epoch=3)
    with ld.DeltaCheckpointStore(open_again(), "orders") as other:
        # It holds the generation before the damage: without it nothing can be told of ids.
        other.save_state_data(9, b"")
        with ExitStack() as away:
            for file in data_files(catalog.engine, SOURCE_OFFSETS.name):
                away.enter_context(file.missing())
            assert other.recover_latest_validated().chosen_id is None
            with pytest.raises(CorruptionError, match="none of them can be used"):
                other.save(third)
    assert catalog.pipeline("orders").standing().abandoned == frozenset()
    assert store.recover_latest_validated().chosen_id == 2
    store.save(third)
    assert store.list_ids() == [1, 2, 3]


def test_nothing_that_a_sink_has_is_a_beginning(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        assert writer.recover().is_fresh_start
        _save(writer, 2, sink=True, delivered=False)
    with catalog.writer("orders") as writer:
        assert writer.recover().chosen_id is None
        assert standing(writer.reading, "orders").abandoned == {1, 2}


def test_what_is_retired_and_delivered_is_no_beginning(catalog: ld.Catalog) -> None:
    orders = catalog.pipeline("orders")
    writer = catalog.writer("orders")
    _save(writer, 3, sink=True, delivered=False)
    assert orders.prune(RetentionPolicy(keep_last=1)).retire == (1, 2)
    writer.sink_committed(2, "lake")
    with pytest.raises(CorruptionError, match="none of them can be used: 3: undelivered") as caught:
        writer.recover()
    assert caught.value.details == {"delivered": [2], "maybe_delivered": [], "damaged": []}
    orders.restore(2)
    assert writer.recover().chosen_id == 2


def test_whoever_began_anew_is_not_asked_again(open_again: Opener) -> None:
    """Also when it ended before its first save."""
    catalog = open_again()
    with catalog.writer("orders") as writer:
        _save(writer, 2)
    assert catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1)).retire == (1,)
    writer = catalog.writer("orders")
    with ExitStack() as away:
        for file in data_files(catalog.engine, SOURCE_OFFSETS.name):
            away.enter_context(file.missing())
        with pytest.raises(CorruptionError, match="none of them can be used"):
            writer.recover()
        assert writer.recover(start_over=True).chosen_id is None
    writer.close()
    with catalog.writer("orders") as successor:
        assert successor.recover().chosen_id is None
        _save(successor, 1)
        assert successor.recover().chosen_id == 3


def test_a_writer_that_was_taken_over_is_told_that_first(open_again: Opener) -> None:
    old = open_again().writer("orders")
    _save(old, 1)
    new = open_again().writer("orders")
    with ExitStack() as away:
        for file in data_files(old.engine, SOURCE_OFFSETS.name):
            away.enter_context(file.missing())
        with pytest.raises(FencedError):
            old.recover()
    assert new.recover().chosen_id == 1


# -- words and reports ------------------------------------------------------------------------------------------------


def test_what_to_make_of_failed_sinks_may_be_said_as_text_and_nothing_else(catalog: ld.Catalog) -> None:
    orders = catalog.pipeline("orders")
    writer = catalog.writer("orders")
    _save(writer, 1, sink=True)
    _save(writer, 1, sink=True, delivered=False)
    writer.sink_failed(2, "lake", "down")
    assert orders.recover(failed_sinks="skip", dry_run=True).chosen_id == 1  # type: ignore[arg-type]
    assert orders.recover(failed_sinks="accept", dry_run=True).chosen_id == 2  # type: ignore[arg-type]
    coordinator = Coordinator(writer, [])
    for call in (orders.recover, writer.recover, coordinator.resume, coordinator.reconcile):
        with pytest.raises(InvalidInputError, match="failed_sinks is 'nonsense'"):
            call(failed_sinks="nonsense")  # type: ignore[arg-type]
    assert orders.standing().abandoned == frozenset()


def test_a_preview_of_something_else_is_refused(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        _save(writer, 1)
    with pytest.raises(InvalidInputError, match="'rewnid'"):
        catalog.pipeline("orders").preview("rewnid", 1, reason="r")


def test_recovery_needs_no_table_for_its_report(open_again: Opener) -> None:
    with open_again().writer("orders") as writer:
        _save(writer, 1)
    catalog = open_again()
    writer = catalog.writer("orders")
    destroy(catalog, RECOVERIES.name)
    for report in (catalog.pipeline("orders").recover(), writer.recover()):
        assert (report.chosen_id, report.stored) == (1, False)
        assert "this report is not stored" in report.notes[-1]


# -- all rows gone ----------------------------------------------------------------------------------------------------


def test_all_rows_taken_out_is_not_nothing(catalog: ld.Catalog) -> None:
    orders, store = catalog.pipeline("orders"), ld.DeltaCheckpointStore(catalog, "orders")
    assert (orders.latest(), orders.list(), store.list_ids()) == (None, [], [])
    with catalog.writer("orders") as writer:
        assert (orders.latest(), store.load_latest()) == (None, None)
        _save(writer, 3)
        catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").eq(3))
        # With some rows there it is those that are listed; what recovery chooses is found all the same.
        assert store.list_ids() == [1, 2]
        assert orders.get(3).checkpoint_id == 3
        catalog.engine.delete(MANIFESTS.name, col("pipeline").eq("orders"))
        latest, loaded = orders.latest(), store.load_latest()
        assert latest is not None
        assert latest.checkpoint_id == orders.recover(dry_run=True).chosen_id == 3
        assert loaded == latest == orders.get(3)
        assert store.list_ids() == [head.checkpoint_id for head in orders.list()] == [1, 2, 3]
        assert writer.edit_offsets({"kafka": {"0": "7"}}, reason="the newest").from_id == 3
    # In a catalog as it was then, there was none.
    empty = catalog.as_of(versions={MANIFESTS.name: 0})
    assert empty.pipeline("orders").latest() is None


def test_all_rows_lost_for_good_are_an_error(catalog: ld.Catalog) -> None:
    orders, store = catalog.pipeline("orders"), ld.DeltaCheckpointStore(catalog, "orders")
    with catalog.writer("orders") as writer:
        _save(writer, 2)
    files = data_files(catalog.engine, MANIFESTS.name)
    catalog.engine.delete(MANIFESTS.name, col("pipeline").eq("orders"))
    with ExitStack() as away:
        for file in files:
            away.enter_context(file.missing())
        for look in (orders.latest, orders.list, store.load_latest, store.list_ids, lambda: orders.get(2)):
            with pytest.raises(CorruptionError, match="2"):
                look()
    assert orders.latest() is not None
