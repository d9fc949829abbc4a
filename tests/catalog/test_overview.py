"""What the catalog tells of itself: where pipelines stand, what they take, what happened, what a move would come to."""

import datetime as dt
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog import overview
from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, InvalidInputError, NotFoundError, SessionStateError
from laminar_delta.model import SinkCommitStatus
from tests.support.catalogs import QUICK_ENGINES, ready_made

BLOCK = bytes(range(256)) * 400


@pytest.fixture(params=QUICK_ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ld.Catalog]:
    return ready_made(request.param, tmp_path / "catalog", request)


def _save(writer: Writer, *, state: bytes | None = None, sinks: tuple[str, ...] = ()) -> int:
    with writer.checkpoint() as cp:
        cp.source("kafka", offsets={"0": str(cp.id)})
        if state is not None:
            cp.state("agg", state)
        for sink in sinks:
            cp.sink(sink)
    return cp.id


def test_an_overview_agrees_with_what_is_asked_one_by_one(catalog: ld.Catalog) -> None:
    with catalog.writer("a", owner="job-1") as writer:
        for _ in range(4):
            _save(writer, state=BLOCK, sinks=("x", "y"))
        for number in (1, 2):
            writer.set_sink_statuses(number, dict.fromkeys(("x", "y"), SinkCommitStatus.committed()))
        writer.sink_failed(3, "x", "no")
    holder = catalog.writer("b", owner="job-2")
    _save(holder)
    catalog.writer("c", owner="job-3")
    a, b, c = catalog.overview()
    latest = catalog.pipeline("a").latest()
    assert latest is not None
    assert (a.pipeline, a.latest_id, a.latest_epoch, a.checkpoints) == ("a", 4, 4, 4)
    assert a.latest_at == dt.datetime.fromtimestamp(latest.timestamp_ms / 1000, dt.timezone.utc)
    assert a.latest_size_bytes == latest.size_bytes == len(BLOCK)
    assert (a.sinks_pending, a.sinks_failed, a.delivered_id) == (3, 1, 2)
    assert a.failed_ids == (3,)
    assert (a.generation, a.owner, a.held, a.recoveries) == (1, "job-1", False, 0)
    assert (b.latest_id, b.held, b.owner, b.delivered_id) == (1, True, "job-2", 1)
    assert (c.latest_id, c.checkpoints, c.generation, c.held) == (None, 0, 1, True)
    with catalog.writer("a", owner="job-4") as successor:
        successor.recover()
    catalog.pipeline("a").pin(1, reason="r")
    (a,) = catalog.overview(["a"])
    # What recovery passed over owes nothing any more.
    assert (a.abandoned, a.sinks_pending, a.sinks_failed, a.pinned) == (2, 0, 0, 1)
    assert (a.recoveries, a.last_recovery_chose, a.last_recovery_skipped, a.recovery_damage) == (1, 2, 2, 0)
    catalog.pipeline("a").prune(ld.RetentionPolicy(keep_last=1))
    (a,) = catalog.overview(["a"])
    assert a.retired == 4 - len(catalog.pipeline("a").list())
    assert a.checkpoints == len(catalog.pipeline("a").list())


def test_damage_that_a_recovery_found_is_counted_once(catalog: ld.Catalog) -> None:
    with catalog.writer("a") as writer:
        for _ in range(2):
            _save(writer, state=BLOCK)
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, col("checkpoint_id").eq(2))
    catalog.engine.delete(OPERATOR_DELTAS.name, col("checkpoint_id").eq(2))
    catalog.pipeline("a").recover()
    (a,) = catalog.overview()
    assert (a.recovery_damage, a.recovery_healed > 0) == (0, True)
    assert [report.chosen_id for report in catalog.pipeline("a").recoveries()] == [2]


