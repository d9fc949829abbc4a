"""Taking checkpoints out: what LaminarDB's releases load, the pointer last, and again after an interruption."""

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from pyarrow import fs

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.catalog.state.policy import DEFAULT_POLICY
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError, StorageError
from laminar_delta.interop.laminardb.checksums import inline_digest
from laminar_delta.interop.place import Place
from laminar_delta.interop.writing import Output
from laminar_delta.model import CheckpointManifest, OperatorCheckpoint
from laminar_delta.stores import DeltaCheckpointStore
from tests.interop.support import GOLDEN, fingerprint, manifest, memory_catalog, write_files

LARGE = random.Random(7).randbytes(2 * DEFAULT_POLICY.chunk_bytes)
"""Two megabytes: more than travels inside a manifest."""


@pytest.fixture
def catalog() -> ld.Catalog:
    return memory_catalog()


def _document(root: Path, number: int) -> CheckpointManifest:
    return CheckpointManifest.from_json(
        (root / "checkpoints" / f"checkpoint_{number:06}" / "manifest.json").read_bytes()
    )


def _loads_in_every_release(root: Path, number: int) -> None:
    """Verifies the checksum as 0.18 does, and as newer releases do, from the files alone."""
    document = _document(root, number)
    path = root / "checkpoints" / f"checkpoint_{number:06}" / "state.bin"
    stated = document.state_checksum
    inline = any(not state.external for state in document.operator_states.values())
    external = any(state.external for state in document.operator_states.values())
    if stated is None:
        assert not path.exists()
        assert not external
        return
    data = path.read_bytes()
    assert stated == hashlib.sha256(data).hexdigest()
    mixed = hashlib.sha256(inline_digest(document).encode() + data).hexdigest()
    newer = mixed if inline and external else inline_digest(document) if inline else hashlib.sha256(data).hexdigest()
    assert stated == newer


def test_small_state_of_our_own_goes_inside_the_manifest(tmp_path: Path, catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "7"})
        cp.state("a", b"one")
        cp.state("b", b"")
        cp.sink("s")
    interop.export_checkpoints(catalog, "p", tmp_path)
    document = _document(tmp_path, 1)
    assert {name: state.try_decode_inline() for name, state in document.operator_states.items()} == {
        "a": b"one",
        "b": b"",
    }
    _loads_in_every_release(tmp_path, 1)
    assert (tmp_path / "checkpoints" / "latest.txt").read_bytes() == b"checkpoint_000001"
    again = memory_catalog()
    interop.import_checkpoints(tmp_path, again, "p")
    assert again.pipeline("p").state(1).read("a") == b"one"
    assert again.pipeline("p").get(1).sink_commit_statuses == catalog.pipeline("p").get(1).sink_commit_statuses


def test_large_state_of_our_own_becomes_one_sidecar_that_every_release_accepts(
    tmp_path: Path, catalog: ld.Catalog
) -> None:
    with catalog.writer("p") as writer:
        inline = {"small": OperatorCheckpoint.inline(b"inside")}
        writer.save(
            manifest(1, operator_states=inline), {("large", 0): LARGE, ("parts", 0): b"p0", ("parts", 3): b"p3"}
        )
    interop.export_checkpoints(catalog, "p", tmp_path)
    _loads_in_every_release(tmp_path, 1)
    document = _document(tmp_path, 1)
    data = (tmp_path / "checkpoints" / "checkpoint_000001" / "state.bin").read_bytes()
    cut = {
        name: data[state.external_offset : state.external_offset + state.external_length]
        for name, state in document.operator_states.items()
    }
    assert cut == {"small": b"inside", "large": LARGE, "parts/partition-0": b"p0", "parts/partition-3": b"p3"}
    assert len(data) == sum(map(len, cut.values()))
    assert interop.inspect_source(tmp_path).intact


@pytest.mark.parametrize("inline", [False, True])
def test_a_sidecar_saved_through_the_store_gets_the_digest_of_other_systems(
    inline: bool, tmp_path: Path, catalog: ld.Catalog
) -> None:
    states = {"x": OperatorCheckpoint.external_at(0, 3)}
    if inline:
        states["i"] = OperatorCheckpoint.inline(b"in")
    with DeltaCheckpointStore(catalog, "p") as store:
        store.save_with_state(manifest(1, operator_states=states), [b"B", b"IG"])
    interop.export_checkpoints(catalog, "p", tmp_path)
    _loads_in_every_release(tmp_path, 1)
    assert (tmp_path / "checkpoints" / "checkpoint_000001" / "state.bin").read_bytes() == (
        b"BIGin" if inline else b"BIG"
    )
    text = json.loads((tmp_path / "checkpoints" / "checkpoint_000001" / "manifest.json").read_text())
    assert text["vnode_count"] == 256


