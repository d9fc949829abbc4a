"""The fourteen methods: what each answers, and what a caller can count on."""

import datetime as dt
import inspect
import io
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import MANIFESTS, RETENTION, SINK_STATUSES, WRITERS
from laminar_delta.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorCode,
    InvalidInputError,
    NotFoundError,
    SessionStateError,
)
from laminar_delta.model import (
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    SinkCommitStatus,
)
from laminar_delta.stores import DeltaCheckpointStore
from tests.stores.support import COMMITTED, PENDING, PIPELINE, Opener, StoreOpener, destroy, manifest, with_sinks
from tests.support.harnesses import MemoryHarness

TRAIT = {
    "save",
    "save_with_state",
    "save_state_data",
    "load_state_data",
    "load_latest",
    "load_by_id",
    "list",
    "list_ids",
    "update_manifest",
    "prune",
    "validate_checkpoint",
    "recover_latest_validated",
    "cleanup_orphans",
    "vnode_count",
}


def test_the_methods_are_those_of_the_trait_by_their_own_names() -> None:
    public = {name for name, _ in inspect.getmembers(DeltaCheckpointStore) if not name.startswith("_")}
    assert public - {"close"} == TRAIT
    assert not any(inspect.iscoroutinefunction(getattr(DeltaCheckpointStore, name)) for name in TRAIT)


def test_a_manifest_comes_back_as_it_was_saved(store: DeltaCheckpointStore) -> None:
    full = manifest(
        7,
        epoch=5,
        table_offsets={"rates": ConnectorCheckpoint(offsets={"lsn": "0/AB"}, epoch=5, metadata={"slot": "s"})},
        sink_epochs={"pg": 4},
        sink_commit_statuses={"pg": SinkCommitStatus.failed("boom")},
        operator_states={"window": OperatorCheckpoint.inline(b"data"), "empty": OperatorCheckpoint()},
        inflight_data={"join": (InFlightRecord(input_id=3, data_b64="AA=="),)},
        watermark=-1,
        pipeline_hash=2**64 - 1,
        source_names=("kafka",),
        sink_names=("pg",),
    )
    store.save(full)
    assert store.load_latest() == full
    assert store.load_by_id(7) == full
    assert store.list() == [(7, 5)]
    assert store.list_ids() == [7]


def test_an_empty_store_answers_with_nothing(store: DeltaCheckpointStore) -> None:
    assert store.load_latest() is None
    assert store.load_by_id(1) is None
    assert store.load_state_data(1) is None
    assert store.list() == []
    assert store.list_ids() == []
    assert store.prune(0) == 0
    assert store.cleanup_orphans() == 0
    assert store.recover_latest_validated().is_fresh_start
    assert store.vnode_count() == 256


def test_state_is_its_pieces_joined(store: DeltaCheckpointStore) -> None:
    saved = manifest(1)
    store.save_with_state(saved, [b"ab", b"", b"c"])
    for same in (b"abc", io.BytesIO(b"abc"), iter([b"abc"])):
        store.save_with_state(saved, same)
    assert store.load_state_data(1) == b"abc"
    found = store.load_by_id(1)
    assert found is not None
    assert found.state_checksum is not None
    assert found.state_checksum.startswith("xxh3:")
    assert found == replace(saved, state_checksum=found.state_checksum, size_bytes=3)
    assert store.validate_checkpoint(1).findings == ()


def test_empty_state_is_not_the_same_as_none(store: DeltaCheckpointStore) -> None:
    store.save_with_state(manifest(1), [])
    store.save_with_state(manifest(2), None)
    assert store.load_state_data(1) == b""
    assert store.load_state_data(2) is None
    assert all(store.validate_checkpoint(number).findings == () for number in (1, 2))


