"""Looking before moving: what a place is, what is in it, and whether it is intact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.interop.detecting import KINDS, open_source
from laminar_delta.interop.ownkinds import BATCH, CATALOG, batch_name_of, inspect_batch, inspect_catalog, is_catalog
from laminar_delta.interop.place import Place
from laminar_delta.interop.reports import CheckpointSummary, Inspection, Skipped

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow.fs import FileSystem

    from laminar_delta.interop.importing import Progress
    from laminar_delta.interop.place import Limits


INSPECTED = {**KINDS, CATALOG: "laminar_delta catalog", BATCH: "LCB1 batch of state blobs"}
"""What can be looked at, and what people call it."""


def inspect_source(
    location: str | Path,
    *,
    filesystem: FileSystem | None = None,
    prefix: str = "",
    kind: str | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Reads and verifies everything at a place. Damage is in the report, not an error.

    Args:
        location: A path or URI; with `filesystem`, a path on it.
        filesystem: Any Arrow filesystem.
        prefix: Put before all names of an object-store layout, as LaminarDB does it.
        kind: Which layout it is, one of `KINDS`; found out by default.
        limits: How much of a file is read.
        progress: Told how far it is.

    Raises:
        NotFoundError: Nothing that is known is at that place.
    """
    if kind is None and not prefix:
        place = Place.of(location, filesystem, limits)
        if filesystem is None and is_catalog(place):
            return inspect_catalog(str(location), progress)
        batch = batch_name_of(place)
        if batch is not None:
            return inspect_batch(place, batch)
    source = open_source(location, filesystem=filesystem, prefix=prefix, kind=kind, limits=limits)
    found = []
    candidates = source.candidates()
    for done, candidate in enumerate(candidates):
        if progress is not None:
            progress(done, len(candidates))
        read = source.read(candidate)
        manifest = read.manifest
        found.append(
            CheckpointSummary(
                name=candidate.label,
                checkpoint_id=candidate.number,
                epoch=None if manifest is None else manifest.epoch,
                timestamp_ms=None if manifest is None else manifest.timestamp_ms,
                state_bytes=read.state_bytes,
                problems=read.problems,
                usable=read.usable,
            )
        )
    if progress is not None:
        progress(len(candidates), len(candidates))
    chosen = next((one.name for one in reversed(found) if one.usable), None)
    skipped = []
    for one in reversed(found):
        if one.usable:
            break
        skipped.append(Skipped(name=one.name, reason="; ".join(one.problems)))
    return Inspection(
        kind=source.kind,
        location=source.place.root,
        checkpoints=tuple(found),
        pointer=source.pointer(),
        chosen=chosen,
        skipped=tuple(skipped),
        notes=source.notes(),
        details=source.details(),
    )
