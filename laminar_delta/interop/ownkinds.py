"""Looking at what is of our own kind: a catalog, and a single LCB1 batch. They are inspected, not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.opening import open_catalog
from laminar_delta.codec import decode_batch, parse_header
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.interop.laminardb.layout import parse_batch_name
from laminar_delta.interop.place import Place
from laminar_delta.interop.reports import CheckpointSummary, Inspection

if TYPE_CHECKING:
    from collections.abc import Callable

    from laminar_delta.catalog.pipeline import Pipeline

CATALOG = "laminar-delta-catalog"
BATCH = "lcb1-batch"


def is_catalog(place: Place) -> bool:
    """Whether a place is one of our catalogs."""
    return any(entry.name == "_delta_log" for entry in place.entries("manifests"))


def inspect_catalog(location: str, progress: Callable[[int, int], None] | None = None) -> Inspection:
    """The checkpoints of all pipelines of a catalog, each examined."""
    catalog = open_catalog(location, create=False)
    found: list[CheckpointSummary] = []
    names = catalog.pipelines()
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names))
        pipeline = catalog.pipeline(name)
        found.extend(_summary(pipeline, head.checkpoint_id) for head in pipeline.list())
    return Inspection(
        kind=CATALOG,
        location=catalog.engine.location,
        checkpoints=tuple(found),
        chosen=next((one.name for one in reversed(found) if one.usable), None) if len(names) == 1 else None,
        details={"pipelines": names, "engine": catalog.engine.name},
    )


def batch_name_of(place: Place) -> str | None:
    """The name of the batch that a place is, when it is a file that begins like one; None otherwise."""
    parent, _, name = place.root.rpartition("/")
    above = Place(place.filesystem, parent, place.limits)
    try:
        return name if name and above.beginning(name, 4) == b"LCB1" else None
    except LaminarDeltaError:
        return None


def inspect_batch(place: Place, name: str) -> Inspection:
    """A batch in a file: its entries, or what is wrong with it."""
    above = Place(place.filesystem, place.root.rpartition("/")[0], place.limits)
    payload = above.read(name, limit=place.limits.batch_bytes)
    details: dict[str, object] = {}
    problems: tuple[str, ...] = ()
    raw_length = 0
    try:
        header = parse_header(payload)
        entries = decode_batch(payload, max_bytes=place.limits.batch_bytes)
        raw_length = header.raw_length
        details = {"version": header.version, "entries": {entry.key: len(entry.data) for entry in entries}}
    except LaminarDeltaError as error:
        problems = (error.message,)
    one = CheckpointSummary(
        name=name,
        checkpoint_id=None,
        epoch=parse_batch_name(name),
        timestamp_ms=None,
        state_bytes=raw_length,
        problems=problems,
        usable=not problems,
    )
    chosen = name if one.usable else None
    return Inspection(kind=BATCH, location=place.root, checkpoints=(one,), chosen=chosen, details=details)


def _summary(pipeline: Pipeline, number: int) -> CheckpointSummary:
    result = pipeline.validate(number)
    try:
        manifest = pipeline.get(number)
    except LaminarDeltaError:
        manifest = None
    return CheckpointSummary(
        name=f"{pipeline.name}/{number}",
        checkpoint_id=number,
        epoch=None if manifest is None else manifest.epoch,
        timestamp_ms=None if manifest is None else manifest.timestamp_ms,
        state_bytes=0 if manifest is None else manifest.size_bytes,
        problems=result.issues,
        usable=result.valid,
    )
