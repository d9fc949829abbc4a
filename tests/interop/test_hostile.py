"""Sources made to do harm: they get a sentence in a report. Memory is bounded, nothing outside is read, nothing changes."""

import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import fs

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.codec import encode_batch
from laminar_delta.errors import CorruptionError, FormatError, NotFoundError, StorageError
from laminar_delta.interop.place import Place
from laminar_delta.interop.source import take_state
from laminar_delta.model import CheckpointManifestV2, OperatorSnapshotEntry, PartitionSnapshotEntry
from tests.interop.support import manifest, memory_catalog, versions, write_files

MIB = 1 << 20
SMALL = interop.Limits(document_bytes=MIB, state_bytes=4 * MIB, batch_bytes=MIB)
ID = "019cd000-0001-7000-8000-000000000000"


@pytest.fixture
def catalog() -> ld.Catalog:
    return memory_catalog()


def _refused(tree: Path, catalog: ld.Catalog, limits: interop.Limits | None = None) -> str:
    """The reason why the only checkpoint of a tree is not taken; nothing is committed but the writer's coming and going."""
    before = versions(catalog)
    inspected = interop.inspect_source(tree, limits=limits)
    assert not inspected.intact
    assert versions(catalog) == before
    report = interop.import_checkpoints(tree, catalog, "p", limits=limits)
    assert report.imported == ()
    assert len(report.skipped) == 1
    for table in ("operator_snapshots", "source_offsets", "state_batches"):
        assert catalog.engine.version(table) == before[table]
    assert catalog.engine.read("manifests").num_rows == 0
    assert report.skipped[0].reason == inspected.skipped[0].reason
    return report.skipped[0].reason


def _manifest_of(tmp_path: Path, content: bytes) -> Path:
    write_files(tmp_path / "tree", {1: manifest(1)})
    (tmp_path / "tree" / "checkpoints" / "checkpoint_000001" / "manifest.json").write_bytes(content)
    return tmp_path / "tree"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"[" * 500_000, "nested too deep", id="deep arrays"),
        pytest.param(b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "nested too deep", id="deep objects"),
        pytest.param(b'{"version":' + b"9" * 900_000 + b"}", "version", id="a number of a million digits"),
        pytest.param(b'{"version":1e999999,"checkpoint_id":1}', "version", id="a number no double holds"),
        pytest.param(b"\xff\xfe" * 100, "UTF-8", id="not UTF-8"),
        pytest.param(b"\xef\xbb\xbf{}", "syntax error", id="a byte order mark"),
        pytest.param(b"", "syntax error", id="empty"),
        pytest.param(b"\0" * 4096, "syntax error", id="zeros, as after a power loss"),
        pytest.param(b"null", "an object of CheckpointManifest", id="null"),
        pytest.param(manifest(1).to_json()[:-40], "syntax error", id="cut off"),
    ],
)
def test_a_document_that_is_none(content: bytes, reason: str, tmp_path: Path, catalog: ld.Catalog) -> None:
    found = _refused(_manifest_of(tmp_path, content), catalog)
    assert found.startswith("corrupt manifest: ")
    assert reason in found
    assert len(found) < 500


def test_a_document_beyond_the_limit_is_not_read(tmp_path: Path, catalog: ld.Catalog) -> None:
    tree = _manifest_of(tmp_path, b"")
    path = tree / "checkpoints" / "checkpoint_000001" / "manifest.json"
    os.truncate(path, 1 << 40)  # a terabyte that takes no room on the disk
    assert _peak(lambda: _refused(tree, catalog)) < 8 * MIB
    assert f"has {1 << 40} bytes, more than the limit" in _refused(tree, catalog)


def test_a_document_of_too_many_values_is_not_parsed(tmp_path: Path, catalog: ld.Catalog) -> None:
    tree = _manifest_of(tmp_path, manifest(1).to_json()[:-1] + b',"x":[' + b"[]," * (4 * MIB) + b"0]}")
    assert _peak(lambda: _refused(tree, catalog)) < 40 * MIB  # parsed, it takes hundreds
    assert _refused(tree, catalog) == (
        "corrupt manifest: checkpoints/checkpoint_000001/manifest.json holds more than 1000000 values"
    )


