"""Recovery through a store: the quirks of LaminarDB's that are about it, and where a store goes on from."""

from dataclasses import replace
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_SNAPSHOTS, RECOVERIES, RETENTION, SOURCE_OFFSETS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, CorruptionError, LaminarDeltaError
from laminar_delta.model import OperatorCheckpoint, SinkCommitStatus
from laminar_delta.stores import DeltaCheckpointStore
from tests.stores.support import (
    COMMITTED,
    PENDING,
    PIPELINE,
    StoreOpener,
    destroy,
    manifest,
    overwrite,
    spoil_status,
    with_sinks,
)


def _skipped(store: DeltaCheckpointStore) -> tuple[int | None, list[int]]:
    report = store.recover_latest_validated()
    return report.chosen_id, [skipped.checkpoint_id for skipped in report.skipped]


def test_q09_one_rotten_checkpoint_does_not_stop_the_walk(store: DeltaCheckpointStore, catalog: ld.Catalog) -> None:
    store.save(manifest(1))
    store.save(manifest(2, epoch=0))
    store.save(with_sinks(3, a=PENDING))
    store.update_manifest(with_sinks(3, a=SinkCommitStatus.failed("x")))
    spoil_status(catalog, 3)
    report = store.recover_latest_validated()
    assert (report.chosen_id, report.examined) == (1, 3)
    assert [skipped.checkpoint_id for skipped in report.skipped] == [3, 2]
    assert "Delivered?" in report.skipped[0].reason
    assert "epoch or checkpoint_id is 0 — likely corrupted" in report.skipped[1].reason
    assert report.stored
    result = store.validate_checkpoint(3)
    assert not result.valid
    assert "corrupt manifest: " in result.issues[-1]
    assert store.list_ids() == [1, 2, 3]


@pytest.mark.parametrize("table", [MANIFESTS.name, RETENTION.name])
def test_q19_what_cannot_be_read_is_an_error_and_not_nothing(
    store: DeltaCheckpointStore, catalog: ld.Catalog, table: str
) -> None:
    store.save(manifest(1))
    destroy(catalog, table)
    for read in (store.load_latest, store.list_ids, store.recover_latest_validated):
        with pytest.raises(LaminarDeltaError):
            read()
    with pytest.raises(LaminarDeltaError):
        store.load_by_id(1)


def test_q24_nothing_usable_is_no_fresh_start(store: DeltaCheckpointStore, catalog: ld.Catalog) -> None:
    store.save(manifest(1))
    destroy(catalog, SOURCE_OFFSETS.name)
    report = store.recover_latest_validated()
    assert (report.chosen_id, report.examined, report.is_fresh_start) == (None, 1, False)
    with pytest.raises(LaminarDeltaError):
        store.load_latest()


def test_q20_state_that_does_not_decode_is_no_empty_state(store: DeltaCheckpointStore) -> None:
    store.save(manifest(1))
    store.save(manifest(2, operator_states={"op": OperatorCheckpoint(state_b64="not base64!")}))
    store.save(manifest(3, operator_states={"op": OperatorCheckpoint.external_at(0, 5)}))
    store.save_with_state(manifest(4, operator_states={"op": OperatorCheckpoint.external_at(3, 5)}), [b"1234567"])
    assert _skipped(store) == (1, [4, 3, 2])
    words = [store.validate_checkpoint(number).issues for number in (2, 3, 4)]
    assert words == [
        ("inline state of operator 'op' is not base64 [LDB-4004]",),
        ("state of operator 'op' is in state.bin, which was not saved",),
        ("state of operator 'op' ends at byte 8 of state.bin, which has 7",),
    ]


def test_q20_rows_that_are_gone_are_no_empty_state(store: DeltaCheckpointStore, catalog: ld.Catalog) -> None:
    store.save_with_state(manifest(1), [b"state"])
    for table in (OPERATOR_SNAPSHOTS, SOURCE_OFFSETS):
        catalog.engine.delete(table.name, col("checkpoint_id").eq(1))
    result = store.validate_checkpoint(1)
    assert not result.valid
    assert "state.bin referenced by checksum but not found" in result.issues
    # Recovery finds the rows in an earlier version, and so does whoever loads what it chose.
    assert store.recover_latest_validated().chosen_id == 1
    assert store.load_state_data(1) == b"state"
    found = store.load_by_id(1)
    assert found is not None
    assert found.source_offsets == manifest(1).source_offsets
    # With the manifest row gone too, and no other there, that is not the same as having no checkpoint.
    catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").eq(1))
    assert store.list_ids() == [1]
    assert store.recover_latest_validated().chosen_id == 1
    assert store.load_state_data(1) == b"state"


def test_what_no_version_has_any_more_is_an_error(store: DeltaCheckpointStore, catalog: ld.Catalog) -> None:
    """As after the healing window: the version a manifest names is as bad as the newest."""
    store.save_with_state(manifest(1), [b"state"])
    where = col("checkpoint_id").eq(1)
    for table in (OPERATOR_SNAPSHOTS, SOURCE_OFFSETS):
        overwrite(catalog, table, where, {"part_id": "another"})
    (row,) = catalog.engine.read(MANIFESTS.name, where=where).to_pylist()
    children = [{**child, "version": catalog.engine.version(child["table"])} for child in row["children"]]
    digest = row_digest({**row, "children": children}, without=["content_digest"])
    overwrite(catalog, MANIFESTS, where, {"children": children, "content_digest": digest})
    for load in (store.load_by_id, store.load_state_data):
        with pytest.raises(CorruptionError, match=r"0 of [12] rows"):
            load(1)


