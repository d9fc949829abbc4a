"""The sidecar: state of several operators as one string of bytes, as LaminarDB keeps it in `state.bin`.

Its manifest says which bytes are whose. It is stored like any operator's state, in chunks that are verified one by one, under a
name of its own. What the manifest's `state_checksum` says of it is checked in LaminarDB's words: an xxh3 where the catalog
made it, SHA-256 by the formula of 0.18 or of later releases where it came with the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import saved_children
from laminar_delta.catalog.reading import STATE_TABLES
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.catalog.state.staging import StagedState, stage_state
from laminar_delta.codec import XXH3_PREFIX, StreamDigest
from laminar_delta.codec.foreign import sha256
from laminar_delta.engine.predicate import col
from laminar_delta.model.base64text import encode_base64
from laminar_delta.model.findings import Finding, Severity

if TYPE_CHECKING:
    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.saving import SavingWriter
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.codec import StateSource
    from laminar_delta.errors import CorruptionError

SIDECAR = "__sidecar__"
"""The operator name of a sidecar's chunks; reserved."""


def stage_sidecar(writer: SavingWriter, attempt: Attempt, data: StateSource) -> StagedState:
    """Streams a sidecar into the state tables. Empty data is an empty sidecar, which is not the same as none."""
    return stage_state(writer.engine, attempt, {(SIDECAR, 0): data}, policy=writer.state_policy, upon=writer.layouts())


def read_sidecar(reading: Reading, row: Row) -> bytes | None:
    """The sidecar of a checkpoint, or None when it was saved without. Raises `CorruptionError` when it is not all there."""
    for table in STATE_TABLES:
        saved_children(reading, row, table)
    state = CheckpointState(reading, row)
    return state.read(SIDECAR) if state.layouts(col("operator").eq(SIDECAR)) else None


class SidecarDigests:
    """What a manifest's checksum may be the checksum of, while the sidecar streams by."""

    def __init__(self, row: Row) -> None:
        self._ours = StreamDigest()
        self._plain = sha256()
        self._mixed = sha256(inline_checksum(row).encode())
        self._is_ours = str(row["state_checksum"]).startswith(XXH3_PREFIX)

    def update(self, piece: memoryview) -> None:
        """Takes the next piece."""
        if self._is_ours:
            self._ours.update(piece)
        else:
            self._plain.update(piece)
            self._mixed.update(piece)

    @property
    def accepted(self) -> list[str]:
        """In the kind that was stated; the likeliest first."""
        return [self._ours.checksum] if self._is_ours else [self._plain.hexdigest(), self._mixed.hexdigest()]


def examine_checksum(row: Row, layouts: Sequence[Layout], sidecar: SidecarDigests | None) -> Iterator[Finding]:
    """Whether the state found is the one that the manifest's checksum is of."""
    stated = row["state_checksum"]
    if stated is None:
        return
    if not layouts and stated != inline_checksum(row):
        yield _fatal("state-not-found", "state.bin referenced by checksum but not found")
    elif sidecar is not None and stated not in sidecar.accepted:
        yield _fatal("state-checksum", f"state.bin checksum mismatch: expected {stated}, got {sidecar.accepted[0]}")


def damaged_sidecar(row: Row, error: CorruptionError) -> Finding:
    """The same said of a sidecar that cannot be read to its end."""
    return _fatal(
        "state-checksum", f"state.bin checksum mismatch: expected {row['state_checksum']}, got {error.message}"
    )


def examine_operators(row: Row, layouts: Sequence[Layout]) -> Iterator[Finding]:
    """Whether every operator that the manifest names has its state: LaminarDB starts those without it empty, unnoticed."""
    sizes = {layout.operator: layout.length for layout in layouts}
    for entry in row["operators"]:
        operator, end = entry["operator"], int(entry["external_offset"]) + int(entry["external_length"])
        if entry["undecoded"] is not None:
            yield _fatal("state-undecodable", f"inline state of operator {operator!r} is not base64 [LDB-4004]")
        elif not entry["external"] or operator in sizes or not entry["external_length"]:
            continue
        elif SIDECAR not in sizes:
            yield _fatal("state-not-saved", f"state of operator {operator!r} is in state.bin, which was not saved")
        elif end > sizes[SIDECAR]:
            message = f"state of operator {operator!r} ends at byte {end} of state.bin, which has {sizes[SIDECAR]}"
            yield _fatal("state-out-of-range", message)


def inline_checksum(row: Row) -> str:
    """The SHA-256 that LaminarDB gives the state inside a manifest."""
    digest = sha256()
    inline = {entry["operator"].encode(): entry for entry in row["operators"] if not entry["external"]}
    for operator, entry in sorted(inline.items()):
        text = entry["undecoded"] if entry["state"] is None else encode_base64(entry["state"])
        digest.update(operator + b"\0" + (text or "").encode() + b"\0")
    return digest.hexdigest()


def _fatal(code: str, message: str) -> Finding:
    return Finding(severity=Severity.FATAL, code=code, message=message)