def test_usage_tells_what_is_live_pinned_and_given_back(catalog: ld.Catalog) -> None:
    with catalog.writer("a") as writer:
        first = _save(writer, state=BLOCK)
        _save(writer, state=BLOCK + b"x" * 100)
        writer.stage(Attempt.new(writer.held, 9), ld.CheckpointManifest.new(9, 9), {("agg", 0): b"staged"})
    (a,) = catalog.usage().pipelines
    assert a.pinned_bytes == a.reclaimable_bytes == 0
    assert a.staged_bytes > 0
    both = a.live_bytes
    assert both > 0
    with catalog.writer("b") as other:
        other.fork("a", first, reason="r")
    catalog.pipeline("a").pin(first, reason="r")
    a, b = catalog.usage().pipelines
    # A fork uses the state of another pipeline where it is.
    assert (b.live_bytes, b.total_bytes) == (0, 0)
    assert 0 < a.pinned_bytes < both == a.live_bytes
    catalog.pipeline("a").unpin(first)
    with catalog.writer("a") as writer:
        _save(writer)
    catalog.pipeline("a").prune(ld.RetentionPolicy(keep_last=1))
    a = catalog.usage().pipelines[0]
    # The first is retired by nobody: the fork needs it.
    assert 0 < a.reclaimable_bytes < both
    assert a.live_bytes + a.reclaimable_bytes == both
    sizes = {table.table: table for table in catalog.usage().tables}
    state = sizes["operator_snapshots"].size_bytes + sizes["operator_deltas"].size_bytes
    assert state == a.total_bytes
    assert sizes["manifests"].files == catalog.engine.sizes("manifests")[0].files
    with pytest.raises(SessionStateError):
        catalog.as_of(versions={"manifests": 1}).usage()


def test_state_small_enough_for_the_manifest_counts_like_any_other(catalog: ld.Catalog) -> None:
    with catalog.writer("a") as writer:
        small = _save(writer, state=b"s" * 10_000)
        with writer.checkpoint() as cp:
            cp.state("agg", b"s" * 3_000)
            cp.state("count", b"c" * 4_000)
            cp.state("large", BLOCK)
    pipeline = catalog.pipeline("a")
    (a,) = catalog.overview()
    assert a.latest_size_bytes == 7_000 + len(BLOCK) == sum(part.length for part in pipeline.describe(cp.id).state)
    tables = {table.table: table.size_bytes for table in catalog.usage().tables}
    files = tables["operator_snapshots"] + tables["operator_deltas"]
    assert catalog.usage().pipelines[0].live_bytes == files + 17_000
    pipeline.pin(small, reason="r")
    assert catalog.usage().pipelines[0].pinned_bytes == 10_000
    pipeline.unpin(small)
    pipeline.prune(ld.RetentionPolicy(keep_last=1))
    (used,) = catalog.usage().pipelines
    assert (used.reclaimable_bytes, used.live_bytes) == (10_000, files + 7_000)