def test_state_handed_over_first_becomes_part_of_the_save(open_store: StoreOpener) -> None:
    store, other = open_store(), open_store()
    store.save_state_data(1, [b"replaced"])
    store.save_state_data(1, [b"st", b"ate"])
    assert store.load_state_data(1) == b"state"
    assert other.load_state_data(1) is None
    assert other.list_ids() == []
    store.save(manifest(1))
    assert other.load_state_data(1) == b"state"
    assert other.validate_checkpoint(1).findings == ()
    # Once it is taken it is gone: the next checkpoint has none.
    store.save(manifest(2))
    assert store.load_state_data(2) is None


def test_state_with_the_manifest_beats_state_handed_over_first(store: DeltaCheckpointStore) -> None:
    store.save_state_data(1, [b"first"])
    store.save_with_state(manifest(1), [b"second"])
    assert store.load_state_data(1) == b"second"
    store.save_state_data(1, [b"second"])
    with pytest.raises(ConflictError):
        store.save_state_data(1, [b"first"])


def test_a_save_leaves_as_many_as_the_store_retains(open_store: StoreOpener) -> None:
    store = open_store(max_retained=2)
    for number in range(1, 6):
        store.save(manifest(number))
    assert store.list_ids() == [4, 5]
    # A low id would be the first to go: it stays until the next save above it.
    store.save(manifest(20))
    store.save(manifest(10))
    assert store.list_ids() == [5, 10, 20]
    store.save(manifest(7))
    assert store.list_ids() == [5, 7, 10, 20]
    store.save(manifest(21))
    # One that is retired is committed all the same: saving it again does not bring it back.
    store.save(manifest(3))
    assert store.list_ids() == [20, 21]
    with pytest.raises(ConflictError):
        store.save(manifest(3, epoch=9))


def test_pruning_that_fails_does_not_fail_the_save(
    open_store: StoreOpener, catalog: ld.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(max_retained=1)
    store.save(manifest(1))
    destroy(catalog, RETENTION.name)
    with caplog.at_level(logging.WARNING):
        store.save(manifest(2))
    assert "LDB-6009" in caplog.text
    assert catalog.engine.read(MANIFESTS.name).num_rows == 2


def test_reading_takes_no_generation_and_the_first_write_takes_one(
    open_store: StoreOpener, catalog: ld.Catalog
) -> None:
    reader = open_store(owner="reader")
    for read in (reader.load_latest, reader.list, reader.recover_latest_validated, reader.cleanup_orphans):
        read()
    reader.prune(1)
    reader.validate_checkpoint(1)
    assert catalog.engine.read(WRITERS.name).num_rows == 0
    with open_store(owner="writer") as writer:
        writer.save_state_data(1, [b"x"])
        writer.save(manifest(1))
        writer.save(manifest(2))
    (row,) = catalog.engine.read(WRITERS.name).to_pylist()
    assert (row["generation"], row["owner"]) == (1, "writer")
    assert row["released_at"] is not None


def test_a_closed_store_reads_on_and_writes_no_more(store: DeltaCheckpointStore) -> None:
    store.save(manifest(1))
    store.close()
    store.close()
    assert store.load_latest() == manifest(1)
    with pytest.raises(SessionStateError):
        store.save(manifest(2))
    with pytest.raises(SessionStateError):
        store.save_state_data(2, [b"x"])
    with pytest.raises(SessionStateError):
        store.update_manifest(manifest(1))


def test_a_catalog_as_it_was_is_only_read(open_store: StoreOpener, open_again: Opener) -> None:
    open_store().save(manifest(1))
    catalog = open_again()
    then = {entry.table: entry.version for entry in reversed(catalog.audit())}
    open_store().save(manifest(2))
    was = DeltaCheckpointStore(catalog.as_of(versions=then), "orders")
    assert was.list_ids() == [1]
    for write in (lambda: was.save(manifest(3)), lambda: was.prune(0), was.cleanup_orphans):
        with pytest.raises(SessionStateError):
            write()


def test_threads_saving_one_id_make_one_checkpoint(store: DeltaCheckpointStore, catalog: ld.Catalog) -> None:
    def save(number: int) -> bool:
        try:
            store.save_with_state(manifest(1, watermark=number), [bytes([number])])
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(save, range(4)))
    assert won.count(True) == 1
    assert store.load_state_data(1) == bytes([won.index(True)])
    assert catalog.engine.read(MANIFESTS.name).num_rows == 1


