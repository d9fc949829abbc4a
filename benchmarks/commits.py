"""What a commit costs: an append, a save, a read of latest, against files written the way a file-system store writes them."""

import os
import tempfile
from pathlib import Path

import laminar_delta as ld
from benchmarks.measure import measure, show
from laminar_delta.catalog.rows import SaveContext, manifest_table
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine.request import Fence

TIMES = 100


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def run() -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        catalog = ld.open_catalog(str(root / "catalog"))
        writer = catalog.writer("orders")
        document = ld.CheckpointManifest.new(1, 1).to_json()

        def file_save(number: int) -> None:
            directory = root / f"checkpoint_{number}"
            directory.mkdir()
            for target, content in ((directory / "manifest.json", document), (root / "latest.txt", b"checkpoint")):
                fresh = target.with_suffix(".tmp")
                fresh.write_bytes(content)
                _fsync(fresh)
                fresh.replace(target)
                _fsync(target.parent)

        def append(number: int) -> None:
            manifest = ld.CheckpointManifest.new(number + 10, 1)
            rows = manifest_table([(manifest, SaveContext(pipeline="other", attempt_id=str(number)))])
            catalog.engine.append(MANIFESTS.name, rows, fences=[Fence("bench", number + 10)])

        def save(_: int) -> None:
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": "1500", "1": "980"})
                cp.sink("warehouse")
                cp.state("agg", b"x" * 1000)

        show(
            f"{TIMES} commits on a local disk",
            measure("files with fsync", file_save, TIMES),
            [
                measure("fenced append of one row", append, TIMES),
                measure("save: source, sink, 1 KB of state", save, TIMES),
                measure("latest of a pipeline", lambda _: catalog.pipeline("orders").latest(), TIMES),
            ],
        )