def test_state_beyond_the_limit_is_not_read(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path, {1: manifest(1, state_checksum="00")}, {1: b""})
    os.truncate(tmp_path / "checkpoints" / "checkpoint_000001" / "state.bin", 1 << 40)
    assert "more than the limit" in _refused(tmp_path, catalog)


def test_large_state_is_never_in_memory_as_a_whole(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path, {1: manifest(1, state_checksum="00")}, {1: b""})
    os.truncate(tmp_path / "checkpoints" / "checkpoint_000001" / "state.bin", 200 * MIB)
    assert _peak(lambda: _refused(tmp_path, catalog)) < 16 * MIB


def test_state_that_changes_while_it_is_taken_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"x" * (2 * MIB))
    taken = take_state(Place.of(tmp_path), "state")
    assert b"".join(taken.pieces()) == b"x" * (2 * MIB)
    (tmp_path / "state").write_bytes(b"y" * (2 * MIB))
    with pytest.raises(CorruptionError, match="changed while it was read"):
        list(taken.pieces())


def _peak(call: Callable[[], object]) -> int:
    call()  # imports and caches are not counted
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["manifest.json", "state.bin"])
def test_a_link_out_of_the_tree_is_not_followed(name: str, tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path / "tree", {1: manifest(1)}, {1: b"state"})
    path = tmp_path / "tree" / "checkpoints" / "checkpoint_000001" / name
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    assert "symbolic link that leads out of the tree" in _refused(tmp_path / "tree", catalog)


def test_a_directory_linked_from_outside_is_not_followed(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path / "tree", {1: manifest(1)})
    directory = tmp_path / "tree" / "checkpoints" / "checkpoint_000001"
    directory.rename(tmp_path / "outside")
    directory.symlink_to(tmp_path / "outside")
    assert "leads out of the tree" in _refused(tmp_path / "tree", catalog)
    (tmp_path / "tree" / "checkpoints").rename(tmp_path / "elsewhere")
    (tmp_path / "tree" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="leads out of the tree"):
        interop.inspect_source(tmp_path / "tree")


def test_a_link_within_the_tree_is_fine(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path, {1: manifest(1)}, {1: b"state"})
    path = tmp_path / "checkpoints" / "checkpoint_000001" / "state.bin"
    path.rename(tmp_path / "checkpoints" / "kept")
    path.symlink_to(tmp_path / "checkpoints" / "kept")
    assert interop.import_checkpoints(tmp_path, catalog, "p").imported == (1,)


@pytest.mark.parametrize("kind", ["fifo", "directory", "loop"])
def test_what_is_no_file_is_not_opened(kind: str, tmp_path: Path, catalog: ld.Catalog) -> None:
    tree = _manifest_of(tmp_path, b"")
    path = tree / "checkpoints" / "checkpoint_000001" / "manifest.json"
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)  # opening it would wait for a writer for good
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(path)
    assert _refused(tree, catalog)


def test_names_that_are_not_text_and_numbers_that_are_none_are_passed_by(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path, {1: manifest(1)})
    os.mkdir(os.fsencode(tmp_path / "checkpoints") + b"/checkpoint_\xff\xfe")  # noqa: PTH102 - no Path has such a name
    for name in ("checkpoint_²", "checkpoint_1_0", "checkpoint_" + "9" * 200, "checkpoint_٣", "..."):
        (tmp_path / "checkpoints" / name).mkdir()
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert (report.imported, report.skipped) == ((1,), ())


def _distributed(tmp_path: Path, path: str, *, size: int = 4, operator: str = "op") -> Path:
    entry = PartitionSnapshotEntry(partition_id=0, is_delta=False, path=path, size_bytes=size)
    document = CheckpointManifestV2.from_dict({"version": 2, "checkpoint_id": ID, "epoch": 1, "timestamp_ms": 1})
    document = replace(document, operators={operator: OperatorSnapshotEntry(partitions=(entry,))})
    root = tmp_path / "tree" / "checkpoints"
    root.mkdir(parents=True)
    (root / f"{ID}manifest.json").write_bytes(document.to_json())
    (tmp_path / "secret").write_bytes(b"1234")
    (root / "secret").write_bytes(b"1234")
    return tmp_path / "tree"