def test_a_save_whose_answer_was_lost_can_be_repeated() -> None:
    harness = MemoryHarness()
    catalog = ld.open_catalog("lost answers", engine="memory", store=harness._store)
    store = DeltaCheckpointStore(catalog, "orders")
    store.save_state_data(1, [b"state"])
    saved = manifest(1, source_offsets={})
    with (
        harness.break_reading(catalog.engine),
        harness.lose_next_answer(catalog.engine),
        pytest.raises(CommitUnknownError),
    ):
        store.save(saved)
    store.save(saved)
    store.save_with_state(saved, [b"state"])
    assert store.load_state_data(1) == b"state"
    assert catalog.engine.read(MANIFESTS.name).num_rows == 1
    assert store.cleanup_orphans() == 0


def test_an_update_adds_statuses_and_nothing_else(store: DeltaCheckpointStore, catalog: ld.Catalog) -> None:
    saved = with_sinks(1, a=PENDING, b=PENDING)
    store.save(saved)
    store.save(manifest(2))
    done = with_sinks(1, a=COMMITTED, b=SinkCommitStatus.failed("disk full"))
    store.update_manifest(done)
    assert store.load_by_id(1) == done
    changes = catalog.engine.read(SINK_STATUSES.name).num_rows
    store.update_manifest(done)
    assert catalog.engine.read(SINK_STATUSES.name).num_rows == changes
    assert store.load_latest() == manifest(2)
    for other in (replace(done, watermark=42), replace(done, epoch=9), replace(done, state_checksum="abc")):
        with pytest.raises(ConflictError, match=r"watermark|epoch|state_checksum"):
            store.update_manifest(other)
    with pytest.raises(ConflictError, match="'c'"):
        store.update_manifest(replace(done, sink_commit_statuses={"c": COMMITTED}))
    with pytest.raises(NotFoundError):
        store.update_manifest(manifest(9))


def test_ids_end_where_a_bigint_does(store: DeltaCheckpointStore) -> None:
    store.save(manifest(2**63 - 1))
    assert store.list_ids() == [2**63 - 1]
    with pytest.raises(InvalidInputError) as caught:
        store.save(manifest(2**63, epoch=1))
    assert caught.value.code is ErrorCode.NUMBER_TOO_LARGE
    with pytest.raises(InvalidInputError) as caught:
        store.load_by_id(2**63)
    assert caught.value.code is ErrorCode.NUMBER_TOO_LARGE


def test_a_store_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path), engine="memory", store={})
    for count in (0, 65536):
        with pytest.raises(InvalidInputError):
            DeltaCheckpointStore(catalog, "orders", vnode_count=count)
    with pytest.raises(InvalidInputError):
        DeltaCheckpointStore(catalog, "orders", max_retained=-1)
    with pytest.raises(InvalidInputError):
        DeltaCheckpointStore(catalog, "")
    with pytest.raises(InvalidInputError):
        DeltaCheckpointStore(catalog, "orders").prune(-1)


def test_an_id_that_maintenance_removed_is_refused_by_everything_that_writes(
    catalog: ld.Catalog, store: DeltaCheckpointStore
) -> None:
    for number in (1, 2, 3):
        store.save_with_state(manifest(number), b"state" * 100)
    store.prune(1)
    assert catalog.maintain(ld.MaintenancePolicy(grace=dt.timedelta(0), vacuum=False)).removed == {PIPELINE: (2,)}
    writes: list[Callable[[], None]] = [
        lambda: store.save(manifest(2)),
        lambda: store.save_with_state(manifest(2), b"state" * 100),
        lambda: store.save_state_data(2, b"state" * 100),
        lambda: store.update_manifest(manifest(2)),
    ]
    for refused in writes:
        with pytest.raises(ConflictError, match="was committed before, and removed"):
            refused()
    assert (store.list_ids(), store.load_state_data(2)) == ([1, 3], None)
