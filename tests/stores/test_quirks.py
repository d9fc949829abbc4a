"""Weaknesses of LaminarDB's own stores, by their numbers in the reference, that this one does not have: saving and pruning."""

from dataclasses import replace

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_SNAPSHOTS, SOURCE_OFFSETS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, FencedError, InvalidInputError
from laminar_delta.model import OperatorCheckpoint, SinkCommitStatus
from laminar_delta.stores import DeltaCheckpointStore
from tests.stores.support import COMMITTED, PENDING, PIPELINE, StoreOpener, manifest, overwrite, with_sinks


def test_q06_a_save_below_latest_does_not_move_it_and_an_old_writer_is_fenced(open_store: StoreOpener) -> None:
    old, new = open_store(owner="old"), open_store(owner="new")
    old.save(with_sinks(5, a=PENDING))
    old.save(manifest(3))
    assert old.load_latest() == with_sinks(5, a=PENDING)
    new.save(manifest(6))
    with pytest.raises(FencedError, match="new") as caught:
        old.save(manifest(7))
    assert (caught.value.expected, caught.value.found) == (1, 2)
    with pytest.raises(FencedError):
        old.update_manifest(with_sinks(5, a=COMMITTED))
    assert new.list_ids() == [3, 5, 6]
    assert new.load_by_id(5) == with_sinks(5, a=PENDING)


