"""Telling what lies at a place, by the names found there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from laminar_delta.engine.local.place import local_path
from laminar_delta.errors import InvalidInputError, NotFoundError
from laminar_delta.interop.laminardb.distributed import LATEST, DistributedSource
from laminar_delta.interop.laminardb.incremental import IncrementalSource, is_incremental
from laminar_delta.interop.laminardb.layout import LATEST_TEXT, Layout, parse_checkpoint_name, parse_manifest_name
from laminar_delta.interop.laminardb.numbered import NumberedSource, ObjectSource
from laminar_delta.interop.place import Entry, Limits, Place
from laminar_delta.interop.sparkdir import SparkSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow.fs import FileSystem

    from laminar_delta.interop.source import Source

_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

KINDS: Mapping[str, str] = {
    NumberedSource.kind: "LaminarDB, file-system store",
    ObjectSource.kind: "LaminarDB, object store",
    DistributedSource.kind: "LaminarDB, distributed layout",
    IncrementalSource.kind: "LaminarDB 0.18, incremental manager",
    SparkSource.kind: "Spark Structured Streaming checkpoint",
}
"""What can be read, and what people call it."""


def open_source(
    location: str | Path,
    *,
    filesystem: FileSystem | None = None,
    prefix: str = "",
    kind: str | None = None,
    limits: Limits | None = None,
) -> Source:
    """The source at a place: the directory that holds `checkpoints`, or that one itself.

    Raises:
        NotFoundError: None of the kinds known is there.
    """
    place = Place.of(location, filesystem, limits)
    if kind is not None:
        if kind not in KINDS:
            raise InvalidInputError(f"there is no kind of source {kind!r}", expected=list(KINDS), found=kind)
        return _as_kind(place, prefix, kind)
    for found in (_spark, _objects, _distributed, _incremental, _files):
        source = found(place, prefix)
        if source is not None:
            return source
    seen = [entry.name for entry in place.entries()][:10]
    raise NotFoundError(
        f"{place.root or '/'} holds no checkpoints of a kind known here",
        expected=list(KINDS),
        found=seen,
        next_step="Name the directory that holds `checkpoints`, or a Structured Streaming checkpoint directory."
        + (f" Found: {', '.join(seen)}." if seen else " It is empty, or not there."),
    )


def check_apart(source: str | Path, catalog: str) -> None:
    """Refuses a catalog among the files of the source: making it would change the source.

    Raises:
        InvalidInputError: The catalog is, or would be, the source's own directory or one of those it consists of.
    """
    root, place = local_path(str(source)), local_path(catalog)
    if root is None or place is None:
        return
    root, place = root.resolve(), place.resolve()
    taken = [root / name for name in ("checkpoints", "manifests", "offsets", "commits", "sources", "state")]
    if root.name == "checkpoints":
        taken = [root]
    inside = place.relative_to(root).parts if place.is_relative_to(root) else ("",)
    if not inside or inside[0].startswith("checkpoint_") or any(place.is_relative_to(path) for path in taken):
        raise InvalidInputError(
            f"the catalog at {place} would be among the files of the source at {root}",
            expected="a place of its own",
            found=str(place),
            next_step="Name another directory for the catalog: a source is never changed.",
        )


def _as_kind(place: Place, prefix: str, kind: str) -> Source:
    makers: dict[str, Callable[[], Source | None]] = {
        NumberedSource.kind: lambda: _files(place, prefix) or NumberedSource(place, Layout(prefix)),
        ObjectSource.kind: lambda: ObjectSource(place, Layout(prefix)),
        DistributedSource.kind: lambda: _distributed(place, prefix) or DistributedSource(place),
        IncrementalSource.kind: lambda: _incremental(place, prefix) or IncrementalSource(place),
        SparkSource.kind: lambda: SparkSource(place),
    }
    source = makers[kind]()
    assert source is not None
    return source


def _spark(place: Place, prefix: str) -> Source | None:
    names = {entry.name for entry in place.entries() if entry.is_directory} if not prefix else set()
    return SparkSource(place) if {"offsets", "commits"} <= names else None


def _objects(place: Place, prefix: str) -> Source | None:
    layout = Layout(prefix)
    entries = place.entries(layout.manifests)
    if any(parse_manifest_name(entry.name) is not None and not entry.is_directory for entry in entries):
        return ObjectSource(place, layout)
    return None


def _distributed(place: Place, prefix: str) -> Source | None:
    nested = f"{prefix}checkpoints"
    if any(_is_distributed(entry) for entry in place.entries(nested)):
        return DistributedSource(place.below(nested))
    inside = prefix.rstrip("/")
    if any(_is_distributed(entry) for entry in place.entries(inside)):
        return DistributedSource(place.below(inside) if inside else place)
    return None


def _incremental(place: Place, prefix: str) -> Source | None:
    nested = f"{prefix}checkpoints"
    if is_incremental(place, nested):
        return IncrementalSource(place.below(nested))
    return IncrementalSource(place) if is_incremental(place) else None


def _files(place: Place, prefix: str) -> Source | None:
    for layout in (Layout(prefix), Layout(inside=True)):
        if any(_is_file_layout(entry) for entry in place.entries(layout.checkpoints)):
            return NumberedSource(place, layout)
    return None


def _is_distributed(entry: Entry) -> bool:
    if entry.is_directory:
        return _ID.fullmatch(entry.name) is not None
    named = _ID.match(entry.name)
    return entry.name == LATEST or (named is not None and entry.name[named.end() :] == "manifest.json")


def _is_file_layout(entry: Entry) -> bool:
    if entry.is_directory:
        return parse_checkpoint_name(entry.name) is not None
    return entry.name == LATEST_TEXT
