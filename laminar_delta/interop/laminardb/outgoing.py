"""A checkpoint on its way out: what LaminarDB's layouts need to know of it, with state that is streamed when it is written.

State saved here by operator and partition becomes inline state or a sidecar, state that came as a sidecar stays one. A
digest that another system gave is kept; one of ours becomes the SHA-256 that releases before and after 0.18 both accept.
They differ only where a checkpoint has inline and external state at once, so what is made here never has both.

No state is ever in memory as a whole: it is read once to learn its digest, before anything of it is written, and once more to
write it. Only a state made by an application's deltas is: its function takes and gives whole ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import load_manifest, saved_children
from laminar_delta.catalog.healing import healed
from laminar_delta.catalog.reading import STATE_TABLES
from laminar_delta.catalog.sidecar import SIDECAR
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.codec import XXH3_PREFIX
from laminar_delta.errors import InvalidInputError
from laminar_delta.interop.laminardb.content import Content, Piece, joined
from laminar_delta.interop.laminardb.conversion import DELTA_PREFIX, DOCUMENT
from laminar_delta.model import INLINE_THRESHOLD_BYTES, OperatorCheckpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.model import CheckpointManifest

StateKey = tuple[str, int]
"""Operator and partition."""

INLINE_TOTAL_BYTES = 8 << 20
"""State up to this size in all goes inside a manifest, which is read whole; more goes into a sidecar, however small each is."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One checkpoint to be written elsewhere."""

    row: Row
    manifest: CheckpointManifest
    """As it is now, with the current statuses of its sinks."""
    lengths: Mapping[StateKey, int]
    """State in rows of its own, the sidecar aside."""
    sidecar_length: int | None
    """None without one."""
    _state: CheckpointState

    @classmethod
    def of(cls, reading: Reading, row: Row) -> Outgoing:
        """Takes a checkpoint whose rows are those that were saved, also where they were deleted since.

        Raises:
            CorruptionError: They are nowhere to be had.
        """
        manifest = healed(reading, row, lambda one: load_manifest(one, row))
        state = healed(reading, row, lambda one: _complete(one, row))
        inline = {name for name, found in manifest.operator_states.items() if found.state_b64 is not None}
        lengths = {
            (layout.operator, layout.partition): layout.length
            if layout.apply is None
            else Content.measured(partial(state.pieces, layout.operator, layout.partition)).length
            for layout in state.layouts()
            if not (layout.operator in inline and layout.partition == 0)
        }
        sidecar_length = lengths.pop((SIDECAR, 0), None)
        return cls(row, manifest, dict(sorted(lengths.items())), sidecar_length, state)

    def pieces(self, key: StateKey) -> Iterator[Piece]:
        """The state of an operator partition. Raises `CorruptionError`, at its end at the latest, when it is not as saved."""
        return self._state.pieces(*key)

    def sidecar(self) -> Iterator[Piece]:
        """The sidecar, likewise."""
        return self._state.pieces(SIDECAR)


def _complete(reading: Reading, row: Row) -> CheckpointState:
    for table in STATE_TABLES:
        saved_children(reading, row, table)
    return CheckpointState(reading, row, heal=True)


@dataclass(frozen=True, slots=True)
class NumberedForm:
    """A checkpoint as the file and object layouts have it."""

    manifest: CheckpointManifest
    sidecar: Content | None = None


def numbered_form(outgoing: Outgoing) -> NumberedForm:
    """A checkpoint with its state inside the manifest, or all of it in a sidecar.

    Raises:
        InvalidInputError: It has deltas that only the distributed layout can hold.
    """
    manifest = outgoing.manifest
    deltas = [name for name in manifest.operator_states if name.startswith(DELTA_PREFIX)]
    if deltas:
        raise InvalidInputError(
            f"it holds deltas of operator {deltas[0].removeprefix(DELTA_PREFIX)!r} in the format of another system",
            next_step="Export it in the layout 'distributed'.",
        )
    stated = manifest.state_checksum
    if not outgoing.lengths and not (stated or "").startswith(XXH3_PREFIX):
        # As another system made it: nothing is to be made out differently.
        sidecar = None if outgoing.sidecar_length is None else Content.measured(outgoing.sidecar)
        return NumberedForm(_without_document(manifest), sidecar)
    return _made(outgoing)


def _made(outgoing: Outgoing) -> NumberedForm:
    """The form of a checkpoint whose state was saved here: all of it inside the manifest, or all of it in one sidecar."""
    manifest = _without_document(outgoing.manifest)
    named = _named(outgoing)
    own = {operator for operator, _ in outgoing.lengths}
    others = {name: state for name, state in manifest.operator_states.items() if name not in own}
    taken = sorted(others.keys() & named.keys())
    if taken or len(named) < len(outgoing.lengths):
        raise InvalidInputError(
            f"two states would be called {(taken or sorted(named))[0]!r}",
            next_step="Export it in the layout 'distributed', which has partitions.",
        )
    if outgoing.sidecar_length is None and _fits_inside(list(outgoing.lengths.values())):
        small = {name: OperatorCheckpoint.inline(b"".join(outgoing.pieces(key))) for name, key in named.items()}
        return NumberedForm(replace(manifest, operator_states={**others, **small}, state_checksum=None))
    inline = {
        name: state.try_decode_inline() or b""
        for name, state in others.items()
        if state.state_b64 is not None and not state.external
    }
    # First the sidecar there is, whose ranges stay as they are, then what was inline, then state in rows of its own.
    parts: list[Callable[[], Iterator[Piece]]] = [] if outgoing.sidecar_length is None else [outgoing.sidecar]
    at = outgoing.sidecar_length or 0
    states = dict(others)
    for name, data in inline.items():
        states[name] = OperatorCheckpoint.external_at(at, len(data))
        parts.append(Content.of(data).pieces)
        at += len(data)
    for name, key in named.items():
        states[name] = OperatorCheckpoint.external_at(at, outgoing.lengths[key])
        parts.append(partial(outgoing.pieces, key))
        at += outgoing.lengths[key]
    sidecar = joined(parts)
    return NumberedForm(replace(manifest, operator_states=states, state_checksum=sidecar.sha256), sidecar)


def _fits_inside(lengths: list[int]) -> bool:
    return max(lengths, default=0) <= INLINE_THRESHOLD_BYTES and sum(lengths) <= INLINE_TOTAL_BYTES


def _named(outgoing: Outgoing) -> dict[str, StateKey]:
    """What each state in rows of its own is called where operators have no partitions."""
    partitions = Counter(operator for operator, _ in outgoing.lengths)
    return {
        operator if partition == 0 and partitions[operator] == 1 else f"{operator}/partition-{partition}": (
            operator,
            partition,
        )
        for operator, partition in outgoing.lengths
    }


def _without_document(manifest: CheckpointManifest) -> CheckpointManifest:
    if DOCUMENT not in manifest.operator_states:
        return manifest
    return replace(
        manifest, operator_states={name: state for name, state in manifest.operator_states.items() if name != DOCUMENT}
    )
