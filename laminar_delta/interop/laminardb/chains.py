"""State that came in as deltas of another system: the pieces its operator applies, in order.

What a delta means only its operator knows. So reading hands out the full state it all began with and every delta since,
along the parents, for the caller to apply; LaminarDB itself never follows the parents, and applies a delta to whatever
state it finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import manifest_row
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.errors import CorruptionError, NotFoundError
from laminar_delta.interop.laminardb.conversion import DELTA_PREFIX

if TYPE_CHECKING:
    from laminar_delta.catalog.pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePiece:
    """One piece of an operator partition's state."""

    checkpoint_id: int
    is_delta: bool
    data: bytes


def state_chain(pipeline: Pipeline, checkpoint_id: int, operator: str, partition: int = 0) -> list[StatePiece]:
    """A full state, and the deltas to apply to it, in order. A checkpoint without deltas gives one piece.

    Raises:
        NotFoundError: The checkpoint has no state of that operator partition.
        CorruptionError: The chain is broken: a parent is gone, or has no such state.
    """
    pieces: list[StatePiece] = []
    seen: set[int] = set()
    number: int | None = checkpoint_id
    while number is not None and number not in seen:
        seen.add(number)
        try:
            row = manifest_row(pipeline.reading, pipeline.name, number)
        except NotFoundError as error:
            raise _broken(checkpoint_id, operator, partition, error.message) from error
        state = CheckpointState(pipeline.reading, row)
        there = state.partitions()
        # Of a checkpoint that has both, the full state comes first; walking back, last.
        if partition in there.get(f"{DELTA_PREFIX}{operator}", []):
            data = state.read(f"{DELTA_PREFIX}{operator}", partition)
            pieces.append(StatePiece(checkpoint_id=number, is_delta=True, data=data))
        if partition in there.get(operator, []):
            pieces.append(StatePiece(checkpoint_id=number, is_delta=False, data=state.read(operator, partition)))
            return pieces[::-1]
        if not pieces:
            raise NotFoundError(
                f"checkpoint {checkpoint_id} has no state of operator {operator!r} partition {partition}",
                expected=(operator, partition),
                found=there,
            )
        number = row["parent_id"]
    raise _broken(checkpoint_id, operator, partition, "there is no full state to begin with")


def _broken(checkpoint_id: int, operator: str, partition: int, why: str) -> CorruptionError:
    return CorruptionError(
        f"deltas of operator {operator!r} partition {partition} in checkpoint {checkpoint_id} lead nowhere: {why}",
        found=why,
    )
