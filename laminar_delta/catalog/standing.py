"""What was decided on a pipeline's checkpoints, from the rows of `retention`: pinned, released, retired, restored, removed,
abandoned, resumed.

Decisions of a pipeline are numbered without a gap, and what one means follows from those before it. `removed` is maintenance's
word, given before it deletes any row: from then on nobody restores. `resumed` is a writer's, when it has chosen where to go on:
what an older generation abandons after that is void, because its successor may be going on from exactly there.

The numbers tell when somebody took decisions out: they run from 1 to the fence at least. Those missing are read from the
version before the loss, and written again with the next decision; where no version has them, nothing is decided or believed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.losses import fences_told, taken_rows
from laminar_delta.catalog.tables import RETENTION
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import FENCES_KEY
from laminar_delta.engine.settle import HISTORY_WINDOW
from laminar_delta.errors import CorruptionError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.predicate import Predicate

RETIRED = "retired"
RESTORED = "restored"
PINNED = "pinned"
RELEASED = "released"
REMOVED = "removed"
ABANDONED = "abandoned"
RESUMED = "resumed"

_APPLICATION = "laminar-retention:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What was decided on a pipeline's checkpoints so far."""

    last: int = 0
    """The number of the last decision."""
    retired: frozenset[int] = frozenset()
    """Not visible; those removed included."""
    removed: frozenset[int] = frozenset()
    """Retired for good: their rows are being deleted, or are gone."""
    pinned: frozenset[int] = frozenset()
    abandoned: frozenset[int] = frozenset()
    decided: frozenset[int] = frozenset()
    """All on which anything was ever decided: they were committed."""
    resumed_by: int = 0
    """The newest generation that chose where to go on."""
    retired_at: Mapping[int, dt.datetime] = field(default_factory=dict)
    """When each retired checkpoint was retired."""
    missing: tuple[Row, ...] = ()
    """Decisions that somebody took out of the table, as an earlier version has them; they stand all the same."""


def standing(reading: Reading, pipeline: str, *, searched: bool = False) -> Standing:
    """The decisions of a pipeline, replayed in their order.

    Args:
        reading: Where.
        pipeline: Whose.
        searched: Whether the log since the last decisions is searched in any case. Their end, as they were made as one, can be
            taken out unnoticed: before anything is chosen or decided, search. Where other numbers are missing all of it is.

    Raises:
        CorruptionError: A decision is missing or is not the one that was made, and no earlier version of the table has it.
    """
    found = _gathered(reading, pipeline, _since_last if searched else _nothing)
    if not found.is_whole:
        found = _gathered(reading, pipeline, lambda *_: reading.history(RETENTION).entries)
    if not found.is_whole:
        raise CorruptionError(
            f"decisions {_few(found.absent)} on checkpoints of pipeline {pipeline!r} are missing from table "
            f"{RETENTION.name!r}, " + "; ".join(["and no version that can be read has them", *found.unread]),
            expected=f"decisions 1 to {found.last}",
            found=f"{len(found.rows)} of them",
            next_step=f"Restore the table {RETENTION.name!r} to a version that has them, or its files from a backup.",
            details={"table": RETENTION.name, "pipeline": pipeline},
        )
    missing = tuple(found.missing[number] for number in sorted(found.missing))
    return replace(_replayed({**found.rows, **found.missing}), missing=missing)


@dataclass(frozen=True, slots=True)
class _Gathered:
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
        return _is_whole({**self.rows, **self.missing}, self.reached)

    @property
    def last(self) -> int:
        return max([self.reached, *self.rows, *self.missing])

    @property
    def absent(self) -> list[int]:
        return sorted({*range(1, self.last + 1)} - {*self.rows, *self.missing})


def _gathered(reading: Reading, pipeline: str, log: Callable[[Reading, str], Sequence[HistoryEntry]]) -> _Gathered:
    where = col("pipeline").eq(pipeline)
    application = application_of(pipeline)
    # Fence and log before the rows: what is decided in between must not look as if it were missing.
    standing_at = {} if RETENTION.name in reading.versions else reading.engine.fences(RETENTION.name, [application])
    entries = log(reading, pipeline)
    reached = max([standing_at.get(application, 0), *fences_told(entries, application)])
    rows = {row["ordinal"]: row for row in _intact_rows(reading, where)}
    taken = taken_rows(reading, RETENTION, entries, lambda before: before.rows(RETENTION, where=where))
    missing = {row["ordinal"]: row for _, row in taken.rows if row["ordinal"] not in rows and _is_intact(row)}
    return _Gathered(rows, missing, reached, taken.unread)


