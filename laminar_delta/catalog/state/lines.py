"""The line of an application delta: the last full state and the deltas since, as their own checkpoints stored them."""

from __future__ import annotations

from collections.abc import Sequence
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
    return lines(reading, pipeline, [layout])[0]


def lines(reading: Reading, pipeline: str, layouts: Sequence[Layout]) -> list[list[Layout]]:
    """The same of several, with one look for all of them. What is wrong with the line of one is raised for all."""
    origins = {origin for layout in layouts for origin in layout.upon}
    if not origins:
        return [[] for _ in layouts]
    found: dict[tuple[str, int, int, str], Layout] = {}
    accepted = _accepted(reading, pipeline, {origin.checkpoint_id for origin in origins})
    deltas = [layout for layout in layouts if layout.upon]
    own = col("operator").is_in(sorted({layout.operator for layout in deltas}))
    own &= col("partition").is_in(sorted({layout.partition for layout in deltas}))
    for table in sorted({origin.table for origin in origins}):
        wanted = [origin.checkpoint_id for origin in origins if origin.table == table]
        for at, numbers in reading.of_checkpoints(table, wanted):
            where = col("pipeline").eq(pipeline) & col("checkpoint_id").is_in(numbers) & own
            where &= col("chunk").eq(LAYOUT_CHUNK)
            for row in at.rows(BY_NAME[table], where=where, columns=[*LAYOUT_COLUMNS, "attempt_id", "part_id"]):
                number, attempt = row["checkpoint_id"], row["attempt_id"]
                if (number, attempt) not in accepted or row["part_id"] in accepted[number, attempt]:
                    found[row["operator"], row["partition"], number, attempt] = Layout.from_row(row)
    return [_line(layout, found) for layout in layouts]


def _line(layout: Layout, found: dict[tuple[str, int, int, str], Layout]) -> list[Layout]:
    keys = [(layout.operator, layout.partition, origin.checkpoint_id, origin.attempt_id) for origin in layout.upon]
    missing = [key[2] for key in keys if key not in found]
    if missing:
        raise CorruptionError(
            f"operator {layout.operator!r} partition {layout.partition} stands upon checkpoint {missing[0]}, "
            "whose layout is missing",
            expected=[origin.checkpoint_id for origin in layout.upon],
            found=sorted(key[2] for key in keys if key in found),
            details={"operator": layout.operator, "partition": layout.partition, "checkpoint_id": missing[0]},
        )
    return [found[key] for key in keys]


def _accepted(reading: Reading, pipeline: str, numbers: set[int]) -> dict[tuple[int, str], set[str]]:
    """The parts that the checkpoints beneath deltas accepted: an attempt may have staged others too.

    One whose manifest is gone is left out. What it stored is verified all the same.
    """
    where = col("pipeline").eq(pipeline) & col("checkpoint_id").is_in(sorted(numbers))
    try:
        rows = reading.rows(MANIFESTS, where=where, columns=["checkpoint_id", "attempt_id", "children"])
    except (CorruptionError, StorageError) as damage:
        raise_unless_damage(damage)
        return {}
    return {
        (row["checkpoint_id"], row["attempt_id"]): {part for child in row["children"] for part in child["parts"]}
        for row in rows
    }
