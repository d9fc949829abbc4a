"""Bringing checkpoints in: again, further, from anywhere, next to others, and whole or not at all."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import fs

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, FencedError, InvalidInputError
from laminar_delta.interop import importing, known
from laminar_delta.model import (
    CheckpointId,
    CheckpointManifestV2,
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    SinkCommitStatus,
)
from tests.interop.support import GOLDEN, fingerprint, manifest, memory_catalog, versions, write_files


@pytest.fixture
def catalog() -> ld.Catalog:
    return memory_catalog()


def _tree(tmp_path: Path, *numbers: int) -> Path:
    write_files(tmp_path / "tree", {number: manifest(number) for number in numbers})
    return tmp_path / "tree"


def test_again_changes_nothing_and_goes_on_with_what_is_new(tmp_path: Path, catalog: ld.Catalog) -> None:
    tree = _tree(tmp_path, 1, 2)
    assert interop.import_checkpoints(tree, catalog, "p").imported == (1, 2)
    rows = catalog.engine.read("manifests").to_pylist()
    again = interop.import_checkpoints(tree, catalog, "p")
    assert (again.imported, again.already_there, again.skipped) == ((), 2, ())
    assert catalog.engine.read("manifests").to_pylist() == rows
    write_files(tmp_path / "more", {3: manifest(3)})
    shutil.copytree(tmp_path / "more" / "checkpoints" / "checkpoint_000003", tree / "checkpoints" / "checkpoint_000003")
    assert interop.import_checkpoints(tree, catalog, "p").imported == (3,)
    assert [head.checkpoint_id for head in catalog.pipeline("p").list()] == [1, 2, 3]


def test_ids_epochs_and_timestamps_stay_what_they_were(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path, {7: replace(manifest(7), epoch=70), 1_000_000: manifest(1_000_000)})
    interop.import_checkpoints(tmp_path, catalog, "p")
    heads = {head.checkpoint_id: (head.epoch, head.timestamp_ms) for head in catalog.pipeline("p").list()}
    assert heads == {7: (70, 1_773_000_007_000), 1_000_000: (1_000_000, 1_774_000_000_000)}


def test_a_dry_run_tells_the_same_and_changes_nothing(tmp_path: Path, catalog: ld.Catalog) -> None:
    shutil.copytree(GOLDEN / "fs" / "corrupt", tmp_path / "tree")
    before, at = versions(catalog), fingerprint(tmp_path / "tree")
    planned = interop.import_checkpoints(tmp_path / "tree", catalog, "p", dry_run=True)
    assert versions(catalog) == before
    done = interop.import_checkpoints(tmp_path / "tree", catalog, "p")
    assert replace(done, dry_run=True) == planned
    assert fingerprint(tmp_path / "tree") == at


def test_other_content_under_an_id_that_is_here_is_reported_and_left_alone(tmp_path: Path, catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer:
        writer.save(manifest(2, watermark=5))
    report = interop.import_checkpoints(_tree(tmp_path, 1, 2, 3), catalog, "p")
    assert report.imported == (1, 3)
    assert [(one.name, one.reason) for one in report.skipped] == [
        ("2", "here already, but not the same: checkpoint 2 of pipeline 'p' is committed with another watermark")
    ]
    assert catalog.pipeline("p").get(2).watermark == 5


@pytest.mark.parametrize("other", [b"two", b"longer", b"", None])
def test_other_state_is_another_checkpoint(other: bytes | None, tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path, {1: manifest(1)}, {1: b"one"})
    interop.import_checkpoints(tmp_path, catalog, "p")
    path = tmp_path / "checkpoints" / "checkpoint_000001" / "state.bin"
    path.unlink()
    if other is not None:
        path.write_bytes(other)
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert report.skipped[0].reason == (
        "here already, but not the same: it has another state of operator '__sidecar__' partition 0"
    )


def test_statuses_follow_the_source_and_a_dropped_checksum_is_no_difference(
    tmp_path: Path, catalog: ld.Catalog
) -> None:
    sinks = {"sink_epochs": {"s": 1}, "sink_names": ("s",)}
    first = manifest(1, sink_commit_statuses={"s": SinkCommitStatus.pending()}, state_checksum="", **sinks)
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    write_files(tmp_path, {1: replace(first, state_checksum=empty)}, {1: b""})
    interop.import_checkpoints(tmp_path, catalog, "p")
    assert catalog.pipeline("p").recover(dry_run=True).chosen_id is None
    # As 0.18 updates a manifest: the status is new, and the checksum is lost.
    updated = replace(first, sink_commit_statuses={"s": SinkCommitStatus.committed()}, state_checksum=None)
    (tmp_path / "checkpoints" / "checkpoint_000001" / "manifest.json").write_bytes(updated.to_json())
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert (report.already_there, report.updated, report.skipped) == (1, (1,), ())
    stored = catalog.pipeline("p").get(1)
    assert stored.sink_commit_statuses == {"s": SinkCommitStatus.committed()}
    assert stored.state_checksum == empty
    assert interop.import_checkpoints(tmp_path, catalog, "p").updated == ()


def test_source_offsets_under_table_offsets_are_found(tmp_path: Path, catalog: ld.Catalog) -> None:
    tables = {"orders": ConnectorCheckpoint.with_offsets(1, {"0": "7"}), "dim": ConnectorCheckpoint.new(1)}
    write_files(
        tmp_path,
        {
            1: manifest(1, source_offsets={}, table_offsets=tables, source_names=("orders",)),
            2: manifest(2, source_offsets={}, table_offsets=tables),
            3: manifest(3, table_offsets=tables, source_names=("orders",)),
            4: manifest(4, table_offsets={"dim": tables["dim"]}),
        },
    )
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    pipeline = catalog.pipeline("p")
    assert pipeline.get(1).source_offsets == {"orders": tables["orders"]}
    assert pipeline.get(2).source_offsets == tables
    assert pipeline.get(3).source_offsets["orders"].offsets == {"0": "30"}
    assert pipeline.get(4).source_offsets.keys() == {"orders"}
    assert all(pipeline.get(number).table_offsets for number in (1, 2, 3, 4))
    assert any("source 'orders' stood under table_offsets in 2 checkpoints" in note for note in report.notes)
    # As a directory of LaminarDB's it comes back in as what it is now.
    interop.export_checkpoints(catalog, "p", tmp_path / "out")
    again = memory_catalog()
    interop.import_checkpoints(tmp_path / "out", again, "p")
    assert again.pipeline("p").get(1) == pipeline.get(1)


def test_in_flight_records_keep_their_order(tmp_path: Path, catalog: ld.Catalog) -> None:
    records = tuple(InFlightRecord(input_id=n % 2, data_b64=text) for n, text in enumerate(["Yg==", "YQ==", "", "no!"]))
    write_files(tmp_path, {1: manifest(1, inflight_data={"join": records, "empty": ()})})
    interop.import_checkpoints(tmp_path, catalog, "p")
    assert catalog.pipeline("p").get(1).inflight_data == {"join": records, "empty": ()}
    interop.export_checkpoints(catalog, "p", tmp_path / "out", layout="objects")
    again = memory_catalog()
    interop.import_checkpoints(tmp_path / "out", again, "p")
    assert again.pipeline("p").get(1).inflight_data == {"join": records, "empty": ()}


def test_numbers_beyond_a_bigint_are_skipped_by_name(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(
        tmp_path, {1: replace(manifest(1), epoch=2**63), 2: manifest(2), 3: manifest(3, sink_epochs={"s": 2**64 - 1})}
    )
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert report.imported == (2,)
    assert [one.name for one in report.skipped] == ["1", "3"]
    assert "epoch" in report.skipped[0].reason
    assert str(2**63 - 1) in report.skipped[0].reason
    assert "epoch of sink 's'" in report.skipped[1].reason


def test_a_pipeline_with_a_writer_is_left_to_it_unless_told_otherwise(tmp_path: Path, catalog: ld.Catalog) -> None:
    tree = _tree(tmp_path, 1)
    writer = catalog.writer("p", owner="job-7")
    with pytest.raises(ConflictError, match="job-7"):
        interop.import_checkpoints(tree, catalog, "p")
    writer.save(manifest(9))
    assert interop.import_checkpoints(tree, catalog, "p", takeover=True).imported == (1,)
    with pytest.raises(FencedError):
        writer.save(manifest(10))


def test_an_import_that_did_not_end_is_taken_over_from(tmp_path: Path, catalog: ld.Catalog) -> None:
    dead = catalog.writer("p", reason=importing.REASON)
    assert interop.import_checkpoints(_tree(tmp_path, 1), catalog, "p").imported == (1,)
    with pytest.raises(FencedError):
        dead.save(manifest(2))


def test_from_any_filesystem(tmp_path: Path, catalog: ld.Catalog) -> None:
    memory = fs._MockFileSystem()  # Arrow's filesystem in memory; it has no other
    fs.copy_files(str(GOLDEN / "obj" / "v2_prefix"), "bucket/data", destination_filesystem=memory)
    at = interop.import_checkpoints("bucket/data", catalog, "p", filesystem=memory, prefix="nodes/abc123/")
    assert at.imported == (1, 2, 3, 4, 7, 8, 1234567)
    below = fs.SubTreeFileSystem(str(GOLDEN / "obj"), fs.LocalFileSystem())
    again = interop.import_checkpoints("v2_prefix/nodes/abc123", catalog, "p", filesystem=below)
    assert (again.imported, again.already_there) == ((), 7)
    interop.export_checkpoints(catalog, "p", "bucket/out", filesystem=memory, layout="objects", prefix="x/")
    seen = interop.inspect_source("bucket/out", filesystem=memory, prefix="x/")
    assert (seen.intact, seen.pointer) == (True, '{"checkpoint_id":1234567}')
    uri = (GOLDEN / "obj" / "retained3").as_uri()
    assert interop.inspect_source(uri).chosen == "7"


def test_a_literal_prefix_need_not_end_with_a_slash(tmp_path: Path, catalog: ld.Catalog) -> None:
    shutil.copytree(GOLDEN / "obj" / "retained3" / "manifests", tmp_path / "amanifests")
    shutil.copytree(GOLDEN / "obj" / "retained3" / "checkpoints", tmp_path / "acheckpoints")
    assert interop.import_checkpoints(tmp_path, catalog, "p", prefix="a").imported == (5, 6, 7)


def test_the_directory_named_checkpoints_will_do(catalog: ld.Catalog) -> None:
    assert interop.import_checkpoints(GOLDEN / "fs" / "retained3" / "checkpoints", catalog, "p").imported == (5, 6, 7)
    assert interop.import_checkpoints(GOLDEN / "v2" / "default" / "checkpoints", catalog, "q").imported == (1, 2, 3)


def test_a_kind_can_be_named(tmp_path: Path) -> None:
    assert interop.inspect_source(GOLDEN / "fs" / "retained3", kind="laminardb-objects").kind == "laminardb-objects"
    with pytest.raises(InvalidInputError, match="no kind of source 'flink'"):
        interop.inspect_source(tmp_path, kind="flink")


def test_progress_ends_at_all_of_them(tmp_path: Path, catalog: ld.Catalog) -> None:
    told: list[tuple[int, int]] = []
    interop.import_checkpoints(_tree(tmp_path, 1, 2, 3), catalog, "p", progress=lambda *at: told.append(at))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_vnodes_are_kept_and_lost_fields_are_named(tmp_path: Path, catalog: ld.Catalog) -> None:
    report = interop.import_checkpoints(GOLDEN / "fs" / "other_versions", catalog, "p")
    rows = {row["checkpoint_id"]: row["vnode_count"] for row in catalog.engine.read("manifests").to_pylist()}
    assert rows == {1: None, 2: None, 3: 256, 4: 256}
    assert any("'vnode_map'" in note for note in report.notes)
    interop.export_checkpoints(catalog, "p", tmp_path / "out")
    again = memory_catalog()
    interop.import_checkpoints(tmp_path / "out", again, "p")
    assert {row["checkpoint_id"]: row["vnode_count"] for row in again.engine.read("manifests").to_pylist()} == rows


def test_the_same_remark_is_made_once_however_many_earn_it(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path, {n: manifest(n, is_incremental=True) for n in range(1, 8)})
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert report.notes == (
        "checkpoint 1 and 6 more, up to 7: manifest validation: incremental checkpoint has no parent_id",
    )


def test_what_is_here_is_compared_window_by_window(
    tmp_path: Path, catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "WINDOW", 3)
    tree = _tree(tmp_path, *range(1, 12))
    interop.import_checkpoints(tree, catalog, "p")
    changed = tree / "checkpoints" / "checkpoint_000008" / "manifest.json"
    changed.write_bytes(manifest(8, watermark=1).to_json())
    again = interop.import_checkpoints(tree, catalog, "p")
    assert (again.already_there, [one.name for one in again.skipped]) == (10, ["8"])


def test_batches_stay_small_where_manifests_are_large(
    tmp_path: Path, catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "BATCH_BYTES", 1000)
    states = {"op": OperatorCheckpoint.inline(bytes(600))}
    write_files(tmp_path, {n: manifest(n, operator_states=states) for n in range(1, 7)})
    before = catalog.engine.version("manifests")
    interop.import_checkpoints(tmp_path, catalog, "p")
    # The takeover, and two checkpoints to a commit.
    assert catalog.engine.version("manifests") - before == 1 + 3


# -- many in one commit -----------------------------------------------------------------------------------------------


def test_a_bulk_save_is_all_or_nothing(catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer:
        writer.save(manifest(2))
        with pytest.raises(ConflictError, match="checkpoint 2"):
            save_all(writer, [BulkSave(manifest=manifest(n)) for n in (1, 2, 3)])
        assert [head.checkpoint_id for head in catalog.pipeline("p").list()] == [2]
        with pytest.raises(InvalidInputError, match="same id"):
            save_all(writer, [BulkSave(manifest=manifest(4)), BulkSave(manifest=manifest(4))])
        save_all(writer, [BulkSave(manifest=manifest(n), states={("op", 0): b"x" * n}) for n in (1, 3)])
        assert catalog.pipeline("p").state(3).read("op") == b"xxx"
        assert len(catalog.pipeline("p").remove_orphans(aborted=writer.aborted)) == 3
        assert [catalog.pipeline("p").get(n) for n in (1, 2, 3)] == [manifest(1), manifest(2), manifest(3)]
    old = catalog.writer("p")
    catalog.writer("p")
    with pytest.raises(FencedError):
        save_all(old, [BulkSave(manifest=manifest(5))])


def test_rows_of_a_bulk_save_that_were_deleted_are_healed(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    interop.import_checkpoints(GOLDEN / "fs" / "retained3", catalog, "p")
    catalog.engine.delete("manifests", col("checkpoint_id").eq(7))
    report = catalog.pipeline("p").recover(failed_sinks=FailedSinks.ACCEPT, dry_run=True)
    assert 7 in {healed.checkpoint_id for healed in report.healed}


# -- UUIDs ------------------------------------------------------------------------------------------------------------

_IDS = [CheckpointId(f"019cd000-000{n}-7000-8000-000000000000") for n in range(1, 6)]


def _distributed(root: Path, number: CheckpointId, *, parent: CheckpointId | None = None, data: bytes = b"x") -> None:
    kind = "snap" if parent is None else "delta"
    path = root / "checkpoints" / str(number) / "operators" / "op" / f"partition-0.{kind}"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    entry = PartitionSnapshotEntry(
        partition_id=0, is_delta=parent is not None, path=f"operators/op/partition-0.{kind}", size_bytes=len(data)
    )
    document = replace(
        CheckpointManifestV2.new(number, 1, 1000),
        operators={"op": OperatorSnapshotEntry(partitions=(entry,))},
        parent_id=parent,
    )
    (root / "checkpoints" / str(number) / "manifest.json").write_bytes(document.to_json())


def _external(catalog: ld.Catalog) -> dict[int, str]:
    rows = catalog.engine.read("manifests", columns=["checkpoint_id", "external_id"]).to_pylist()
    return {row["checkpoint_id"]: row["external_id"] for row in sorted(rows, key=lambda row: row["checkpoint_id"])}


def test_numbers_are_given_in_uuid_order_above_what_is_there(tmp_path: Path, catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer:
        writer.save(manifest(50))
    for number in (_IDS[2], _IDS[0]):
        _distributed(tmp_path, number)
    assert interop.import_checkpoints(tmp_path, catalog, "p").imported == (51, 52)
    _distributed(tmp_path, _IDS[3])
    assert interop.import_checkpoints(tmp_path, catalog, "p").imported == (53,)
    assert _external(catalog) == {50: None, 51: str(_IDS[0]), 52: str(_IDS[2]), 53: str(_IDS[3])}
    # Between the first two there is no number left, and a later one would make it look newer than it is.
    _distributed(tmp_path, _IDS[1])
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert [(one.name, one.reason) for one in report.skipped] == [
        (str(_IDS[1]), "older than checkpoints that were imported before, and no number is left between them")
    ]


def test_a_damaged_one_keeps_its_place_until_it_is_mended(tmp_path: Path, catalog: ld.Catalog) -> None:
    for number in _IDS[:3]:
        _distributed(tmp_path, number)
    damaged = tmp_path / "checkpoints" / str(_IDS[1]) / "operators" / "op" / "partition-0.snap"
    damaged.write_bytes(b"xx")
    assert interop.import_checkpoints(tmp_path, catalog, "p").imported == (1, 3)
    damaged.write_bytes(b"x")
    assert interop.import_checkpoints(tmp_path, catalog, "p").imported == (2,)
    assert list(_external(catalog).values()) == [str(number) for number in _IDS[:3]]


def test_a_delta_without_its_parent_is_skipped_and_one_against_the_catalog_is_not(
    tmp_path: Path, catalog: ld.Catalog
) -> None:
    _distributed(tmp_path, _IDS[1], parent=_IDS[0])
    _distributed(tmp_path, _IDS[2], parent=_IDS[1])
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert report.imported == ()
    assert [one.reason for one in report.skipped] == [
        f"its deltas are against {_IDS[0]}, which is not there or not usable",
        f"its deltas are against {_IDS[1]}, which is not there or not usable",
    ]
    _distributed(tmp_path, _IDS[0])
    assert interop.import_checkpoints(tmp_path, catalog, "p").imported == (1, 2, 3)
    assert [catalog.pipeline("p").get(n).parent_id for n in (1, 2, 3)] == [None, 1, 2]
    # The source prunes parents under their children; the catalog still has them.
    shutil.rmtree(tmp_path / "checkpoints" / str(_IDS[0]))
    _distributed(tmp_path, _IDS[3], parent=_IDS[2], data=b"4")
    assert interop.import_checkpoints(tmp_path, catalog, "p").imported == (4,)
    chain = interop.state_chain(catalog.pipeline("p"), 4, "op")
    assert [(piece.is_delta, piece.data) for piece in chain] == [
        (False, b"x"),
        (True, b"x"),
        (True, b"x"),
        (True, b"4"),
    ]


def test_a_parent_in_use_is_not_retired(tmp_path: Path, catalog: ld.Catalog) -> None:
    _distributed(tmp_path, _IDS[0])
    _distributed(tmp_path, _IDS[1], parent=_IDS[0])
    interop.import_checkpoints(tmp_path, catalog, "p")
    assert catalog.pipeline("p").prune(RetentionPolicy(keep_last=1)).retire == ()


def test_more_partitions_than_any_limit_all_come_in(tmp_path: Path, catalog: ld.Catalog) -> None:
    root = tmp_path / "checkpoints"
    number = _IDS[0]
    entries = []
    for partition in range(40):
        path = root / f"{number}operators" / "op" / f"partition-{partition}.snap"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([partition]))
        recorded = f"checkpoints/{number}operators/op/partition-{partition}.snap"
        entries.append(PartitionSnapshotEntry(partition_id=partition, is_delta=False, path=recorded, size_bytes=1))
    document = replace(
        CheckpointManifestV2.new(number, 1, 1), operators={"op": OperatorSnapshotEntry(partitions=tuple(entries))}
    )
    (root / f"{number}manifest.json").write_bytes(document.to_json())
    interop.import_checkpoints(tmp_path, catalog, "p")
    state = catalog.pipeline("p").state(1)
    assert state.partitions()["op"] == list(range(40))
    assert [state.read("op", partition) for partition in range(40)] == [bytes([n]) for n in range(40)]