@pytest.mark.parametrize(
    "path",
    [
        "../../secret",
        "../secret",
        f"checkpoints/{ID}/../../../secret",
        f"{ID}/../secret",
        "operators/../../../../secret",
        "/etc/hostname",
        "file:///etc/hostname",
        "secret\0",
        "",
        "/",
        ".",
        "%2e%2e/secret",
        f"checkpoints/{ID}",
        "..\\..\\secret",
    ],
)
def test_a_recorded_path_leads_nowhere_else(path: str, tmp_path: Path, catalog: ld.Catalog) -> None:
    reason = _refused(_distributed(tmp_path, path), catalog)
    assert reason.startswith("partition 0 of operator 'op': ")
    climbs = ".." in path.split("/") or "\0" in path
    assert ("leads out of the tree" if climbs else "is not there") in reason


@pytest.mark.parametrize("operator", ["..", "../..", "/etc", "a/../../b", "", "\0", "x" * 5000])
def test_an_operators_name_leads_nowhere_else(operator: str, tmp_path: Path, catalog: ld.Catalog) -> None:
    assert _refused(_distributed(tmp_path, "operators/none", operator=operator), catalog)


@pytest.mark.parametrize("name", ["../secret", "a/../../secret", "/etc/hostname", "a//b", ".", "", "a/", "secret\0"])
def test_no_name_leads_out_of_a_place(name: str, tmp_path: Path) -> None:
    """Whoever asks: the last line behind the readers' own checks, also on filesystems that have no links to look at."""
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"1234")
    place = Place.of(tmp_path / "tree")
    for ask in (place.path, place.size, place.read, place.document, place.below):
        with pytest.raises(FormatError, match="no path below"):
            ask(name)


def _many_partitions(tmp_path: Path, count: int, size: int, *, shared: bool) -> Path:
    root = tmp_path / "tree" / "checkpoints"
    (root / f"{ID}operators" / "op").mkdir(parents=True)
    entries = []
    for number in range(count):
        path = f"{ID}operators/op/partition-{0 if shared else number}.snap"
        if not (root / path).exists():
            (root / path).write_bytes(bytes(size))
        entries.append(PartitionSnapshotEntry(partition_id=number, is_delta=False, path=path, size_bytes=size))
    document = CheckpointManifestV2.from_dict({"version": 2, "checkpoint_id": ID, "epoch": 1, "timestamp_ms": 1})
    document = replace(document, operators={"op": OperatorSnapshotEntry(partitions=tuple(entries))})
    (root / f"{ID}manifest.json").write_bytes(document.to_json())
    return tmp_path / "tree"


def test_one_file_is_not_read_as_often_as_a_manifest_likes(tmp_path: Path, catalog: ld.Catalog) -> None:
    tree = _many_partitions(tmp_path, 3, 5, shared=True)
    reason = _refused(tree, catalog)
    assert reason.startswith(f"partition 1 of operator 'op': {ID}operators/op/partition-0.snap is the file of another")


def test_many_small_states_are_not_all_in_memory(tmp_path: Path) -> None:
    tree = _many_partitions(tmp_path, 80, MIB, shared=False)
    assert _peak(lambda: interop.inspect_source(tree)) < 44 * MIB
    found = memory_catalog()
    assert interop.import_checkpoints(tree, found, "p").imported == (1,)
    assert found.pipeline("p").state(1).read("op", 79) == bytes(MIB)


def test_what_begins_like_a_batch_is_not_read_to_find_out(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"something else")
    os.truncate(tmp_path / "x", 200 * MIB)

    def look() -> None:
        with pytest.raises(NotFoundError):
            interop.inspect_source(tmp_path / "x")

    assert _peak(look) < MIB


def test_a_length_that_is_not_the_files_is_said(tmp_path: Path, catalog: ld.Catalog) -> None:
    tree = _distributed(tmp_path, "operators/op/partition-0.snap", size=2**63)
    file = tree / "checkpoints" / f"{ID}operators" / "op" / "partition-0.snap"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"1234")
    assert _refused(tree, catalog).endswith(f"has 4 bytes instead of {2**63}")


