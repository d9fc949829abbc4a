"""What the other tables tell of a pipeline's checkpoints, for when `manifests` and its log do not tell any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.decisions import standing
from laminar_delta.catalog.reading import raise_unless_damage
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


def certain_ids(reading: Reading, pipeline: str) -> set[int]:
    """Checkpoints that were committed for certain and not removed: something was decided on them, or a sink told of them."""
    seen = standing(reading, pipeline)
    told = {change["checkpoint_id"] for change in intact_changes(reading, col("pipeline").eq(pipeline))}
    return (told | seen.decided) - seen.removed


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
        if before_ms is None or attempt_began_ms(row["attempt_id"]) < before_ms
    }
    return found - standing(reading, pipeline).removed


def _attempts(reading: Reading, spec: TableSpec, pipeline: str) -> list[Row]:
    try:
        return reading.rows(spec, where=col("pipeline").eq(pipeline), columns=["checkpoint_id", "attempt_id"])
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        return []