def test_q23_latest_is_the_newest_that_can_be_had(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    store = open_store()
    for number in (1, 2, 3):
        store.save(manifest(number))
    catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").eq(3))
    assert store.list_ids() == [1, 2]
    assert store.load_latest() == manifest(3)
    assert store.prune(1) == 1
    assert store.load_latest() == manifest(3)
    assert catalog.pipeline(PIPELINE).recover(dry_run=True).chosen_id == 3


def test_latest_that_no_version_has_is_an_error_until_a_writer_passed_over_it(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    store = DeltaCheckpointStore(catalog, PIPELINE, max_retained=0)
    for number in (1, 2):
        store.save(manifest(number))
    catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").eq(2))
    catalog.engine.vacuum(MANIFESTS.name, older_than_hours=0, dry_run=False)
    with pytest.raises(CorruptionError, match="checkpoint 2 of pipeline 'orders', the newest, is lost"):
        store.load_latest()
    store.close()
    with catalog.writer(PIPELINE) as writer:
        assert writer.recover().chosen_id == 1
    assert store.load_latest() == manifest(1)


def test_q25_a_failed_sink_is_not_passed_as_delivered(store: DeltaCheckpointStore) -> None:
    for number in (1, 2):
        store.save(with_sinks(number, a=PENDING))
    store.update_manifest(with_sinks(1, a=COMMITTED))
    store.update_manifest(with_sinks(2, a=SinkCommitStatus.failed("disk full")))
    report = store.recover_latest_validated()
    assert report.chosen_id == 1
    assert "disk full" in report.skipped[0].reason
    assert store.validate_checkpoint(2).valid
    # Driven again, it is delivered after all.
    store.update_manifest(with_sinks(2, a=COMMITTED))
    assert store.recover_latest_validated().chosen_id == 2


def test_q26_a_sink_that_had_delivered_is_recorded_before_anything_is_given_up(open_store: StoreOpener) -> None:
    crashed = open_store(owner="crashed")
    for number in (1, 2):
        crashed.save(with_sinks(number, a=PENDING))
    crashed.update_manifest(with_sinks(1, a=COMMITTED))
    store = open_store(owner="next")
    assert _skipped(store) == (1, [2])
    # The sink says it has checkpoint 2: the process died before that was written down.
    store.update_manifest(with_sinks(2, a=COMMITTED))
    assert _skipped(store) == (2, [])
    store.save(manifest(3))
    assert _skipped(store) == (3, [])


def test_q27_another_pipeline_is_noted(store: DeltaCheckpointStore) -> None:
    store.save(manifest(1, pipeline_hash=2**64 - 1))
    assert store.recover_latest_validated(pipeline_hash=2**64 - 1).notes == ()
    (note,) = store.recover_latest_validated(pipeline_hash=5).notes
    assert str(2**64 - 1) in note


def test_a_recovery_that_was_overtaken_has_to_be_made_again(open_store: StoreOpener) -> None:
    zombie, store = open_store(owner="zombie"), open_store(owner="next")
    zombie.save(manifest(1))
    assert store.recover_latest_validated().chosen_id == 1
    zombie.save(manifest(2))
    for _ in range(2):
        with pytest.raises(ConflictError, match="recover_latest_validated again") as caught:
            store.save(manifest(3, epoch=2))
        assert (caught.value.expected, caught.value.found) == (1, 2)
    assert store.recover_latest_validated().chosen_id == 2
    store.save(manifest(3))
    assert store.list_ids() == [1, 2, 3]


def test_what_a_store_left_behind_does_not_come_back(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    """A late status of the writer before must not bring back a checkpoint that its successor did not go on from."""
    old = open_store(owner="old")
    for number in (1, 2):
        old.save(with_sinks(number, a=PENDING))
    old.update_manifest(with_sinks(1, a=COMMITTED))
    store = open_store(owner="next")
    assert _skipped(store) == (1, [2])
    assert catalog.engine.read(RETENTION.name).num_rows == 0
    store.save(with_sinks(3, a=PENDING))
    resumed, decision = sorted(catalog.engine.read(RETENTION.name).to_pylist(), key=lambda row: row["ordinal"])
    assert (resumed["decision"], resumed["checkpoint_id"]) == ("resumed", 1)
    assert (decision["checkpoint_id"], decision["decision"], decision["generation"]) == (2, "abandoned", 2)
    store.update_manifest(with_sinks(2, a=COMMITTED))
    assert _skipped(store) == (1, [3, 2])


def test_asking_in_the_middle_of_work_gives_nothing_up(store: DeltaCheckpointStore, catalog: ld.Catalog) -> None:
    store.save(with_sinks(1, a=PENDING))
    assert _skipped(store) == (None, [1])
    store.save(with_sinks(2, a=PENDING))
    for number in (1, 2):
        store.update_manifest(with_sinks(number, a=COMMITTED))
    assert _skipped(store) == (2, [])
    assert catalog.engine.read(RETENTION.name).num_rows == 0
    assert catalog.engine.read(RECOVERIES.name).num_rows == 2


def test_a_retired_checkpoint_is_found_by_nobody_until_it_is_restored(
    store: DeltaCheckpointStore, catalog: ld.Catalog
) -> None:
    store.save_with_state(with_sinks(1, a=PENDING), [b"state"])
    store.save(manifest(2))
    assert store.prune(1) == 1
    assert store.load_by_id(1) is None
    assert store.load_state_data(1) is None
    assert store.validate_checkpoint(1).issues == ("manifest not found for checkpoint 1",)
    store.update_manifest(with_sinks(1, a=COMMITTED))
    assert store.list_ids() == [2]
    catalog.pipeline(PIPELINE).restore(1)
    found = store.load_by_id(1)
    assert found is not None
    assert replace(found, state_checksum=None, size_bytes=0) == with_sinks(1, a=COMMITTED)
    assert store.load_state_data(1) == b"state"