def test_q07_the_same_again_succeeds_and_other_content_is_told(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    saved = with_sinks(1, a=PENDING)
    with open_store() as store:
        store.save_with_state(saved, [b"state"])
        version = catalog.engine.version(MANIFESTS.name)
        store.save_with_state(saved, [b"sta", b"te"])
        assert catalog.engine.version(MANIFESTS.name) == version
    # Also for a process that comes later, with another clock and without the state.
    with open_store() as store:
        store.save(replace(saved, timestamp_ms=1))
        for other in (manifest(1), with_sinks(1, a=PENDING, b=PENDING), replace(saved, epoch=2)):
            with pytest.raises(ConflictError, match="epoch"):
                store.save(other)
        with pytest.raises(ConflictError, match="other state"):
            store.save_with_state(saved, [b"other"])
        assert store.load_state_data(1) == b"state"
        assert catalog.engine.read(MANIFESTS.name).num_rows == 1


def test_q08_updates_from_old_copies_lose_nothing(open_store: StoreOpener) -> None:
    store = open_store(max_retained=2)
    store.save(with_sinks(1, a=PENDING, b=PENDING, c=PENDING))
    store.save(manifest(2))
    store.update_manifest(with_sinks(1, a=COMMITTED, b=PENDING, c=PENDING))
    store.update_manifest(with_sinks(1, a=PENDING, b=SinkCommitStatus.failed("x"), c=PENDING))
    # Neither copy knows of the other, a third one knows of none, and a fourth names one sink only.
    store.update_manifest(with_sinks(1, a=PENDING, b=PENDING, c=PENDING))
    store.update_manifest(
        replace(with_sinks(1, a=PENDING, b=PENDING, c=PENDING), sink_commit_statuses={"c": COMMITTED})
    )
    store.update_manifest(with_sinks(1, a=SinkCommitStatus.failed("late"), b=PENDING, c=PENDING))
    found = store.load_by_id(1)
    assert found is not None
    assert found.sink_commit_statuses == {"a": COMMITTED, "b": SinkCommitStatus.failed("x"), "c": COMMITTED}
    # Nor does an update make an old checkpoint the latest, or retire others, or bring one back that is retired.
    assert store.load_latest() == manifest(2)
    store.save(manifest(3))
    assert store.list_ids() == [2, 3]
    store.update_manifest(with_sinks(1, a=COMMITTED, b=COMMITTED, c=COMMITTED))
    assert store.load_by_id(1) is None
    assert store.list_ids() == [2, 3]


def test_q10_every_id_is_listed_once_and_is_the_one_loaded(store: DeltaCheckpointStore, catalog: ld.Catalog) -> None:
    for number in (1, 2):
        store.save(manifest(number))
    # A row copied by hand, exactly and under another id.
    row = catalog.engine.read(MANIFESTS.name, where=col("checkpoint_id").eq(2)).to_pylist()[0]
    copies = [row, {**row, "checkpoint_id": 1}]
    catalog.engine.append(MANIFESTS.name, pa.Table.from_pylist(copies, schema=MANIFESTS.schema))
    assert store.list_ids() == [1, 2]
    for number in (1, 2):
        assert store.load_by_id(number) == manifest(number)
        assert store.validate_checkpoint(number).valid
    assert store.recover_latest_validated().chosen_id == 2


def test_q11_pruning_keeps_what_is_needed(store: DeltaCheckpointStore, catalog: ld.Catalog) -> None:
    store.save(manifest(1))
    store.save(manifest(2))
    store.save(manifest(3, parent_id=2, is_incremental=True))
    store.save(manifest(4))
    catalog.pipeline(PIPELINE).pin(3, reason="audit")
    assert store.prune(9) == 0
    assert store.prune(0) == 1
    assert store.list_ids() == [2, 3, 4]
    assert store.load_latest() == manifest(4)
    assert store.prune(0) == 0
    assert store.load_by_id(1) is None
    assert store.load_state_data(1) is None


def test_q11_pruning_keeps_the_one_that_recovery_would_use(open_store: StoreOpener) -> None:
    """While a sink is down, the newest few are all undelivered: without an older one everything would be lost."""
    store = open_store(max_retained=2)
    store.save(with_sinks(1, a=PENDING))
    store.update_manifest(with_sinks(1, a=COMMITTED))
    for number in range(2, 6):
        store.save(with_sinks(number, a=PENDING))
    assert store.list_ids() == [1, 4, 5]
    assert store.recover_latest_validated().chosen_id == 1
    store.update_manifest(with_sinks(5, a=COMMITTED))
    assert store.prune(2) == 1
    assert store.list_ids() == [4, 5]


def test_q12_what_is_known_is_filled_in_and_what_is_said_stays(store: DeltaCheckpointStore) -> None:
    store.save_with_state(manifest(1), [b"12345"])
    store.save_with_state(manifest(2, size_bytes=99, wal_position=7), [b"12345"])
    store.save(manifest(3, is_incremental=True))
    sizes = [found.size_bytes for number in (1, 2, 3) if (found := store.load_by_id(number))]
    assert sizes == [5, 99, 0]
    assert store.load_by_id(3) == manifest(3, is_incremental=True)
    result = store.validate_checkpoint(3)
    assert (result.valid, result.issues) == (True, ("manifest validation: incremental checkpoint has no parent_id",))


def test_q15_a_late_writer_does_not_touch_committed_state(open_store: StoreOpener) -> None:
    late, winner = open_store(owner="late"), open_store(owner="winner")
    late.save_state_data(1, [b"late"])
    winner.save_with_state(manifest(1), [b"winner"])
    late.save_state_data(1, [b"later still"])
    with pytest.raises((FencedError, ConflictError)):
        late.save(manifest(1))
    with pytest.raises(ConflictError):
        winner.save_state_data(1, [b"another"])
    winner.save(manifest(2))
    with pytest.raises(ConflictError, match="without state"):
        winner.save_state_data(2, [b"afterwards"])
    assert winner.load_state_data(1) == b"winner"
    assert winner.load_state_data(2) is None
    assert winner.validate_checkpoint(1).valid


def test_q16_state_inside_the_manifest_and_beside_it_is_valid(store: DeltaCheckpointStore) -> None:
    inline = {"a": OperatorCheckpoint.inline(b"x")}
    mixed = {**inline, "b": OperatorCheckpoint.external_at(0, 3)}
    store.save_with_state(manifest(1, operator_states=inline), [b"BIG"])
    store.save_with_state(manifest(2, operator_states=mixed), [b"BIG"])
    for number in (1, 2):
        assert store.validate_checkpoint(number).findings == ()
        assert store.load_state_data(number) == b"BIG"


@pytest.mark.parametrize("staged", [False, True], ids=["with state", "staged"])
def test_q21_an_update_from_the_callers_copy_keeps_the_checksum(
    store: DeltaCheckpointStore, catalog: ld.Catalog, staged: bool
) -> None:
    saved = with_sinks(1, a=PENDING)
    if staged:
        store.save_state_data(1, [b"original state"])
        store.save(saved)
    else:
        store.save_with_state(saved, [b"original state"])
    before = store.load_by_id(1)
    assert before is not None
    assert before.state_checksum is not None
    store.update_manifest(with_sinks(1, a=COMMITTED))
    assert store.load_by_id(1) == replace(before, sink_commit_statuses={"a": COMMITTED})
    assert store.validate_checkpoint(1).findings == ()
    chunk = col("checkpoint_id").eq(1) & col("chunk").eq(0)
    wrong = catalog.engine.read(OPERATOR_SNAPSHOTS.name, where=chunk).to_pylist()[0]["data"].replace(b"ori", b"0ri")
    overwrite(catalog, OPERATOR_SNAPSHOTS, chunk, {"data": wrong})
    result = store.validate_checkpoint(1)
    assert not result.valid
    assert any(
        f"state.bin checksum mismatch: expected {before.state_checksum}, got chunk 0 of" in i for i in result.issues
    )


def test_q22_another_vnode_count_is_an_error_unless_rescaling(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    with open_store(vnode_count=128) as small:
        small.save_with_state(manifest(1), [b"state"])
        assert small.load_latest() is not None
        assert small.vnode_count() == 128
    large = open_store()
    loads = (
        large.load_latest,
        lambda: large.load_by_id(1),
        lambda: large.load_state_data(1),
        large.recover_latest_validated,
    )
    for load in loads:
        with pytest.raises(InvalidInputError, match="rescale") as caught:
            load()
        assert (caught.value.expected, caught.value.found) == (256, 128)
    result = large.validate_checkpoint(1)
    assert result.valid
    assert result.issues == ("manifest validation: vnode_count mismatch: checkpoint has 128, runtime expects 256",)
    with pytest.raises(ConflictError, match="vnode_count"):
        large.save_with_state(manifest(1), [b"state"])
    rescaling = open_store(rescale=True)
    assert rescaling.load_state_data(1) == b"state"
    assert rescaling.recover_latest_validated().chosen_id == 1
    rescaling.save(manifest(2))
    assert large.load_latest() == manifest(2)
    # One that does not tell is usable, as LaminarDB's older ones are.
    with catalog.writer(PIPELINE) as writer:
        writer.save(manifest(3))
    assert large.load_latest() == manifest(3)
    assert large.validate_checkpoint(3).issues == (
        "manifest validation: vnode_count is 0 (missing or legacy checkpoint)",
    )


def test_q29_nothing_but_the_manifest_row_decides(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    store = open_store()
    store.save(manifest(1))
    store.save_state_data(2, [b"sealed?"])
    with pytest.raises(InvalidInputError):
        store.save(manifest(2, epoch=2**63, source_offsets={}))
    other = open_store()
    for reader in (store, other):
        assert reader.list_ids() == [1]
        assert reader.load_by_id(2) is None
        assert not reader.validate_checkpoint(2).valid
        assert reader.recover_latest_validated().chosen_id == 1
    # What was staged is still there for the save that succeeds.
    store.save(manifest(2))
    assert other.load_state_data(2) == b"sealed?"
    assert catalog.engine.read(SOURCE_OFFSETS.name).num_rows == 2
