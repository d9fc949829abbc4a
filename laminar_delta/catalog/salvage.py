"""Reading what can be read of a pipeline's rows in a table of which some files are missing or rotten.

Reads of a range of checkpoints touch only the files whose statistics match. So the range is halved until what is damaged stands
by itself: the checkpoints in it are lost, all others are read. Where to halve is told by the ids the caller knows of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.engine.predicate import MAX_BIGINT, col
from laminar_delta.errors import CorruptionError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.request import TableSpec


@dataclass(frozen=True, slots=True)
class _Range:
    """Checkpoints between two, both included; None for no end."""

    low: int | None
    high: int | None
    known: list[int]

    @property
    def is_empty(self) -> bool:
        # No number is above the largest: no engine could even be asked.
        return self.low is not None and self.low > (MAX_BIGINT if self.high is None else self.high)

    @property
    def is_one(self) -> bool:
        return self.low is not None and self.low == self.high

    def parts(self) -> list[_Range]:
        """The same in smaller ones: two halves or, around a single known id, itself and what is beside it."""
        middle = self.known[len(self.known) // 2]
        below = [number for number in self.known if number < middle]
        above = [number for number in self.known if number > middle]
        if below or above:
            return [_Range(self.low, middle - 1, below), _Range(middle, self.high, [middle, *above])]
        return [_Range(self.low, middle - 1, []), _Range(middle, middle, [middle]), _Range(middle + 1, self.high, [])]

    def __str__(self) -> str:
        ends = [f"from checkpoint {self.low} on"] if self.low is not None else []
        ends += [f"up to checkpoint {self.high}"] if self.high is not None else []
        return " ".join(ends) or "all of them"


@dataclass(slots=True)
class Salvaged:
    """What could be read, and what could not."""

    rows: list[Row] = field(default_factory=list)
    lost: dict[int, str] = field(default_factory=dict)
    """Checkpoints, of those known, whose rows would be where nothing can be read, and why."""
    earlier: dict[int, tuple[int, Row]] = field(default_factory=dict)
    """Rows as an earlier version has them, and which: of all that were there then."""
    beside: list[str] = field(default_factory=list)
    """Where else nothing can be read, in words: whether there were rows of others is not known."""


def salvage(
    reading: Reading,
    spec: TableSpec,
    pipeline: str,
    known: Iterable[int],
    earlier: Mapping[int, tuple[int, Row]] | None = None,
) -> Salvaged:
    """Reads a pipeline's rows around what is damaged. Storage that does not answer raises: it may have them whole later.

    Args:
        reading: Where.
        spec: The table.
        pipeline: Whose.
        known: The checkpoints there may be.
        earlier: Rows of some, from an earlier version: a range of nothing but those is not halved any further. A file that
            compaction wrote has many, and each would be read twice for itself.
    """
    found = Salvaged(earlier=dict(earlier or {}))
    todo = [_Range(None, None, sorted({*known, *found.earlier}))]
    while todo:
        part = todo.pop()
        if part.is_empty:
            continue
        where = col("pipeline").eq(pipeline)
        if part.low is not None:
            where = where & col("checkpoint_id").ge(part.low)
        if part.high is not None:
            where = where & col("checkpoint_id").le(part.high)
        try:
            found.rows.extend(reading.rows(spec, where=where))
        except (StorageError, CorruptionError) as error:
            raise_unless_damage(error)
            if not part.known:
                found.beside.append(f"rows of {spec.name} {part} cannot be read: {error.message}")
            elif part.is_one or found.earlier.keys() >= set(part.known):
                found.lost.update(dict.fromkeys(part.known, error.message))
            else:
                todo.extend(part.parts())
    return found
