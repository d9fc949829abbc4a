"""How high the numbers of a pipeline go in a table of which some files cannot be read.

Their statistics are in the log, and tell how far the numbers in each file go. So a number is looked for above which nothing
unreadable is touched: all there are above it can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.engine.predicate import MAX_BIGINT, col
from laminar_delta.errors import CorruptionError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.engine.request import TableSpec
    from laminar_delta.errors import LaminarDeltaError


def above(reading: Reading, table: TableSpec, pipeline: str, column: str, number: int) -> set[int]:
    """Numbers above one, and that one. Only files that may hold such are touched, by partition or statistics."""
    where = col("pipeline").eq(pipeline) & col(column).gt(number)
    return {number, *(row[column] for row in reading.rows(table, where=where, columns=[column]))}


def bound(reading: Reading, table: TableSpec, pipeline: str, column: str, known: int, damage: LaminarDeltaError) -> int:
    """A number that none in a table is above, though a file with some above the known one cannot be read.

    Raises:
        LaminarDeltaError: The damage, where numbers of any height could be in it.
    """

    def readable(number: int) -> bool:
        try:
            above(reading, table, pipeline, column, number)
        except (StorageError, CorruptionError) as error:
            raise_unless_damage(error)
            return False
        return True

    # In growing steps first: numbers are small, as a rule.
    low, step = known, 1
    while not readable(min(known + step, MAX_BIGINT)):
        low, step = known + step, step * 2
        if low >= MAX_BIGINT:
            raise damage
    high = min(known + step, MAX_BIGINT)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if readable(middle) else (middle, high)
    if high == MAX_BIGINT:
        # Nothing can be above it, in whatever file: it tells nothing.
        raise damage
    return max(above(reading, table, pipeline, column, high))