def test_two_states_of_one_name_are_refused_rather_than_mixed(tmp_path: Path, catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer:
        inline = {"a/partition-1": OperatorCheckpoint.inline(b"inside")}
        writer.save(manifest(1, operator_states=inline), {("a", 0): b"0", ("a", 1): b"1"})
    report = interop.export_checkpoints(catalog, "p", tmp_path)
    assert report.exported == ()
    assert "two states would be called 'a/partition-1'" in report.skipped[0].reason
    assert interop.export_checkpoints(catalog, "p", tmp_path, layout="distributed").exported == (1,)


def test_a_derived_checkpoint_goes_out_with_the_state_it_uses(tmp_path: Path, catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer:
        writer.save(manifest(1), {("op", 0): b"state"})
        writer.save(manifest(2))
        number = writer.rewind(1, reason="test").checkpoint_id
    interop.export_checkpoints(catalog, "p", tmp_path)
    assert _document(tmp_path, number).operator_states["op"].try_decode_inline() == b"state"
    _loads_in_every_release(tmp_path, number)


def test_checkpoints_of_our_own_in_the_distributed_layout(tmp_path: Path, catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer:
        inline = {"small": OperatorCheckpoint.inline(b"inside")}
        for number in (1, 2):
            writer.save(manifest(number, operator_states=inline), {("w/ü", 0): b"p0", ("w/ü", 7): LARGE})
    written = interop.export_checkpoints(catalog, "p", tmp_path, layout="distributed")
    seen = interop.inspect_source(tmp_path)
    assert seen.intact
    assert [one.name for one in seen.checkpoints] == sorted(one.name for one in seen.checkpoints)
    assert seen.chosen == written.latest
    again = memory_catalog()
    interop.import_checkpoints(tmp_path, again, "p")
    state = again.pipeline("p").state(2)
    assert (state.read("w/ü", 7), state.read("small"), state.read("w/ü")) == (LARGE, b"inside", b"p0")
    assert again.pipeline("p").get(2).source_offsets["orders"].offsets == {"0": "20"}
    # The same names in every run, so that one that was interrupted can be completed.
    assert interop.export_checkpoints(catalog, "p", tmp_path, layout="distributed").files_written == 0


def test_what_a_layout_has_no_place_for_is_said(tmp_path: Path, catalog: ld.Catalog) -> None:
    interop.import_checkpoints(GOLDEN / "fs" / "full", catalog, "p")
    report = interop.export_checkpoints(catalog, "p", tmp_path, layout="distributed", checkpoints=[7])
    assert any(note.startswith("inflight_data of 1 checkpoints is not exported") for note in report.notes)


def test_deltas_of_another_system_are_not_passed_off_as_state(tmp_path: Path, catalog: ld.Catalog) -> None:
    interop.import_checkpoints(GOLDEN / "v2" / "default", catalog, "p")
    report = interop.export_checkpoints(catalog, "p", tmp_path / "files")
    assert report.exported == (1,)
    assert "deltas of operator 'window-agg'" in report.skipped[0].reason or "'join'" in report.skipped[0].reason
    assert report.latest == "1"
    assert interop.inspect_source(tmp_path / "files").intact
    with_parent_missing = interop.export_checkpoints(
        catalog, "p", tmp_path / "some", layout="distributed", checkpoints=[2]
    )
    assert with_parent_missing.exported == ()
    assert "against checkpoint 1, which is not exported" in with_parent_missing.skipped[0].reason


@pytest.mark.parametrize("layout", interop.LAYOUTS)
def test_the_pointer_comes_last_and_an_interrupted_export_is_completed(
    layout: str, tmp_path: Path, catalog: ld.Catalog
) -> None:
    write_files(tmp_path / "in", {n: manifest(n) for n in (1, 2, 3)}, {2: b"state"})
    interop.import_checkpoints(tmp_path / "in", catalog, "p")
    order: list[str] = []
    real = Output._put

    def put(self: Output, name: str, pieces: object) -> None:
        if len(order) == 3:
            raise OSError("no space left on device")
        order.append(name)
        real(self, name, pieces)  # type: ignore[arg-type]

    with patch.object(Output, "_put", put), pytest.raises(StorageError, match="no space left"):
        interop.export_checkpoints(catalog, "p", tmp_path / "out", layout=layout)
    assert not any("latest" in path.name for path in (tmp_path / "out").rglob("*"))
    order.clear()

    def note(self: Output, name: str, pieces: object) -> None:
        order.append(name)
        real(self, name, pieces)  # type: ignore[arg-type]

    with patch.object(Output, "_put", note):
        report = interop.export_checkpoints(catalog, "p", tmp_path / "out", layout=layout)
    assert report.files_unchanged == 3
    assert "latest" in order[-1]
    assert not any("latest" in name for name in order[:-1])
    assert not list((tmp_path / "out").rglob("*.tmp"))
    assert interop.inspect_source(tmp_path / "out").intact


@pytest.mark.parametrize("local", [True, False])
def test_a_file_that_could_not_be_finished_is_not_there(local: bool, tmp_path: Path) -> None:
    place = Place.of(tmp_path) if local else Place.of("bucket", fs._MockFileSystem())

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise CorruptionError("the rest is not what was saved")

    output = Output(place)
    with pytest.raises(CorruptionError):
        output.write("a/b", pieces(), sha256="other")
    assert place.entries("a") == []
    output.write("a/b", [b"whole"], sha256=hashlib.sha256(b"whole").hexdigest())
    assert [entry.name for entry in place.entries("a")] == ["b"]
    assert place.read("a/b") == b"whole"


def test_nothing_is_written_among_strangers(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path, {9: manifest(9)})
    before = fingerprint(tmp_path)
    with catalog.writer("p") as writer:
        writer.save(manifest(1))
    with pytest.raises(ConflictError, match="holds checkpoint 9"):
        interop.export_checkpoints(catalog, "p", tmp_path)
    assert fingerprint(tmp_path) == before


def test_other_state_under_the_same_id_is_never_replaced(tmp_path: Path, catalog: ld.Catalog) -> None:
    write_files(tmp_path / "in", {1: manifest(1)}, {1: b"ours"})
    interop.import_checkpoints(tmp_path / "in", catalog, "p")
    write_files(tmp_path / "out", {1: manifest(1)}, {1: b"theirs"})
    with pytest.raises(ConflictError, match="other content"):
        interop.export_checkpoints(catalog, "p", tmp_path / "out")
    assert (tmp_path / "out" / "checkpoints" / "checkpoint_000001" / "state.bin").read_bytes() == b"theirs"


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path, catalog: ld.Catalog) -> None:
    interop.import_checkpoints(GOLDEN / "fs" / "full", catalog, "p")
    planned = interop.export_checkpoints(catalog, "p", tmp_path / "out", dry_run=True)
    assert not (tmp_path / "out").exists()
    done = interop.export_checkpoints(catalog, "p", tmp_path / "out")
    assert (planned.exported, planned.files_written) == (done.exported, done.files_written)


def test_a_damaged_checkpoint_is_left_out_and_the_pointer_is_to_one_that_is_there(
    tmp_path: Path, catalog: ld.Catalog
) -> None:
    with catalog.writer("p") as writer:
        for number in (1, 2):
            writer.save(manifest(number))
    catalog.engine.delete("source_offsets", col("checkpoint_id").eq(2))
    with patch("laminar_delta.interop.laminardb.outgoing.healed", lambda reading, row, read: read(reading)):
        report = interop.export_checkpoints(catalog, "p", tmp_path)
    assert report.exported == (1,)
    assert "source_offsets has 0 of 1 rows" in report.skipped[0].reason
    assert (tmp_path / "checkpoints" / "latest.txt").read_text() == "checkpoint_000001"


def test_what_cannot_be_exported_is_said(tmp_path: Path, catalog: ld.Catalog) -> None:
    with pytest.raises(NotFoundError, match="no checkpoints to export"):
        interop.export_checkpoints(catalog, "p", tmp_path)
    with catalog.writer("p") as writer:
        writer.save(manifest(1))
    with pytest.raises(NotFoundError, match="no checkpoint 2 to export"):
        interop.export_checkpoints(catalog, "p", tmp_path, checkpoints=[1, 2])
    with pytest.raises(InvalidInputError, match="no layout 'zip'"):
        interop.export_checkpoints(catalog, "p", tmp_path, layout="zip")
    assert not list(tmp_path.iterdir())


def test_exports_and_looks_tell_how_far_they_are(tmp_path: Path, catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer:
        for number in (1, 2, 3):
            writer.save(manifest(number))
    told: list[tuple[int, int]] = []
    interop.export_checkpoints(catalog, "p", tmp_path, progress=lambda *at: told.append(at))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    told.clear()
    interop.inspect_source(tmp_path, progress=lambda *at: told.append(at))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
