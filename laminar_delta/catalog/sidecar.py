"""The sidecar: state of several operators as one string of bytes, as LaminarDB keeps it in `state.bin`.

Its manifest says which bytes are whose. It is stored like any operator's state, in chunks that are verified one by one, under a
name of its own. What the manifest's `state_checksum` says of it is checked in LaminarDB's words: an xxh3 where the catalog
made it, SHA-256 by the formula of 0.18 or of later releases where it came with the manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from laminar_delta.catalog.attempt import StagedState, stage_state
from laminar_delta.catalog.checkpoints import saved_children
from laminar_delta.catalog.chunks import joined
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.codec import XXH3_PREFIX, StreamDigest, decompress_block
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.model.base64text import encode_base64
from laminar_delta.model.findings import Finding, Severity

if TYPE_CHECKING:
    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.codec import StateSource
    from laminar_delta.engine.base import Engine

SIDECAR = "__sidecar__"
"""The operator name of a sidecar's chunks; reserved."""


def stage_sidecar(engine: Engine, attempt: Attempt, data: StateSource) -> StagedState:
    """Streams a sidecar into `operator_snapshots`. Empty data is an empty sidecar, which is not the same as none."""
    return stage_state(engine, attempt, {(SIDECAR, 0): data})


def sidecar_chunks(chunks: Sequence[Row]) -> list[Row]:
    """Of state chunks those of the sidecar, in order."""
    return sorted((chunk for chunk in chunks if chunk["operator"] == SIDECAR), key=lambda chunk: int(chunk["chunk"]))


def read_sidecar(reading: Reading, row: Row) -> bytes | None:
    """The sidecar of a checkpoint, or None when it was saved without. Raises `CorruptionError` when it is not all there."""
    chunks = sidecar_chunks(saved_children(reading, row, OPERATOR_SNAPSHOTS.name))
    return joined(chunks) if chunks else None


def examine_checksum(row: Row, chunks: Sequence[Row]) -> Iterator[Finding]:
    """Whether the state found is the one that the manifest's checksum is of. Chunks are taken as they are, good or bad."""
    stated = row["state_checksum"]
    if stated is None or _is_elsewhere(row):
        return
    sidecar = sidecar_chunks(chunks)
    if not chunks and stated != inline_checksum(row):
        yield _fatal("state-not-found", "state.bin referenced by checksum but not found")
    elif sidecar:
        accepted = _checksums(row, sidecar, stated)
        if stated not in accepted:
            yield _fatal("state-checksum", f"state.bin checksum mismatch: expected {stated}, got {accepted[0]}")


def examine_operators(row: Row, chunks: Sequence[Row]) -> Iterator[Finding]:
    """Whether every operator that the manifest names has its state: LaminarDB starts those without it empty, unnoticed."""
    own = {chunk["operator"] for chunk in chunks}
    sidecar = sidecar_chunks(chunks)
    size = sum(int(chunk["raw_length"]) for chunk in sidecar)
    for entry in row["operators"]:
        operator, end = entry["operator"], int(entry["external_offset"]) + int(entry["external_length"])
        if entry["undecoded"] is not None:
            yield _fatal("state-undecodable", f"inline state of operator {operator!r} is not base64 [LDB-4004]")
        elif not entry["external"] or operator in own or _is_elsewhere(row) or not entry["external_length"]:
            continue
        elif not sidecar:
            yield _fatal("state-not-saved", f"state of operator {operator!r} is in state.bin, which was not saved")
        elif end > size:
            message = f"state of operator {operator!r} ends at byte {end} of state.bin, which has {size}"
            yield _fatal("state-out-of-range", message)


def inline_checksum(row: Row) -> str:
    """The SHA-256 that LaminarDB gives the state inside a manifest."""
    digest = hashlib.sha256()
    inline = {entry["operator"].encode(): entry for entry in row["operators"] if not entry["external"]}
    for operator, entry in sorted(inline.items()):
        text = entry["undecoded"] if entry["state"] is None else encode_base64(entry["state"])
        digest.update(operator + b"\0" + (text or "").encode() + b"\0")
    return digest.hexdigest()


def _checksums(row: Row, sidecar: Sequence[Row], stated: str) -> list[str]:
    """What the checksum may be, in the kind that was stated; the likeliest first."""
    ours, plain, mixed = StreamDigest(), hashlib.sha256(), hashlib.sha256(inline_checksum(row).encode())
    try:
        for chunk in sidecar:
            raw = decompress_block(chunk["data"], chunk["raw_length"])
            if stated.startswith(XXH3_PREFIX):
                ours.update(raw)
            else:
                plain.update(raw)
                mixed.update(raw)
    except LaminarDeltaError as error:
        return [f"what does not decompress: {error.message}"]
    return [ours.checksum] if stated.startswith(XXH3_PREFIX) else [plain.hexdigest(), mixed.hexdigest()]


def _is_elsewhere(row: Row) -> bool:
    """Whether the state, or some of it, is in rows of other checkpoints."""
    deltas = any(child["table"] == OPERATOR_DELTAS.name for child in row["children"])
    return deltas or row["state_checkpoint_id"] is not None


def _fatal(code: str, message: str) -> Finding:
    return Finding(severity=Severity.FATAL, code=code, message=message)
