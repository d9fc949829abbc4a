"""The rows of decisions as they lie in `retention`: which are there, which are missing, whether they are what was decided."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.losses import fences_told, taken_rows
from laminar_delta.catalog.tables import RETENTION
from laminar_delta.engine.predicate import col
from laminar_delta.engine.settle import HISTORY_WINDOW

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.predicate import Predicate

APPLICATION = "laminar-retention:"


@dataclass(frozen=True, slots=True)
class Gathered:
    """The decisions of a pipeline by number, as far as they were found."""

    rows: Mapping[int, Row]
    """Those in the table."""
    missing: Mapping[int, Row]
    """Those only an earlier version has."""
    reached: int
    """The first of those made last, by the fence."""
    unread: list[str]
    """Where others may have been and nobody can look any more, in words."""

    @property
    def is_whole(self) -> bool:
        """Whether none is missing for good."""
        return is_whole({**self.rows, **self.missing}, self.reached)

    @property
    def last(self) -> int:
        """The highest number that anything tells of."""
        return max([self.reached, *self.rows, *self.missing])

    @property
    def absent(self) -> list[int]:
        """The numbers that were not found."""
        return sorted({*range(1, self.last + 1)} - {*self.rows, *self.missing})


def gathered(reading: Reading, pipeline: str, log: Callable[[Reading, str], Sequence[HistoryEntry]]) -> Gathered:
    """All decisions of a pipeline that can be found, where `log` says which commits to look behind."""
    where = col("pipeline").eq(pipeline)
    application = application_of(pipeline)
    # Fence and log before the rows: what is decided in between must not look as if it were missing.
    standing_at = {} if RETENTION.name in reading.versions else reading.engine.fences(RETENTION.name, [application])
    entries = log(reading, pipeline)
    reached = max([standing_at.get(application, 0), *fences_told(entries, application)])
    rows = {row["ordinal"]: row for row in intact_rows(reading, where)}
    taken = taken_rows(reading, RETENTION, entries, lambda before: before.rows(RETENTION, where=where))
    missing = {row["ordinal"]: row for _, row in taken.rows if row["ordinal"] not in rows and _is_intact(row)}
    return Gathered(rows, missing, reached, taken.unread)


def nothing(reading: Reading, pipeline: str) -> list[HistoryEntry]:  # noqa: ARG001  # the fence alone is asked
    """No commits."""
    return []


def since_last(reading: Reading, pipeline: str) -> list[HistoryEntry]:
    """The commits from a pipeline's last decisions on, newest first; all that are known where it has none.

    Only they can have taken away the end of those. What was taken before, whoever made them has seen and written again.
    """
    entries: list[HistoryEntry] = []
    for limit in (HISTORY_WINDOW, None):
        entries = reading.history(RETENTION, limit=limit).entries
        for place, entry in enumerate(entries, 1):
            if fences_told([entry], application_of(pipeline)):
                return entries[:place]
    return entries


def intact_rows(reading: Reading, where: Predicate | None) -> list[Row]:
    """Decisions as they were made. Raises `CorruptionError` where that cannot be had."""
    return reading.rows_despite_rot(RETENTION, where=where, exact=True, intact=_is_intact)


def _is_intact(row: Row) -> bool:
    return digest_of(row) == str(row["digest"])


def is_whole(rows: Collection[int], reached: int) -> bool:
    """Whether numbers run from 1 without a gap, to the fence or beyond: it stands at the first of those made last."""
    return len(rows) >= reached and max(rows, default=0) == len(rows)


def application_of(pipeline: str) -> str:
    """Under which name a pipeline's decisions are fenced."""
    return f"{APPLICATION}{pipeline}"


def digest_of(row: Row) -> str:
    """The digest a decision's row carries: a byte that rots in it must not retire another checkpoint."""
    return row_digest(row, without=["digest"])
