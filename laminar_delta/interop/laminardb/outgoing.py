"""A checkpoint on its way out: what LaminarDB's layouts need to know of it, with state that is read when it is written.

State saved here by operator and partition becomes inline state or a sidecar, state that came as a sidecar stays one. A
digest that another system gave is kept; one of ours becomes the SHA-256 that releases before and after 0.18 both accept.
They differ only where a checkpoint has inline and external state at once, so what is made here never has both.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import load_manifest
from laminar_delta.catalog.healing import healed
from laminar_delta.catalog.sidecar import SIDECAR, read_sidecar
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.codec import XXH3_PREFIX
from laminar_delta.errors import CorruptionError, InvalidInputError
from laminar_delta.interop.laminardb.conversion import DELTA_PREFIX, DOCUMENT
from laminar_delta.model import INLINE_THRESHOLD_BYTES, OperatorCheckpoint

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.model import CheckpointManifest

StateKey = tuple[str, int]


@dataclass(slots=True)
class Outgoing:
    """One checkpoint to be written elsewhere."""

    reading: Reading
    row: Row
    manifest: CheckpointManifest
    """As it is now, with the current statuses of its sinks."""
    keys: tuple[StateKey, ...] = ()
    """State in rows of its own, by operator and partition."""
    sidecar: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, reading: Reading, row: Row) -> Outgoing:
        """Takes a checkpoint, verified. Raises `CorruptionError` when it is not what was saved."""
        manifest = healed(reading, row, lambda one: load_manifest(one, row))
        sidecar = healed(reading, row, lambda one: read_sidecar(one, row))
        inline = {name for name, state in manifest.operator_states.items() if state.state_b64 is not None}
        partitions = CheckpointState(reading, row).partitions()
        keys = [
            (operator, partition)
            for operator, numbers in partitions.items()
            for partition in numbers
            if operator != SIDECAR and not (operator in inline and partition == 0)
        ]
        return cls(reading, row, manifest, tuple(keys), sidecar)

    def state(self, key: StateKey) -> bytes:
        """The state of an operator partition, verified."""
        operator, partition = key
        row = self.row
        return healed(self.reading, row, lambda reading: CheckpointState(reading, row).read(operator, partition))


@dataclass(frozen=True, slots=True)
class NumberedForm:
    """A checkpoint as the file and object layouts have it."""

    manifest: CheckpointManifest
    sidecar_sha256: str | None = None
    """None without a sidecar."""
    _pieces: Mapping[str, StateKey | bytes] = field(default_factory=dict, repr=False)
    _outgoing: Outgoing | None = field(default=None, repr=False)

    def sidecar(self) -> Iterator[bytes]:
        """The sidecar's bytes, operator by operator."""
        for piece in self._pieces.values():
            if isinstance(piece, bytes):
                yield piece
            else:
                assert self._outgoing is not None
                yield self._outgoing.state(piece)


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
    if not outgoing.keys and not (stated or "").startswith(XXH3_PREFIX):
        # As another system made it: nothing is to be made out differently.
        pieces: dict[str, StateKey | bytes] = {} if outgoing.sidecar is None else {SIDECAR: outgoing.sidecar}
        digest = None if outgoing.sidecar is None else hashlib.sha256(outgoing.sidecar).hexdigest()
        return NumberedForm(_without_document(manifest), digest, pieces, outgoing)
    return _made(outgoing)


def _made(outgoing: Outgoing) -> NumberedForm:
    """The form of a checkpoint whose state was saved here: all of it inside the manifest, or all of it in one sidecar."""
    manifest = _without_document(outgoing.manifest)
    named = _named(outgoing)
    own = {operator for operator, _ in outgoing.keys}
    others = {name: state for name, state in manifest.operator_states.items() if name not in own}
    taken = sorted(others.keys() & named.keys())
    if taken or len(named) < len(outgoing.keys):
        raise InvalidInputError(
            f"two states would be called {(taken or sorted(named))[0]!r}",
            next_step="Export it in the layout 'distributed', which has partitions.",
        )
    lengths: dict[str, int] = {}
    small: dict[str, bytes] = {}
    for name, key in named.items():
        data = outgoing.state(key)
        lengths[name] = len(data)
        if len(data) <= INLINE_THRESHOLD_BYTES:
            small[name] = data
    if outgoing.sidecar is None and len(small) == len(named):
        states = {**others, **{name: OperatorCheckpoint.inline(data) for name, data in small.items()}}
        return NumberedForm(replace(manifest, operator_states=states, state_checksum=None))
    inline = {
        name: state.try_decode_inline() or b""
        for name, state in others.items()
        if state.state_b64 is not None and not state.external
    }
    # First the sidecar there is, whose ranges stay as they are, then what was inline, then state in rows of its own.
    pieces: dict[str, StateKey | bytes] = {**inline, **named}
    lengths.update({name: len(data) for name, data in inline.items()})
    at = 0
    if outgoing.sidecar is not None:
        pieces = {SIDECAR: outgoing.sidecar, **pieces}
        at = len(outgoing.sidecar)
    states = dict(others)
    for name in (*inline, *named):
        states[name] = OperatorCheckpoint.external_at(at, lengths[name])
        at += lengths[name]
    form = NumberedForm(replace(manifest, operator_states=states), None, pieces, outgoing)
    digest = hashlib.sha256()
    for piece in form.sidecar():
        digest.update(piece)
    checksum = digest.hexdigest()
    return replace(form, manifest=replace(form.manifest, state_checksum=checksum), sidecar_sha256=checksum)


def _named(outgoing: Outgoing) -> dict[str, StateKey]:
    """What each state in rows of its own is called where operators have no partitions."""
    partitions = Counter(operator for operator, _ in outgoing.keys)
    return {
        operator if partition == 0 and partitions[operator] == 1 else f"{operator}/partition-{partition}": (
            operator,
            partition,
        )
        for operator, partition in outgoing.keys
    }


def sidecar_range(outgoing: Outgoing, name: str, state: OperatorCheckpoint) -> bytes:
    """The bytes of an operator in the sidecar. Raises `CorruptionError` when they are not all there."""
    end = state.external_offset + state.external_length
    data = (outgoing.sidecar or b"")[state.external_offset : end]
    if len(data) != state.external_length:
        raise CorruptionError(
            f"operator {name!r} has its state up to byte {end} of the sidecar, which has {len(outgoing.sidecar or b'')}",
            expected=state.external_length,
            found=len(data),
        )
    return data


def _without_document(manifest: CheckpointManifest) -> CheckpointManifest:
    if DOCUMENT not in manifest.operator_states:
        return manifest
    return replace(
        manifest, operator_states={name: state for name, state in manifest.operator_states.items() if name != DOCUMENT}
    )
