"""State goes out and comes in piece by piece, however large it is."""

import hashlib
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.catalog.state import streaming
from laminar_delta.engine.predicate import col
from laminar_delta.interop.laminardb import content
from laminar_delta.model import CheckpointManifest, OperatorCheckpoint
from tests.interop.mover import state
from tests.interop.support import manifest, memory_catalog, write_files

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


@pytest.mark.parametrize("sidecar", [False, True])
def test_an_export_never_holds_a_state_as_a_whole(
    sidecar: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small windows, so that few megabytes are many windows.
    monkeypatch.setattr(streaming, "WINDOW_BYTES", MIB)
    monkeypatch.setattr(streaming, "WHOLE_BYTES", MIB)
    monkeypatch.setattr(streaming, "KEPT_BYTES", MIB)
    monkeypatch.setattr(content, "SPOOLED_BYTES", MIB)
    size = 24
    wanted = hashlib.sha256(b"".join(state(size))).hexdigest()
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    if sidecar:
        whole, some = OperatorCheckpoint.external_at(0, size * MIB), OperatorCheckpoint.external_at(0, 5 * MIB)
        documents = {1: manifest(1, operator_states={"whole": whole, "some": some}, state_checksum=wanted)}
        write_files(tmp_path / "in", documents, {1: b"".join(state(size))})
        interop.import_checkpoints(tmp_path / "in", catalog, "p")
    else:
        with catalog.writer("p") as writer, writer.checkpoint() as cp:
            cp.state("whole", state(size))
    for layout in ("files", "distributed"):
        root = tmp_path / layout
        tracemalloc.start()
        try:
            interop.export_checkpoints(catalog, "p", root, layout=layout)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 12 * MIB
        written = [path for path in root.rglob("*") if path.is_file() and path.stat().st_size == size * MIB]
        assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in written] == [wanted]
        assert interop.inspect_source(root).intact


def test_many_small_states_become_a_sidecar_and_not_a_huge_manifest(tmp_path: Path) -> None:
    catalog = memory_catalog()
    with catalog.writer("p") as writer, writer.checkpoint() as cp:
        for number, data in enumerate(state(9)):
            cp.state("op", data, partition=number)
    interop.export_checkpoints(catalog, "p", tmp_path)
    directory = tmp_path / "checkpoints" / "checkpoint_000001"
    assert (directory / "state.bin").read_bytes() == b"".join(state(9))
    assert (directory / "manifest.json").stat().st_size < 100_000
    document = CheckpointManifest.from_json((directory / "manifest.json").read_bytes())
    assert [(s.external_offset, s.external_length) for _, s in sorted(document.operator_states.items())] == [
        (number * MIB, MIB) for number in range(9)
    ]


def test_state_rows_that_were_deleted_since_still_go_out(tmp_path: Path) -> None:
    catalog = memory_catalog()
    with catalog.writer("p") as writer:
        for number in (1, 2):
            writer.save(manifest(number), {("op", 0): b"state", ("op", 1): b"more"})
    catalog.engine.delete("operator_snapshots", col("partition").eq(1))
    report = interop.export_checkpoints(catalog, "p", tmp_path)
    assert (report.exported, report.skipped) == ((1, 2), ())
    again = memory_catalog()
    interop.import_checkpoints(tmp_path, again, "p")
    assert again.pipeline("p").state(2).read("op/partition-1") == b"more"


@pytest.mark.soak
def test_a_gigabyte_moves_in_bounded_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.mover", str(tmp_path), "1024"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert int(done.stdout) < 256
