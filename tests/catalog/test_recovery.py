"""Recovery: the newest that proves valid, what was passed over and why, and healing by time travel."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.standing import ABANDONED, standing
from laminar_delta.catalog.statuses import append_statuses
from laminar_delta.catalog.tables import MANIFESTS, RECOVERIES, RETENTION, SINK_STATUSES, SOURCE_OFFSETS
from laminar_delta.engine.predicate import Predicate, col
from laminar_delta.engine.request import TableSpec
from laminar_delta.errors import ConflictError, ErrorCode, FencedError, NotFoundError, StorageError
from laminar_delta.model.status import SinkCommitStatus
from tests.support.catalogs import QUICK_ENGINES, ready_made
from tests.support.faults import failing_appends, unanswered_appends, unreadable

Opener = Callable[[], ld.Catalog]


def _save(catalog: ld.Catalog, count: int, *, sink: bool = False) -> None:
    with catalog.writer("orders", owner="job") as writer:
        for _ in range(count):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": str(100 * cp.id)})
                if sink:
                    cp.sink("warehouse")


def _overwrite(catalog: ld.Catalog, spec: TableSpec, where: Predicate, change: dict[str, Any]) -> None:
    """What a careless UPDATE does: the row goes, another takes its place."""
    rows = catalog.engine.read(spec.name, where=where).to_pylist()
    catalog.engine.delete(spec.name, where)
    catalog.engine.append(spec.name, pa.Table.from_pylist([{**row, **change} for row in rows], schema=spec.schema))


def test_the_newest_valid_checkpoint_is_chosen_and_the_report_kept(catalog: ld.Catalog) -> None:
    _save(catalog, 3)
    report = catalog.pipeline("orders").recover(owner="ops")
    assert (report.chosen_id, report.examined, report.skipped, report.stored) == (3, 3, (), True)
    assert report.manifest == catalog.pipeline("orders").get(3)
    (row,) = catalog.engine.read(RECOVERIES.name).to_pylist()
    assert (row["pipeline"], row["chosen_id"], row["owner"]) == ("orders", 3, "ops")


def test_nothing_saved_is_a_fresh_start_and_says_so(catalog: ld.Catalog) -> None:
    report = catalog.pipeline("orders").recover(dry_run=True)
    assert report.is_fresh_start
    assert not report.stored
    assert catalog.engine.read(RECOVERIES.name).num_rows == 0


def test_a_report_that_cannot_be_kept_does_not_undo_what_was_decided(catalog: ld.Catalog) -> None:
    _save(catalog, 2)
    writer = catalog.writer("orders")
    with failing_appends(catalog.engine, RECOVERIES.name):
        report = writer.recover()
    assert (report.chosen_id, report.stored) == (2, False)
    assert "is not stored" in report.notes[-1]
    with unanswered_appends(catalog.engine, RECOVERIES.name):
        report = writer.recover()
    assert (report.chosen_id, report.stored) == (2, False)
    assert "may not be stored" in report.notes[-1]


def test_a_checkpoint_its_sinks_did_not_get_is_passed_over(catalog: ld.Catalog) -> None:
    _save(catalog, 3, sink=True)
    writer = catalog.writer("orders")
    writer.sink_committed(1, "warehouse")
    writer.sink_failed(2, "warehouse", "disk full")
    orders = catalog.pipeline("orders")
    report = orders.recover(dry_run=True)
    assert report.chosen_id == 1
    assert [(s.checkpoint_id, s.reason) for s in report.skipped] == [
        (3, "undelivered: sink 'warehouse' is Pending"),
        (2, "undelivered: sink 'warehouse' is Failed: disk full"),
    ]
    assert orders.recover(dry_run=True, failed_sinks=FailedSinks.ACCEPT).chosen_id == 2


@pytest.mark.also_on_spark
def test_a_late_status_does_not_bring_back_what_a_successor_passed_over(open_again: Opener) -> None:
    old = open_again().writer("orders", owner="old")
    for _ in range(2):
        with old.checkpoint() as cp:
            cp.sink("warehouse")
    old.sink_committed(1, "warehouse")
    new = open_again().writer("orders", owner="new")
    assert new.recover().chosen_id == 1
    # The zombie's status slips in behind the check, as a process that was paused would write it.
    engine = open_again().engine
    (row,) = engine.read(MANIFESTS.name, where=col("checkpoint_id").eq(2)).to_pylist()
    append_statuses(engine, old.held, row, {"warehouse": SinkCommitStatus.committed()}, ordinal=9)
    assert open_again().pipeline("orders").get(2).sink_commit_statuses["warehouse"].is_committed
    again = new.recover()
    assert again.chosen_id == 1
    assert again.generation == 2
    assert again.skipped[0].checkpoint_id == 2
    assert "abandoned" in again.skipped[0].reason
    words = [row["decision"] for row in engine.read(RETENTION.name).to_pylist()]
    assert sorted(words) == ["abandoned", "resumed"]


@pytest.mark.also_on_spark
@pytest.mark.parametrize("damage", ["deleted", "overwritten"])
def test_children_that_were_deleted_or_overwritten_are_healed_from_their_version(
    catalog: ld.Catalog, damage: str
) -> None:
    _save(catalog, 2)
    where = col("checkpoint_id").eq(2)
    if damage == "deleted":
        catalog.engine.delete(SOURCE_OFFSETS.name, where)
    else:
        _overwrite(catalog, SOURCE_OFFSETS, where, {"offsets": [("0", "666")]})
    orders = catalog.pipeline("orders")
    assert not orders.validate(2).valid
    report = orders.recover(dry_run=True)
    assert report.chosen_id == 2
    assert report.manifest is not None
    assert report.manifest.source_offsets["kafka"].offsets == {"0": "200"}
    assert [(h.checkpoint_id, h.table) for h in report.healed] == [(2, SOURCE_OFFSETS.name)]
    assert "rows" in report.healed[0].reason
    # And what recovery chooses is what all others read.
    moment = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
    for read in (orders.get(2), orders.latest(), orders.at(moment), orders.describe(2).manifest):
        assert read == report.manifest
    (moved,) = orders.diff(1, 2).of("offset")
    assert (moved.before, moved.after) == ("100", "200")


def test_a_checkpoint_whose_row_is_gone_is_described_and_not_valid(catalog: ld.Catalog) -> None:
    _save(catalog, 2)
    orders = catalog.pipeline("orders")
    saved = orders.get(2)
    catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").eq(2))
    result = orders.validate(2)
    assert (result.valid, [finding.code for finding in result.findings]) == (False, ["manifest-gone"])
    assert orders.describe(2).manifest == saved
    with pytest.raises(NotFoundError):
        orders.validate(3)


def test_a_changed_manifest_row_is_never_used(catalog: ld.Catalog) -> None:
    _save(catalog, 2)
    _overwrite(catalog, MANIFESTS, col("checkpoint_id").eq(2), {"epoch": 77})
    orders = catalog.pipeline("orders")
    result = orders.validate(2)
    assert not result.valid
    assert result.findings[0].code == "manifest-changed"
    # The row as it was committed is intact in its version.
    report = orders.recover(dry_run=True)
    assert (report.chosen_id, report.healed[0].table) == (2, MANIFESTS.name)
    assert report.manifest is not None
    assert report.manifest.epoch == 2


@pytest.mark.also_on_spark
def test_manifests_deleted_by_sql_are_found_in_their_versions(catalog: ld.Catalog) -> None:
    _save(catalog, 3)
    catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").ge(1))
    orders = catalog.pipeline("orders")
    assert [head.checkpoint_id for head in orders.list()] == [1, 2, 3]
    report = orders.recover(dry_run=True)
    assert (report.chosen_id, report.examined) == (3, 3)
    assert not report.is_fresh_start
    assert sorted(h.checkpoint_id for h in report.healed) == [1, 2, 3]
    assert report.manifest is not None
    assert report.manifest.source_offsets["kafka"].offsets == {"0": "300"}


@pytest.mark.parametrize("table", [MANIFESTS, SOURCE_OFFSETS], ids=lambda spec: spec.name)
def test_what_was_deleted_has_been_committed_all_the_same(catalog: ld.Catalog, table: TableSpec) -> None:
    """Its id is not given out again, and saving it again is answered as if nothing had happened to it."""
    _save(catalog, 3)
    saved = catalog.pipeline("orders").get(3)
    catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").eq(3))
    if table is SOURCE_OFFSETS:
        catalog.engine.delete(table.name, col("checkpoint_id").eq(3))
    writer = catalog.writer("orders")
    assert writer.next_id == 4
    version = catalog.engine.version(MANIFESTS.name)
    assert writer.save(saved).replayed
    with pytest.raises(ConflictError):
        writer.save(replace(saved, watermark=1))
    assert catalog.engine.version(MANIFESTS.name) == version
    assert writer.recover().chosen_id == 3


def test_a_damaged_checkpoint_can_be_pinned(catalog: ld.Catalog) -> None:
    _save(catalog, 3)
    catalog.engine.delete(SOURCE_OFFSETS.name, col("checkpoint_id").eq(1))
    orders = catalog.pipeline("orders")
    orders.pin(1, reason="to be examined")
    assert orders.prune(ld.RetentionPolicy(keep_last=1)).retire == (2,)


def test_a_changed_pipeline_is_reported(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.describe(pipeline_hash=2**64 - 1)
    orders = catalog.pipeline("orders")
    assert orders.recover(dry_run=True, pipeline_hash=2**64 - 1).notes == ()
    (note,) = orders.recover(dry_run=True, pipeline_hash=5).notes
    assert str(2**64 - 1) in note


def test_pins_stand_in_the_order_they_were_decided(catalog: ld.Catalog) -> None:
    _save(catalog, 2)
    orders = catalog.pipeline("orders")
    orders.pin(1, reason="audit", owner="ops")
    orders.pin(1, reason="again", owner="ops")
    orders.unpin(1)
    orders.unpin(1)
    orders.pin(2, reason="audit")
    rows = sorted(catalog.engine.read(RETENTION.name).to_pylist(), key=lambda row: row["ordinal"])
    assert [(row["ordinal"], row["checkpoint_id"], row["decision"]) for row in rows] == [
        (1, 1, "pinned"),
        (2, 1, "released"),
        (3, 2, "pinned"),
    ]
    with pytest.raises(NotFoundError):
        orders.pin(9, reason="never was")


def test_deciding_at_once_never_gives_one_number_twice(open_again: Opener) -> None:
    from concurrent.futures import ThreadPoolExecutor

    _save(open_again(), 4)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: open_again().pipeline("orders").pin(n, reason="x"), range(1, 5)))
    rows = open_again().engine.read(RETENTION.name).to_pylist()
    assert sorted(row["ordinal"] for row in rows) == [1, 2, 3, 4]
    assert sorted(row["checkpoint_id"] for row in rows) == [1, 2, 3, 4]


@pytest.mark.also_on_spark
def test_deciding_on_many_at_once_takes_turns_too(open_again: Opener) -> None:
    """Two who saw the same last decision: one makes several, the other one. Neither goes by what is out of date."""
    from laminar_delta.catalog.decisions import Decision, decide
    from laminar_delta.catalog.standing import PINNED, RETIRED, Standing

    _save(open_again(), 4)
    seen: list[int] = []

    def retire(standing: Standing) -> list[Decision]:
        seen.append(standing.last)
        if len(seen) == 1:
            open_again().pipeline("orders").pin(1, reason="meanwhile")
        return [Decision(checkpoint_id=n, word=RETIRED) for n in (1, 2, 3) if n not in standing.pinned]

    made = decide(open_again().engine, "orders", retire, owner="ops")
    assert [decision.checkpoint_id for decision in made] == [2, 3]
    assert seen == [0, 1]
    rows = sorted(open_again().engine.read(RETENTION.name).to_pylist(), key=lambda row: row["ordinal"])
    assert [(row["ordinal"], row["checkpoint_id"], row["decision"]) for row in rows] == [
        (1, 1, PINNED),
        (2, 2, RETIRED),
        (3, 3, RETIRED),
    ]


def test_a_pin_on_a_retired_checkpoint_is_refused(catalog: ld.Catalog) -> None:
    from laminar_delta.catalog.decisions import Decision, decide
    from laminar_delta.catalog.standing import RETIRED

    _save(catalog, 2)
    decide(catalog.engine, "orders", lambda _: [Decision(checkpoint_id=1, word=RETIRED)], owner="ops")
    orders = catalog.pipeline("orders")
    assert [head.checkpoint_id for head in orders.list()] == [2]
    with pytest.raises(NotFoundError, match="retired"):
        orders.get(1)
    with pytest.raises(ConflictError, match="retired"):
        orders.pin(1, reason="too late")


@pytest.mark.parametrize("engine", QUICK_ENGINES)
@pytest.mark.parametrize("table", [MANIFESTS.name, SOURCE_OFFSETS.name, RETENTION.name, SINK_STATUSES.name])
def test_storage_that_does_not_answer_is_an_error_and_abandons_nothing(
    engine: str, table: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = ready_made(engine, tmp_path / "catalog", request)()
    writer = catalog.writer("orders")
    for _ in range(2):
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": "1"})
            cp.sink("warehouse")
        writer.sink_committed(cp.id, "warehouse")
    with unreadable(catalog.engine, table, code=ErrorCode.UNREACHABLE), pytest.raises(StorageError):
        writer.recover()
    assert standing(writer.reading, "orders").abandoned == frozenset()
    assert writer.recover().chosen_id == 2


def test_a_zombie_abandons_nothing_its_successor_may_go_on_from(open_again: Opener) -> None:
    old = open_again().writer("orders", owner="old")
    with old.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
    new = open_again().writer("orders", owner="new")
    assert new.recover().chosen_id == 1
    # Behind the check, as a process that was paused would write it.
    abandoned = Decision(checkpoint_id=1, word=ABANDONED)
    decide(old.engine, "orders", lambda _: [abandoned], owner="old", generation=old.generation)
    assert standing(new.reading, "orders").abandoned == frozenset()
    assert new.recover().chosen_id == 1
    with pytest.raises(FencedError):
        old.recover()
    # Before the successor has chosen, it is taken into account.
    newer = open_again().writer("orders", owner="newer")
    decide(new.engine, "orders", lambda _: [abandoned], owner="new", generation=new.generation)
    assert newer.recover().chosen_id is None
