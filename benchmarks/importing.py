"""What bringing a checkpoint in costs: one by one, and as an import does it, many to a commit."""

import tempfile
from dataclasses import replace
from pathlib import Path

import laminar_delta as ld
from benchmarks.measure import measure, show
from laminar_delta import interop
from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint

CHECKPOINTS = 1000
TIMES = 3


def _manifest(number: int) -> CheckpointManifest:
    offsets = {"orders": ConnectorCheckpoint.with_offsets(number, {"0": str(number)})}
    return replace(CheckpointManifest.new(number, number), source_offsets=offsets)


def run() -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for number in range(1, CHECKPOINTS + 1):
            directory = root / "tree" / "checkpoints" / f"checkpoint_{number:06}"
            directory.mkdir(parents=True)
            (directory / "manifest.json").write_bytes(_manifest(number).to_json())
        catalog = ld.open_catalog(str(root / "catalog"))
        writer = catalog.writer("one by one")
        one = measure("one save", lambda number: writer.save(_manifest(number + 10)), 50)
        whole = measure(
            f"import of {CHECKPOINTS}",
            lambda number: interop.import_checkpoints(root / "tree", catalog, f"import {number}"),
            TIMES,
        )
        each = replace(whole, name="one of an import", milliseconds=[ms / CHECKPOINTS for ms in whole.milliseconds])
        show(f"A checkpoint comes in: {CHECKPOINTS} of LaminarDB's on a local disk", one, [each, whole])
