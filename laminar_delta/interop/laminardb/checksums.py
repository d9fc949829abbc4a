"""The SHA-256 that LaminarDB's releases put into `state_checksum`.

    0.18     of the sidecar
    newer    inline state alone: of each operator's name and text; external alone: of the sidecar; both: of one, then the other

A checkpoint is fine when the stated digest is the one of either release: they cannot be told apart by the document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from laminar_delta.errors import CorruptionError
from laminar_delta.interop.source import fatal, warning

if TYPE_CHECKING:
    from laminar_delta.interop.source import ForeignState
    from laminar_delta.model import CheckpointManifest, Finding


def examine_state(manifest: CheckpointManifest, sidecar: ForeignState | None) -> Iterator[Finding]:
    """Whether the state is the one the manifest states, and whether every operator finds its own in it."""
    stated = manifest.state_checksum
    if stated is not None and not _is_stated(manifest, sidecar, stated):
        if sidecar is None:
            yield fatal("state-not-found", "state.bin referenced by checksum but not found")
        else:
            message = f"state.bin checksum mismatch: expected {stated}, got {sidecar.sha256}"
            yield fatal("state-checksum", message)
        return
    # What follows LaminarDB does not notice: it starts such an operator empty.
    for name, state in sorted(manifest.operator_states.items()):
        end = state.external_offset + state.external_length
        try:
            state.try_decode_inline()
        except CorruptionError as error:
            yield warning("state-undecodable", f"operator {name!r}: {error.message}")
        if not state.external or not state.external_length:
            continue
        if sidecar is None:
            yield warning("state-not-saved", f"operator {name!r} has its state in state.bin, which is not there")
        elif end > sidecar.size:
            message = f"operator {name!r} has its state up to byte {end} of state.bin, which has {sidecar.size}"
            yield warning("state-out-of-range", message)


def inline_digest(manifest: CheckpointManifest) -> str:
    """The digest of the state inside a manifest, as newer releases compute it."""
    digest = hashlib.sha256()
    inline = {name.encode(): state for name, state in manifest.operator_states.items() if not state.external}
    for name, state in sorted(inline.items()):
        digest.update(name + b"\0" + (state.state_b64 or "").encode() + b"\0")
    return digest.hexdigest()


def _is_stated(manifest: CheckpointManifest, sidecar: ForeignState | None, stated: str) -> bool:
    external = any(state.external for state in manifest.operator_states.values())
    if sidecar is None:
        return not external and bool(manifest.operator_states) and stated == inline_digest(manifest)
    if stated == sidecar.sha256:
        return True
    inline = inline_digest(manifest)
    if stated == inline and not external and manifest.operator_states:
        return True
    mixed = hashlib.sha256(inline.encode())
    for piece in sidecar.pieces():
        mixed.update(piece)
    return stated == mixed.hexdigest()