def test_an_external_range_beyond_everything_is_a_note(tmp_path: Path, catalog: ld.Catalog) -> None:
    text = manifest(1).to_dict()
    text["operator_states"] = {"op": {"external": True, "external_offset": 2**64 - 1, "external_length": 2**64 - 1}}
    write_files(tmp_path, {1: manifest(1)}, {1: b"state"})
    (tmp_path / "checkpoints" / "checkpoint_000001" / "manifest.json").write_text(json.dumps(text))
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert report.imported == (1,)
    assert report.notes[0].startswith("checkpoint 1: operator 'op' has its state up to byte ")
    assert "which has 5" in report.notes[0]
    assert catalog.pipeline("p").recover(dry_run=True).chosen_id is None
    # There is nothing to cut out for it, so the layout that has a file per operator cannot hold it.
    written = interop.export_checkpoints(catalog, "p", tmp_path / "out", layout="distributed")
    assert (written.exported, written.latest) == ((), None)
    assert "of the sidecar, which has 5" in written.skipped[0].reason


def _with_batch(tmp_path: Path, payload: bytes) -> Path:
    write_files(tmp_path, {1: manifest(1)})
    (tmp_path / "checkpoints" / "batch-000001.lz4").write_bytes(payload)
    return tmp_path


def _bomb() -> bytes:
    """A batch of a quarter megabyte that decompresses to 64."""
    return encode_batch([("k", b"\0" * (64 * MIB))])


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        pytest.param(_bomb(), "above the limit", id="decompression bomb"),
        pytest.param(b"LCB1" + struct.pack("<IIII", 2, 2**32 - 1, 10, 0) + b"\0" * 8, "CRC32C", id="wrong checksum"),
        pytest.param(
            b"LCB1" + struct.pack("<III", 1, 2**32 - 1, 10) + struct.pack("<I", 2**32 - 1) + b"\0",
            "truncated",
            id="huge",
        ),
        pytest.param(b"LCB1", "too short", id="short"),
        pytest.param(b"", "too short", id="empty"),
    ],
)
def test_a_batch_that_is_none(payload: bytes, reason: str, tmp_path: Path, catalog: ld.Catalog) -> None:
    tree = _with_batch(tmp_path, payload)
    report = interop.import_checkpoints(tree, catalog, "p", limits=SMALL)
    assert (report.imported, report.batches) == ((1,), 0)
    assert [one.name for one in report.skipped] == ["batch-000001.lz4"]
    assert reason in report.skipped[0].reason
    assert catalog.engine.version("state_batches") == 0
    assert _peak(lambda: interop.import_checkpoints(tree, catalog, "p", limits=SMALL)) < 8 * MIB


def test_a_directory_with_more_names_than_anyone_reads(tmp_path: Path) -> None:
    write_files(tmp_path, {number: manifest(number) for number in range(1, 8)})
    with pytest.raises(FormatError, match="more than 5 entries"):
        interop.inspect_source(tmp_path, limits=interop.Limits(entries=5))


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    root = tmp_path / "query"
    for name in ("offsets", "commits", "state/0/0"):
        (root / name).mkdir(parents=True)
    for name in ("one", "two", "three"):  # three in each round: without a limit there would be no end
        (root / "state" / "0" / "0" / name).symlink_to(root / "state")
    (root / "metadata").write_text('{"id":"q"}')
    assert interop.inspect_source(root).details == {"query_id": "q", "sources": {}, "state": {}}


def test_a_store_that_does_not_answer_is_an_error_and_one_rotten_file_is_not(
    tmp_path: Path, catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, {1: manifest(1), 2: manifest(2)})
    rotten = tmp_path / "checkpoints" / "checkpoint_000001" / "manifest.json"
    real = Place.read

    def read(self: Place, name: str, *, limit: int | None = None) -> bytes:
        if name.endswith("checkpoint_000001/manifest.json"):
            raise StorageError(f"{rotten} cannot be read: [Errno 5] Input/output error")
        return real(self, name, limit=limit)

    monkeypatch.setattr(Place, "read", read)
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert report.imported == (2,)
    assert "Input/output error" in report.skipped[0].reason
    memory = fs._MockFileSystem()
    fs.copy_files(str(tmp_path), "bucket", destination_filesystem=memory)
    with pytest.raises(StorageError, match="Input/output error"):
        interop.import_checkpoints("bucket", catalog, "q", filesystem=memory)