@pytest.mark.parametrize("few", [True, False], ids=["few", "many"])
def test_an_overview_reads_the_inline_state_of_the_latest_only(
    catalog: ld.Catalog, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, count in {"a": 2, "b": 6, "c": 7}.items():
        with catalog.writer(name) as writer:
            for number in range(1, count + 1):
                _save(writer, state=b"s" * 1000 * number)
    catalog.writer("nothing-yet")
    real, read = catalog.engine.scan, list[tuple[str, int]]()

    def scan(table: str, **asked: Any) -> pa.RecordBatchReader:
        found = real(table, **asked)
        if table != MANIFESTS.name or "operators" not in asked["columns"]:
            return found
        rows = found.read_all()
        read.extend((row["pipeline"], row["checkpoint_id"]) for row in rows.to_pylist())
        return rows.to_reader()

    monkeypatch.setattr(catalog.engine, "scan", scan)
    if not few:
        monkeypatch.setattr(overview, "_FEW_IDS", 1)
    sizes = {one.pipeline: one.latest_size_bytes for one in catalog.overview()}
    assert sizes == {"a": 2000, "b": 6000, "c": 7000, "nothing-yet": None}
    # By id, so others' of the same ids come along; never what is below all of them.
    assert sorted(set(read)) == [
        (name, number)
        for name, count in {"a": 2, "b": 6, "c": 7}.items()
        for number in range(1, count + 1)
        if (number in (2, 6, 7) if few else number >= 2)
    ]


def test_maintenance_gives_back_what_usage_said(catalog: ld.Catalog) -> None:
    with catalog.writer("a") as writer:
        for number in range(3):
            _save(writer, state=bytes([number]) * 50_000)
    catalog.pipeline("a").prune(ld.RetentionPolicy(keep_last=1))
    before = catalog.usage().pipelines[0]
    assert before.reclaimable_bytes > 0
    catalog.maintain(ld.MaintenancePolicy(grace=dt.timedelta(0), vacuum=False))
    after = catalog.usage().pipelines[0]
    assert (after.reclaimable_bytes, after.live_bytes) == (0, before.live_bytes)


def test_a_timeline_has_everything_in_order(catalog: ld.Catalog) -> None:
    with catalog.writer("a", owner="job-1", reason="start") as writer:
        _save(writer, sinks=("x",))
        writer.sink_committed(1, "x")
        _save(writer, sinks=("x",))
        writer.sink_failed(2, "x", "disk full")
    with catalog.writer("a", owner="job-2") as writer:
        writer.recover()
        writer.rewind(1, reason="bad deploy")
    catalog.pipeline("a").pin(1, reason="audit", owner="ann")
    found = catalog.pipeline("a").timeline()
    moments = [one.at for one in found if one.at is not None]
    assert moments == sorted(moments)
    assert {(one.kind, one.checkpoint_id) for one in found} == {
        ("takeover", None),
        ("saved", 1),
        ("saved", 2),
        ("sink", 1),
        ("sink", 2),
        ("release", None),
        ("recovery", 1),
        ("decision", 1),
        ("decision", 2),
        ("derived", 3),
    }
    told = {one.what: one for one in found}
    assert told["recovery chose checkpoint 1 of 2"].reason is not None
    assert "passed over 2: undelivered" in str(told["recovery chose checkpoint 1 of 2"].reason)
    assert told["checkpoint 3 made from 1 of pipeline 'a' by rewind"].reason == "bad deploy"
    assert told["sink 'x' of checkpoint 2 is Failed: disk full"].owner == "job-1"
    assert told["checkpoint 2 saved, epoch 2"].owner == "job-1"
    assert told["checkpoint 3 made from 1 of pipeline 'a' by rewind"].owner == "job-2"
    assert (told["pinned: checkpoint 1"].owner, told["pinned: checkpoint 1"].reason) == ("ann", "audit")
    assert catalog.pipeline("nobody").timeline() == []


def test_a_checkpoint_is_described_with_its_state_and_where_it_comes_from(catalog: ld.Catalog) -> None:
    with catalog.writer("a") as writer:
        _save(writer, state=BLOCK)
        _save(writer, state=BLOCK + b"more")
        derived = writer.rewind(1, reason="r").checkpoint_id
    pipeline = catalog.pipeline("a")
    pipeline.pin(1, reason="r")
    one, two, three = (pipeline.describe(number) for number in (1, 2, derived))
    assert (one.is_pinned, one.is_retired, one.derived) == (True, False, None)
    assert [asdict(part) for part in one.state] == [
        {"operator": "agg", "partition": 0, "length": len(BLOCK), "form": "full", "stored_in": (1,)}
    ]
    assert (two.state[0].form, two.state[0].stored_in) == ("delta", (1, 2))
    assert three.derived is not None
    assert (three.derived.how, three.derived.from_id, three.derived.over_id) == ("rewind", 1, 2)
    assert three.manifest == pipeline.get(derived)
    with pytest.raises(NotFoundError):
        pipeline.describe(77)


def test_where_it_was_at_a_time(catalog: ld.Catalog) -> None:
    with catalog.writer("a") as writer:
        for number in (1, 2, 3):
            writer.save(ld.CheckpointManifest.new(number, number, number * 1000))
    pipeline = catalog.pipeline("a")

    def at(ms: int) -> int | None:
        found = pipeline.at(dt.datetime.fromtimestamp(ms / 1000, dt.timezone.utc))
        return None if found is None else found.checkpoint_id

    assert [at(ms) for ms in (999, 1000, 2999, 3000, 10**12)] == [None, 1, 2, 3, 3]
    pipeline.prune(ld.RetentionPolicy(keep_last=1))
    assert [at(ms) for ms in (2999, 3000)] == [None, 3]


@pytest.mark.parametrize("how", ["rewind", "edit", "fork", "undo"])
def test_a_preview_is_what_is_done_afterwards_and_disturbs_nobody(catalog: ld.Catalog, how: str) -> None:
    running = catalog.writer("a", owner="running")
    for _ in range(3):
        _save(running, state=BLOCK)
    running.rewind(1, reason="so that there is something to undo")
    other = catalog.writer("b")
    _save(other)
    edits = {"kafka": {"0": "77", "1": "5"}} if how == "edit" else None
    wanted = {"rewind": 2, "edit": None, "fork": None, "undo": None}[how]
    versions = {name: catalog.engine.version(name) for name in ("writers", "manifests", "source_offsets")}
    told = catalog.pipeline("a").preview(
        how, wanted, reason="r", edits=edits, from_pipeline="b" if how == "fork" else None
    )
    assert {name: catalog.engine.version(name) for name in versions} == versions
    assert told.dry_run
    match how:
        case "rewind":
            done = running.rewind(2, reason="r")
        case "edit":
            assert edits is not None
            done = running.edit_offsets(edits, reason="r")
        case "fork":
            done = running.fork("b", 1, reason="r")
        case _:
            done = running.undo(reason="r")
    assert (told.checkpoint_id, told.from_pipeline, told.from_id, told.over_id) == (
        done.checkpoint_id,
        done.from_pipeline,
        done.from_id,
        done.over_id,
    )
    same = {"timestamp_ms": 0}
    assert {**told.manifest.to_dict(), **same} == {**done.manifest.to_dict(), **same}


def test_a_preview_is_refused_as_the_deed_would_be(catalog: ld.Catalog) -> None:
    pipeline = catalog.pipeline("a")
    with pytest.raises(NotFoundError, match="no checkpoint to derive from"):
        pipeline.preview("edit", reason="r", edits={})
    with catalog.writer("a") as writer:
        _save(writer, sinks=("x",))
    with pytest.raises(ConflictError, match="was not delivered"):
        pipeline.preview("rewind", 1, reason="r")
    assert pipeline.preview("rewind", 1, reason="r", accept_undelivered=True).from_id == 1
    with pytest.raises(ConflictError, match="was not derived"):
        pipeline.preview("undo", reason="r")
    with pytest.raises(InvalidInputError, match="reason"):
        pipeline.preview("rewind", 1, reason=" ", accept_undelivered=True)


def test_orphans_can_be_looked_at_without_touching_them(catalog: ld.Catalog) -> None:
    first = catalog.writer("a")
    _save(first)
    lost = Attempt.new(first.held, 1)
    first.stage(lost, catalog.pipeline("a").get(1))
    assert catalog.pipeline("a").orphans() == ()  # it may be under way
    catalog.writer("a")
    versions = {name: catalog.engine.version(name) for name in ("manifests", "source_offsets")}
    (found,) = catalog.pipeline("a").orphans()
    assert (found.attempt_id, found.checkpoint_id, found.generation) == (lost.attempt_id, 1, 1)
    assert {name: catalog.engine.version(name) for name in versions} == versions
    assert catalog.pipeline("a").remove_orphans() == (found,)
    assert catalog.pipeline("a").orphans() == ()
    assert catalog.pipeline("nobody").orphans() == ()


def test_a_name_that_is_not_there_is_told_with_the_nearest(catalog: ld.Catalog) -> None:
    with pytest.raises(NotFoundError, match="It has none yet"):
        catalog.known_pipeline("orders")
    with catalog.writer("orders") as writer:
        assert catalog.known_pipeline("orders").list() == []
        _save(writer)
    with pytest.raises(NotFoundError, match="Did you mean 'orders'"):
        catalog.known_pipeline("odrers")
