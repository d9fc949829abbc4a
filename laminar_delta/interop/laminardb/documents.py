"""Manifest documents by any release of LaminarDB, as manifests of ours.

Releases added and removed fields without changing the version: what is missing is defaulted, `vnode_count` is kept beside the
manifest, and fields that nothing here has a place for are named so that a report can say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from laminar_delta.model import CheckpointManifest
from laminar_delta.model.jsontext import parse_json
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import U16_RANGE

_KNOWN = frozenset(field.name for field in fields(CheckpointManifest))
_VNODES = "vnode_count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A manifest document as it was read."""

    manifest: CheckpointManifest
    vnode_count: int | None = None
    unknown: tuple[str, ...] = ()
    """Fields that are not kept."""
    found_sources: tuple[str, ...] = ()
    """Sources whose offsets stood under `table_offsets`."""


def read_document(data: bytes) -> Document:
    """Reads a manifest document. Raises `FormatError` when it is none."""
    try:
        parsed = parse_json(data)
    except Mismatch as mismatch:
        raise mismatch.as_format_error("CheckpointManifest") from None
    manifest = CheckpointManifest.from_dict(parsed)
    vnode_count = None
    unknown: tuple[str, ...] = ()
    if isinstance(parsed, Mapping):
        unknown = tuple(sorted(str(name) for name in parsed.keys() - _KNOWN - {_VNODES}))
        vnode_count = _vnode_count(parsed.get(_VNODES))
    manifest, found = with_sources(manifest)
    return Document(manifest=manifest, vnode_count=vnode_count, unknown=unknown, found_sources=found)


def with_sources(manifest: CheckpointManifest) -> tuple[CheckpointManifest, tuple[str, ...]]:
    """The manifest with source offsets where they belong.

    0.18 stores them under `table_offsets` when a barrier took the checkpoint. A name there is a source when it is registered
    as one; a manifest that has neither source offsets nor registered sources can only mean all of them. They stay under
    `table_offsets` as well: nothing is taken away.
    """
    missing = [name for name in manifest.table_offsets if name not in manifest.source_offsets]
    if manifest.source_names:
        found = [name for name in missing if name in manifest.source_names]
    else:
        found = [] if manifest.source_offsets else missing
    if not found:
        return manifest, ()
    offsets = {**manifest.source_offsets, **{name: manifest.table_offsets[name] for name in found}}
    return replace(manifest, source_offsets=offsets), tuple(sorted(found))


def document_of(manifest: CheckpointManifest, vnode_count: int | None) -> bytes:
    """The document to write: all fields of 0.18, and `vnode_count` where it is known. Every release ignores what it lacks."""
    from laminar_delta.model.jsontext import render_json

    plain = manifest.to_dict()
    if vnode_count is not None:
        plain[_VNODES] = vnode_count
    return render_json(plain, pretty=True)


def _vnode_count(raw: object) -> int | None:
    """What newer releases write; 0 and anything that is no such number stand for not told."""
    try:
        return U16_RANGE.take(raw) or None
    except Mismatch:
        return None
