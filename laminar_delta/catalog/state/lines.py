"""The line of an application delta: the last full state and the deltas since, as their own checkpoints stored them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.state.layout import LAYOUT_CHUNK, Layout
from laminar_delta.catalog.tables import BY_NAME, MANIFESTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading

LAYOUT_COLUMNS = [
    "checkpoint_id",
    "operator",
    "partition",
    "raw_length",
    "xxh3",
    "names",
    "block_bytes",
    "checksum",
    "stores",
    "apply",
    "upon",
]
"""What a layout is read from."""


def line(reading: Reading, pipeline: str, layout: Layout) -> list[Layout]:
    """The layouts that one stands upon, in order.

    Raises:
        CorruptionError: One is missing.
    """
    if not layout.upon:
        return []
    found: dict[tuple[int, str], Layout] = {}
    accepted = _accepted(reading, pipeline, layout)
    own = col("operator").eq(layout.operator) & col("partition").eq(layout.partition)
    for table in sorted({origin.table for origin in layout.upon}):
        wanted = [origin.checkpoint_id for origin in layout.upon if origin.table == table]
        for at, numbers in reading.of_checkpoints(table, wanted):
            where = col("pipeline").eq(pipeline) & col("checkpoint_id").is_in(numbers) & own
            where &= col("chunk").eq(LAYOUT_CHUNK)
            for row in at.rows(BY_NAME[table], where=where, columns=[*LAYOUT_COLUMNS, "attempt_id", "part_id"]):
                key = row["checkpoint_id"], row["attempt_id"]
                if key not in accepted or row["part_id"] in accepted[key]:
                    found[key] = Layout.from_row(row)
    missing = [o.checkpoint_id for o in layout.upon if (o.checkpoint_id, o.attempt_id) not in found]
    if missing:
        raise CorruptionError(
            f"operator {layout.operator!r} partition {layout.partition} stands upon checkpoint {missing[0]}, "
            "whose layout is missing",
            expected=[origin.checkpoint_id for origin in layout.upon],
            found=sorted(number for number, _ in found),
            details={"operator": layout.operator, "partition": layout.partition, "checkpoint_id": missing[0]},
        )
    return [found[origin.checkpoint_id, origin.attempt_id] for origin in layout.upon]


def _accepted(reading: Reading, pipeline: str, layout: Layout) -> dict[tuple[int, str], set[str]]:
    """The parts that the checkpoints beneath a delta accepted: an attempt may have staged others too.

    One whose manifest is gone is left out. What it stored is verified all the same.
    """
    numbers = sorted({origin.checkpoint_id for origin in layout.upon})
    where = col("pipeline").eq(pipeline) & col("checkpoint_id").is_in(numbers)
    try:
        rows = reading.rows(MANIFESTS, where=where, columns=["checkpoint_id", "attempt_id", "children"])
    except (CorruptionError, StorageError) as damage:
        raise_unless_damage(damage)
        return {}
    return {
        (row["checkpoint_id"], row["attempt_id"]): {part for child in row["children"] for part in child["parts"]}
        for row in rows
    }
