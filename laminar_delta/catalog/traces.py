"""What the other tables tell of a pipeline's checkpoints, for when `manifests` and its log do not tell any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.statuses import intact_changes
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS, SOURCE_OFFSETS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, StorageError
from laminar_delta.model.ids import attempt_began_ms

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.request import TableSpec

CHILD_TABLES = (SOURCE_OFFSETS, OPERATOR_SNAPSHOTS, OPERATOR_DELTAS)
"""Where attempts stage."""


def certain_ids(reading: Reading, pipeline: str, *, above: int | None = None) -> set[int]:
    """Checkpoints that were committed for certain and not removed: something was decided on them, or a sink told of them.

    Args:
        reading: Where.
        pipeline: Whose.
        above: Only those above that one, of which as a rule there are none: by statistics no file is read.
    """
    seen = standing(reading, pipeline)
    where = col("pipeline").eq(pipeline)
    told = intact_changes(reading, where if above is None else where & col("checkpoint_id").gt(above))
    # What was only abandoned may never have been there: beside damage, recovery passes over what may be in it.
    decided = (seen.decided - seen.abandoned) | seen.pinned | seen.retired
    found = ({change["checkpoint_id"] for change in told} | decided) - seen.removed
    return found if above is None else {number for number in found if number > above}


def staged_ids(reading: Reading, pipeline: str, *, before_ms: int | None = None) -> set[int]:
    """Checkpoints that have children, as far as those can be read. Some may be of attempts that never committed.

    Args:
        reading: Where.
        pipeline: Whose.
        before_ms: Only those of attempts begun before that time.
    """
    found = {
        row["checkpoint_id"]
        for spec in CHILD_TABLES
        for row in _attempts(reading, spec, pipeline)
        if before_ms is None or began_ms(row) < before_ms
    }
    return found - standing(reading, pipeline).removed


def began_ms(row: Row) -> int:
    """When the attempt of a row began. What is no name of one has been changed: it may be as old as any."""
    try:
        return attempt_began_ms(row["attempt_id"])
    except (AttributeError, ValueError):
        return -1


def _attempts(reading: Reading, spec: TableSpec, pipeline: str) -> list[Row]:
    try:
        return reading.rows(spec, where=col("pipeline").eq(pipeline), columns=["checkpoint_id", "attempt_id"])
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        return []
