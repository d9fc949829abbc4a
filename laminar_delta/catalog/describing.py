"""One checkpoint with everything there is to say of it: its manifest, what was decided on it, where its state is."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import load_manifest
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.state.checkpoint_state import CheckpointState

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPart:
    """The state of one operator partition."""

    operator: str
    partition: int
    length: int
    form: str
    """`inline` in the manifest row, `full`, or `delta` against earlier checkpoints."""
    stored_in: tuple[int, ...]
    """The checkpoints that hold its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestry:
    """How a derived checkpoint came to be."""

    how: str
    from_pipeline: str
    from_id: int
    over_id: int | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDescription:
    """One checkpoint."""

    pipeline: str
    checkpoint_id: int
    epoch: int
    created_at: dt.datetime | None
    attempt_id: str
    generation: int
    external_id: str | None
    is_pinned: bool
    is_retired: bool
    is_abandoned: bool
    derived: Ancestry | None
    state: tuple[OperatorPart, ...]
    manifest: CheckpointManifest


def describe(reading: Reading, row: Row) -> CheckpointDescription:
    """The checkpoint of a manifest row."""
    seen = standing(reading, row["pipeline"])
    number = row["checkpoint_id"]
    derived = None
    if row["derived_how"] is not None:
        derived = Ancestry(
            how=row["derived_how"],
            from_pipeline=row["derived_from_pipeline"],
            from_id=row["derived_from_id"],
            over_id=row["derived_over_id"],
            reason=row["derived_reason"],
        )
    return CheckpointDescription(
        pipeline=row["pipeline"],
        checkpoint_id=number,
        epoch=row["epoch"],
        created_at=row["created_at"],
        attempt_id=row["attempt_id"],
        generation=row["generation"],
        external_id=row["external_id"],
        is_pinned=number in seen.pinned,
        is_retired=number in seen.retired,
        is_abandoned=number in seen.abandoned,
        derived=derived,
        state=tuple(_parts(reading, row)),
        manifest=load_manifest(reading, row),
    )


def _parts(reading: Reading, row: Row) -> list[OperatorPart]:
    state, number = CheckpointState(reading, row), row["checkpoint_id"]
    inline = [
        OperatorPart(operator=operator, partition=0, length=len(data), form="inline", stored_in=(number,))
        for operator, data in state.inline().items()
    ]
    stored = [
        OperatorPart(
            operator=layout.operator,
            partition=layout.partition,
            length=layout.length,
            form="delta" if layout.upon or len(layout.stores) > 1 else "full",
            stored_in=tuple(sorted(layout.needs)),
        )
        for layout in state.layouts()
    ]
    return sorted([*inline, *stored], key=lambda part: (part.operator, part.partition))