def _nothing(reading: Reading, pipeline: str) -> list[HistoryEntry]:  # noqa: ARG001  # the fence alone is asked
    return []


def _since_last(reading: Reading, pipeline: str) -> list[HistoryEntry]:
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


def standings(reading: Reading) -> dict[str, Standing]:
    """The same for all pipelines that have a decision, read at once; also for those whose decisions were all taken out."""
    # The log before the rows, as above. It tells of a pipeline by the fence of each decision, or by the rows before a loss.
    entries = reading.history(RETENTION).entries
    columns = ["pipeline", "ordinal"]
    taken = taken_rows(reading, RETENTION, entries, lambda before: before.rows(RETENTION, columns=columns))
    reached = _reached(entries)
    together: dict[str, dict[int, Row]] = {name: {} for name in (*reached, *(row["pipeline"] for _, row in taken.rows))}
    for row in _intact_rows(reading, None):
        together.setdefault(row["pipeline"], {})[row["ordinal"]] = row
    lost = {row["pipeline"] for _, row in taken.rows if row["ordinal"] not in together[row["pipeline"]]}
    return {
        pipeline: standing(reading, pipeline, searched=True)
        if pipeline in lost or not _is_whole(rows, reached.get(pipeline, 0))
        else _replayed(rows)
        for pipeline, rows in together.items()
    }


def _reached(entries: Iterable[HistoryEntry]) -> dict[str, int]:
    """By pipeline where the fence of its decisions stands, as far as a log tells."""
    found: dict[str, int] = {}
    for entry in entries:
        carried = entry.metadata.get(FENCES_KEY)
        for name, version in carried.items() if isinstance(carried, dict) else ():
            if name.startswith(_APPLICATION) and isinstance(version, int):
                pipeline = name.removeprefix(_APPLICATION)
                found[pipeline] = max(version, found.get(pipeline, 0))
    return found


def _intact_rows(reading: Reading, where: Predicate | None) -> list[Row]:
    return reading.rows_despite_rot(RETENTION, where=where, exact=True, intact=_is_intact)


def _is_intact(row: Row) -> bool:
    return digest_of(row) == str(row["digest"])


def _is_whole(rows: Collection[int], reached: int) -> bool:
    """Whether numbers run from 1 without a gap, to the fence or beyond: it stands at the first of those made last."""
    return len(rows) >= reached and max(rows, default=0) == len(rows)


def _few(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")


def application_of(pipeline: str) -> str:
    """Under which name a pipeline's decisions are fenced."""
    return f"{_APPLICATION}{pipeline}"


def _replayed(by_ordinal: Mapping[int, Row]) -> Standing:
    rows = by_ordinal.values()
    marks: dict[str, set[int]] = {RETIRED: set(), PINNED: set(), ABANDONED: set(), REMOVED: set()}
    retired_at: dict[int, dt.datetime] = {}
    resumed_by = 0
    for row in sorted(rows, key=lambda row: row["ordinal"]):
        word, number = row["decision"], row["checkpoint_id"]
        if word == RESUMED:
            resumed_by = max(resumed_by, row["generation"])
        elif word == RESTORED and number not in marks[REMOVED]:
            marks[RETIRED].discard(number)
        elif word == RELEASED:
            marks[PINNED].discard(number)
        elif word in marks and (word != ABANDONED or row["generation"] >= resumed_by):
            marks[word].add(number)
            if word == RETIRED:
                retired_at[number] = row["decided_at"]
    return Standing(
        last=max((row["ordinal"] for row in rows), default=0),
        retired=frozenset(marks[RETIRED]),
        removed=frozenset(marks[REMOVED]),
        pinned=frozenset(marks[PINNED]),
        abandoned=frozenset(marks[ABANDONED]),
        decided=frozenset(row["checkpoint_id"] for row in rows if row["checkpoint_id"] is not None),
        resumed_by=resumed_by,
        retired_at={number: moment for number, moment in retired_at.items() if number in marks[RETIRED]},
    )


def digest_of(row: Row) -> str:
    """The digest a decision's row carries: a byte that rots in it must not retire another checkpoint."""
    return row_digest(row, without=["digest"])
