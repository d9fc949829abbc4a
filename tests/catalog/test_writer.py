"""Saving: complete or not at all, one writer at a time, every loser told."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import laminar_delta as ld
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.tables import MANIFESTS, SINK_STATUSES, SOURCE_OFFSETS, WRITERS
from laminar_delta.errors import (
    ConflictError,
    ErrorCode,
    FencedError,
    InvalidInputError,
    NotFoundError,
    SessionStateError,
    StorageError,
)
from laminar_delta.model import CheckpointManifest, InFlightRecord, SinkCommitStatus
from tests.support.faults import INTERRUPTS, failing_appends, interrupted_appends

Opener = Callable[[], ld.Catalog]


@pytest.mark.also_on_spark
def test_a_checkpoint_comes_back_with_everything_that_was_put_in(catalog: ld.Catalog) -> None:
    with catalog.writer("orders", owner="job-7") as writer:
        with writer.checkpoint(epoch=42) as cp:
            cp.source("kafka-orders", {"0": "1500", "1": "980"}, watermark=1_700_000_000_000, metadata={"group": "g"})
            cp.table("rates", {"lsn": "0/1"}, epoch=7)
            cp.state("window-agg", b"\x00state")
            cp.sink("warehouse")
            cp.in_flight("join", [InFlightRecord(input_id=2**64 - 1, data_b64="AA==")])
            cp.describe(watermark=-5, pipeline_hash=0xDEADBEEFCAFE1234, wal_position=2**64 - 1)
        found = catalog.pipeline("orders").get(cp.id)
        assert found == replace(cp.manifest(), timestamp_ms=found.timestamp_ms)
        assert found.epoch == 42
        assert found.sink_commit_statuses == {"warehouse": SinkCommitStatus.pending()}
        assert catalog.pipeline("orders").latest() == found


def test_what_the_application_says_of_deltas_of_its_own_is_kept_and_its_parent_too(catalog: ld.Catalog) -> None:
    orders = catalog.pipeline("orders")
    with catalog.writer("orders") as writer:
        writer.checkpoint().commit()
        with writer.checkpoint() as cp:
            cp.state("agg", b"delta")
            cp.describe(is_incremental=True, parent_id=1)
    found = orders.get(2)
    assert (found.is_incremental, found.parent_id) == (True, 1)
    assert orders.prune(ld.RetentionPolicy(keep_last=1)).retire == ()


def test_how_the_catalog_stores_state_does_not_show_in_a_manifest(catalog: ld.Catalog) -> None:
    large = random.Random(1).randbytes(1 << 20)
    with catalog.writer("orders") as writer:
        for last in (b"1", b"2"):
            with writer.checkpoint() as cp:
                cp.state("agg", large + last)
    rows = {row["checkpoint_id"]: row for row in catalog.engine.read(MANIFESTS.name).to_pylist()}
    assert rows[2]["state_needs"] == [1]
    found = catalog.pipeline("orders").get(2)
    assert (found.is_incremental, found.parent_id) == (False, None)


def test_ids_and_latest_go_up(catalog: ld.Catalog) -> None:
    orders = catalog.pipeline("orders")
    assert orders.latest() is None
    assert orders.list() == []
    with catalog.writer("orders") as writer:
        for epoch in range(1, 4):
            with writer.checkpoint(epoch=epoch):
                pass
    assert [(head.checkpoint_id, head.epoch) for head in orders.list()] == [(1, 1), (2, 2), (3, 3)]
    latest = orders.latest()
    assert latest is not None
    assert latest.checkpoint_id == 3
    assert catalog.pipelines() == ["orders"]


def test_an_exception_rolls_back_and_burns_the_id(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        with pytest.raises(ZeroDivisionError), writer.checkpoint() as cp:
            cp.source("s", {"0": "1"})
            raise ZeroDivisionError
        assert catalog.pipeline("orders").latest() is None
        with writer.checkpoint() as after:
            pass
        assert (cp.id, after.id) == (1, 2)
        with pytest.raises(SessionStateError):
            cp.commit()
        with pytest.raises(SessionStateError):
            after.source("late", {})


@pytest.mark.also_on_spark
def test_the_same_content_under_the_same_id_again_changes_nothing(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        with writer.checkpoint() as cp:
            cp.source("s", {"0": "1"})
            cp.sink("warehouse")
        manifest = catalog.pipeline("orders").get(cp.id)
        version = catalog.engine.version(MANIFESTS.name)
        assert writer.save(manifest).replayed
        writer.sink_committed(cp.id, "warehouse")
        assert writer.save(manifest).replayed
        assert catalog.engine.version(MANIFESTS.name) == version
        with pytest.raises(ConflictError, match="source_offsets") as caught:
            writer.save(replace(manifest, source_offsets={}))
        assert caught.value.code is ErrorCode.CONFLICT
        assert len(catalog.pipeline("orders").list()) == 1


@pytest.mark.also_on_spark
def test_a_writer_that_was_taken_over_is_told_by_whom(open_again: Opener) -> None:
    old = open_again().writer("orders", owner="old")
    with old.checkpoint():
        pass
    new = open_again().writer("orders", owner="new", reason="deploy")
    assert (old.generation, new.generation) == (1, 2)
    with pytest.raises(FencedError, match="new") as caught, old.checkpoint():
        pass
    assert (caught.value.expected, caught.value.found) == (1, 2)
    with pytest.raises(FencedError):
        old.sink_committed(1, "warehouse")
    with new.checkpoint() as cp:
        pass
    assert cp.id == 2
    heads = open_again().pipeline("orders").list()
    assert [(head.checkpoint_id, head.generation) for head in heads] == [(1, 1), (2, 2)]


def test_the_start_point_is_read_behind_the_fence(open_again: Opener) -> None:
    """A new writer that had looked before fencing would give out an id its predecessor was still using."""
    old = open_again().writer("orders", owner="old")
    new = open_again().writer("orders", owner="new")
    with pytest.raises(FencedError), old.checkpoint():
        pass
    with new.checkpoint() as cp:
        pass
    ids = [head.checkpoint_id for head in open_again().pipeline("orders").list()]
    assert ids == [cp.id]


def test_a_holder_that_has_not_let_go_is_named_when_takeover_is_not_wanted(open_again: Opener) -> None:
    first = open_again().writer("orders", owner="first")
    with pytest.raises(ConflictError, match="first") as caught:
        open_again().writer("orders", owner="second", takeover=False)
    assert caught.value.found == "first"
    assert caught.value.details["generation"] == 1
    first.close()
    with open_again().writer("orders", owner="second", takeover=False) as second:
        assert second.generation == 2
    with pytest.raises(SessionStateError):
        first.checkpoint()


def test_pipelines_do_not_disturb_one_another(catalog: ld.Catalog) -> None:
    names = ["orders", "a/b c=d%é:", ".."]
    writers = [catalog.writer(name) for name in names]
    for writer in writers:
        with writer.checkpoint() as cp:
            cp.source("s", {"0": writer.pipeline})
    for name in names:
        latest = catalog.pipeline(name).latest()
        assert latest is not None
        assert latest.source_offsets["s"].offsets == {"0": name}
    assert catalog.pipelines() == sorted(names)
    for bad in ("", "x" * 201, "__HIVE_DEFAULT_PARTITION__"):
        with pytest.raises(InvalidInputError):
            catalog.writer(bad)


@pytest.mark.also_on_spark
def test_rivals_for_a_generation_get_one_each(open_again: Opener) -> None:
    open_again()
    start = threading.Barrier(4)

    def take(name: str) -> int:
        catalog = open_again()
        start.wait()
        try:
            return catalog.writer("orders", owner=name).generation
        except FencedError as error:  # taken over before its own takeover was complete
            return int(str(error.expected))

    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(take, "abcd"))
    assert sorted(taken) == [1, 2, 3, 4]
    rows = open_again().engine.read(WRITERS.name).to_pylist()
    assert sorted(row["generation"] for row in rows) == [1, 2, 3, 4]


@pytest.mark.also_on_spark
def test_statuses_are_appended_and_the_current_one_is_derived(catalog: ld.Catalog) -> None:
    with catalog.writer("orders", owner="job") as writer:
        with writer.checkpoint() as cp:
            cp.sink("a")
            cp.sink("b")
        orders = catalog.pipeline("orders")
        writer.sink_failed(cp.id, "a", "disk full")
        assert orders.get(cp.id).sink_commit_statuses["a"] == SinkCommitStatus.failed("disk full")
        writer.sink_committed(cp.id, "a")
        writer.sink_failed(cp.id, "a", "too late")
        statuses = orders.get(cp.id).sink_commit_statuses
        assert statuses == {"a": SinkCommitStatus.committed(), "b": SinkCommitStatus.pending()}
        assert catalog.engine.read(SINK_STATUSES.name).num_rows == 3
        with pytest.raises(NotFoundError, match="nowhere"):
            writer.sink_committed(cp.id, "nowhere")
        with pytest.raises(NotFoundError):
            writer.sink_committed(99, "a")


def test_a_sink_saved_as_committed_stays_so(catalog: ld.Catalog) -> None:
    committed = {"warehouse": SinkCommitStatus.committed()}
    with catalog.writer("orders") as writer:
        manifest = CheckpointManifest.new(1, 1)
        writer.save(replace(manifest, sink_epochs={"warehouse": 1}, sink_commit_statuses=committed))
        writer.sink_failed(1, "warehouse", "too late")
        assert catalog.pipeline("orders").get(1).sink_commit_statuses == committed
        assert writer.recover().chosen_id == 1


def test_children_of_an_attempt_that_never_committed_are_invisible(catalog: ld.Catalog) -> None:
    from laminar_delta.catalog.attempt import Attempt, stage_offsets
    from laminar_delta.catalog.generations import Generation

    writer = catalog.writer("orders", owner="job")
    with writer.checkpoint() as cp:
        cp.source("s", {"0": "1"})
    held = Generation(pipeline="orders", number=writer.generation, owner="job")
    lost = replace(
        cp.manifest(), source_offsets={"s": replace(cp.manifest().source_offsets["s"], offsets={"0": "999"})}
    )
    stage_offsets(catalog.engine, Attempt.new(held, cp.id), lost)
    stage_offsets(catalog.engine, Attempt.new(held, 7), replace(lost, checkpoint_id=7))
    with pytest.raises(InvalidInputError):
        stage_offsets(catalog.engine, Attempt.new(held, 8), lost)
    assert catalog.engine.read(SOURCE_OFFSETS.name).num_rows == 3
    assert catalog.pipeline("orders").get(cp.id).source_offsets["s"].offsets == {"0": "1"}
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [cp.id]
    # The id of the lost attempt is burned: the next writer goes on above it.
    with catalog.writer("orders").checkpoint() as after:
        pass
    assert after.id == 8


def test_an_id_burned_with_nothing_but_state_is_not_given_out_again(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    with writer.checkpoint() as cp:
        cp.state("agg", b"x" * 40_000)
    for number, state in ((4, b"y" * 40_000), (6, b"y" + b"x" * 39_999)):
        with writer.attempting(number) as attempt:
            writer.stage(attempt, CheckpointManifest.new(number, number), {("agg", 0): state})
        assert catalog.writer("orders").next_id == number + 1


def test_an_id_is_burned_by_a_save_that_failed(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    with failing_appends(catalog.engine, MANIFESTS.name), pytest.raises(StorageError):
        writer.save(CheckpointManifest.new(5, 5))
    assert writer.next_id == 6
    with failing_appends(catalog.engine, MANIFESTS.name), pytest.raises(StorageError):
        save_all(writer, [BulkSave(manifest=CheckpointManifest.new(8, 8))])
    assert writer.next_id == 9


def test_an_id_that_is_refused_takes_none_of_the_others_away(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
    for wrong in (2**63, 2**64 - 1):
        too_large = replace(cp.manifest(), checkpoint_id=wrong)
        for save in (
            lambda: writer.save(too_large),  # noqa: B023
            lambda: writer.checkpoint(checkpoint_id=wrong),  # noqa: B023
            lambda: save_all(writer, [BulkSave(manifest=too_large)]),  # noqa: B023
        ):
            with pytest.raises(InvalidInputError, match="checkpoint_id: expected an integer from 0 to"):
                save()
    with writer.checkpoint() as following:
        following.source("kafka", {"0": "2"})
    assert following.id == 2


def test_an_attempt_commits_its_own_checkpoint_of_its_own_pipeline_only(catalog: ld.Catalog) -> None:
    orders, bills = catalog.writer("orders"), catalog.writer("bills")
    with orders.attempting(1) as attempt:
        pass
    with pytest.raises(InvalidInputError) as caught:
        orders.commit(attempt, CheckpointManifest.new(5, 5), ())
    assert (caught.value.expected, caught.value.found) == (5, 1)
    with pytest.raises(InvalidInputError) as caught:
        bills.commit(attempt, CheckpointManifest.new(1, 1), ())
    assert (caught.value.expected, caught.value.found) == ("bills", "orders")
    assert catalog.engine.read(MANIFESTS.name).num_rows == 0
    orders.commit(attempt, CheckpointManifest.new(1, 1), ())
    orders.save(CheckpointManifest.new(5, 5))
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1, 5]


def test_every_commit_says_who_and_what(catalog: ld.Catalog) -> None:
    with catalog.writer("orders", owner="job-7", reason="nightly") as writer, writer.checkpoint(epoch=3) as cp:
        cp.source("s", {"0": "1"})
    saved = catalog.engine.history(MANIFESTS.name)[0].metadata
    assert (saved["operation"], saved["pipeline"], saved["checkpoint"]) == ("save", "orders", cp.id)
    assert (saved["owner"], saved["generation"]) == ("job-7", 1)
    told = [entry.metadata.get("operation") for entry in catalog.engine.history(MANIFESTS.name)]
    assert told[:2] == ["save", "takeover"]
    assert [e.metadata["operation"] for e in catalog.engine.history(WRITERS.name)[:2]] == ["release", "claim"]
    assert catalog.engine.history(SOURCE_OFFSETS.name)[0].metadata["attempt"] == saved["attempt"]


@pytest.mark.also_on_spark
@pytest.mark.parametrize("error", INTERRUPTS)
def test_an_interrupt_around_the_commit_is_neither_success_nor_failure(
    catalog: ld.Catalog, error: type[BaseException]
) -> None:
    writer = catalog.writer("orders")
    cp = writer.checkpoint()
    with interrupted_appends(catalog.engine, MANIFESTS.name, error), pytest.raises(error), cp:
        cp.source("kafka", {"0": "1"})
    assert writer.aborted == frozenset()
    manifest = catalog.pipeline("orders").get(cp.id)
    with pytest.raises(ConflictError):
        writer.save(replace(manifest, epoch=manifest.epoch + 1))
    assert writer.save(manifest).replayed
    assert catalog.pipeline("orders").remove_orphans(aborted=writer.aborted) == ()
    assert catalog.pipeline("orders").validate(cp.id).valid
