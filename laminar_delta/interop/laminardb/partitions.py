"""The state of a checkpoint as the distributed layout has it: a file per operator partition, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from laminar_delta.errors import CorruptionError
from laminar_delta.interop.laminardb.content import Content, Ranges
from laminar_delta.interop.laminardb.conversion import DELTA_PREFIX, DOCUMENT, original_v2, state_name

if TYPE_CHECKING:
    from laminar_delta.interop.laminardb.outgoing import Outgoing, StateKey
    from laminar_delta.model import OperatorCheckpoint


@dataclass(frozen=True, slots=True)
class Partition:
    """One file to be written; its content is good until the next is asked for."""

    operator: str
    number: int
    is_delta: bool
    content: Content


def partitions_of(outgoing: Outgoing) -> Iterator[Partition]:
    """Every piece of state. Raises `CorruptionError` for one that is not what was saved."""
    for key in _ordered(outgoing):
        operator, number = key
        content = Content.measured(partial(outgoing.pieces, key))
        yield Partition(operator.removeprefix(DELTA_PREFIX), number, operator.startswith(DELTA_PREFIX), content)
    own = {operator for operator, _ in outgoing.lengths}
    external = {}
    for name, state in outgoing.manifest.operator_states.items():
        if name == DOCUMENT or name in own:
            continue
        if state.external:
            external[name] = state
        elif state.state_b64 is not None:
            yield Partition(name, 0, False, Content.of(state.try_decode_inline() or b""))
    if external:
        yield from _cut(outgoing, external)


def _ordered(outgoing: Outgoing) -> list[StateKey]:
    """In the order of the original document, which lists full states and deltas as they came."""
    original = original_v2(outgoing.manifest)
    if original is None:
        return list(outgoing.lengths)
    listed = [
        (state_name(operator, is_delta=partition.is_delta), partition.partition_id)
        for operator, entry in original.operators.items()
        for partition in entry.partitions
    ]
    place = {key: number for number, key in enumerate(listed)}
    return sorted(outgoing.lengths, key=lambda key: place.get(key, len(place)))


def _cut(outgoing: Outgoing, external: dict[str, OperatorCheckpoint]) -> Iterator[Partition]:
    """What operators have in the sidecar, which is read once for all of them."""
    length = outgoing.sidecar_length or 0
    for name, state in external.items():
        end = state.external_offset + state.external_length
        if state.external_length and end > length:
            raise CorruptionError(
                f"operator {name!r} has its state up to byte {end} of the sidecar, which has {length}",
                expected=end,
                found=length,
            )
    pieces = iter(()) if outgoing.sidecar_length is None else outgoing.sidecar()
    with closing(Ranges(pieces)) as ranges:
        for name, state in external.items():
            yield Partition(name, 0, False, ranges.content(state.external_offset, state.external_length))
