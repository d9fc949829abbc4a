"""What was decided on a pipeline's checkpoints, from the rows of `retention`: pinned, released, retired, restored, removed,
abandoned, resumed, burned.

Decisions of a pipeline are numbered without a gap, and what one means follows from those before it. `removed` is maintenance's
word, given before it deletes any row: from then on nobody restores. `resumed` is a writer's, when it has chosen where to go on:
what an older generation abandons after that is void, because its successor may be going on from exactly there. `burned` is a
writer's too, when it lets go: no id up to that one is given out again, though not all of them became checkpoints.

The numbers tell when somebody took decisions out: they run from 1 to the fence at least. Those missing are read from the
version before the loss, and written again with the next decision; where no version has them, nothing is decided or believed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.decision_rows import (
    APPLICATION,
    application_of,
    gathered,
    intact_rows,
    is_whole,
    nothing,
    since_last,
)
from laminar_delta.catalog.losses import fences_told, losses, taken_rows
from laminar_delta.catalog.remembered import Remembered, commits_since, memory_of, newest_commits
from laminar_delta.catalog.tables import RETENTION
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import FENCES_KEY
from laminar_delta.errors import CorruptionError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.answer import HistoryEntry

RETIRED = "retired"
RESTORED = "restored"
PINNED = "pinned"
RELEASED = "released"
REMOVED = "removed"
ABANDONED = "abandoned"
RESUMED = "resumed"
BURNED = "burned"


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
    burned: int = 0
    """The highest id that a writer gave out and let go of without having committed it."""
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
    if RETENTION.name in reading.versions:
        return _read_all(reading, pipeline, searched=searched)
    memory = memory_of(reading.engine)
    known = memory.recall(pipeline)
    # Before the rows: what is committed after it is looked at the next time.
    newest = newest_commits(reading)
    current = None if known is None else _up_to_date(reading, pipeline, known, newest, searched=searched)
    if current is None:
        seen = _read_all(reading, pipeline, searched=searched)
        if not newest or seen.missing:
            memory.forget(pipeline)
            return seen
        current = Remembered(seen=seen, at=newest[0], searched=searched)
    memory.keep(pipeline, current)
    return current.seen


def _up_to_date(
    reading: Reading, pipeline: str, known: Remembered, newest: list[HistoryEntry], *, searched: bool
) -> Remembered | None:
    """What is remembered, with what was decided since; None when all has to be read anew."""
    since = commits_since(reading, known, newest)
    if since is None:
        return None
    if searched and not known.searched:
        if any(losses(since_last(reading, pipeline))):
            return None
        known = replace(known, searched=True)
    if not since:
        return known
    reached = max(fences_told(since, application_of(pipeline)), default=0)
    seen = known.seen
    if reached:
        # At that very version: all that was decided up to there, and nothing that could have been taken out since.
        then = reading.with_version(RETENTION.name, since[0].version)
        where = col("pipeline").eq(pipeline) & col("ordinal").gt(seen.last)
        rows = {row["ordinal"]: row for row in intact_rows(then, where)}
        if seen.last + len(rows) < reached or max(rows, default=seen.last) != seen.last + len(rows):
            return None
        seen = _replayed(rows, seen)
    return Remembered(seen=seen, at=since[0], searched=known.searched)


def _read_all(reading: Reading, pipeline: str, *, searched: bool) -> Standing:
    """All decisions of a pipeline, from the beginning."""
    found = gathered(reading, pipeline, since_last if searched else nothing)
    if not found.is_whole:
        found = gathered(reading, pipeline, lambda *_: reading.history(RETENTION).entries)
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


def standings(reading: Reading) -> dict[str, Standing]:
    """The same for all pipelines that have a decision, read at once; also for those whose decisions were all taken out."""
    # The log before the rows, as above. It tells of a pipeline by the fence of each decision, or by the rows before a loss.
    entries = reading.history(RETENTION).entries
    columns = ["pipeline", "ordinal"]
    taken = taken_rows(reading, RETENTION, entries, lambda before: before.rows(RETENTION, columns=columns))
    reached = _reached(entries)
    together: dict[str, dict[int, Row]] = {name: {} for name in (*reached, *(row["pipeline"] for _, row in taken.rows))}
    for row in intact_rows(reading, None):
        together.setdefault(row["pipeline"], {})[row["ordinal"]] = row
    lost = {row["pipeline"] for _, row in taken.rows if row["ordinal"] not in together[row["pipeline"]]}
    return {
        pipeline: standing(reading, pipeline, searched=True)
        if pipeline in lost or not is_whole(rows, reached.get(pipeline, 0))
        else _replayed(rows)
        for pipeline, rows in together.items()
    }


def _reached(entries: Iterable[HistoryEntry]) -> dict[str, int]:
    """By pipeline where the fence of its decisions stands, as far as a log tells."""
    found: dict[str, int] = {}
    for entry in entries:
        carried = entry.metadata.get(FENCES_KEY)
        for name, version in carried.items() if isinstance(carried, dict) else ():
            if name.startswith(APPLICATION) and isinstance(version, int):
                pipeline = name.removeprefix(APPLICATION)
                found[pipeline] = max(version, found.get(pipeline, 0))
    return found


def _replayed(by_ordinal: Mapping[int, Row], upon: Standing | None = None) -> Standing:
    """What decisions come to, upon those before them."""
    before = upon or Standing()
    marks: dict[str, set[int]] = {
        RETIRED: set(before.retired),
        PINNED: set(before.pinned),
        ABANDONED: set(before.abandoned),
        REMOVED: set(before.removed),
    }
    retired_at = dict(before.retired_at)
    resumed_by, burned = before.resumed_by, before.burned
    for _, row in sorted(by_ordinal.items()):
        word, number = row["decision"], row["checkpoint_id"]
        if word == RESUMED:
            resumed_by = max(resumed_by, row["generation"])
        elif word == BURNED:
            burned = max(burned, number)
        elif word == RESTORED and number not in marks[REMOVED]:
            marks[RETIRED].discard(number)
        elif word == RELEASED:
            marks[PINNED].discard(number)
        elif word in marks and (word != ABANDONED or row["generation"] >= resumed_by):
            marks[word].add(number)
            if word == RETIRED:
                retired_at[number] = row["decided_at"]
    decided = (row["checkpoint_id"] for row in by_ordinal.values() if row["decision"] != BURNED)
    return Standing(
        last=max(by_ordinal, default=before.last),
        retired=frozenset(marks[RETIRED]),
        removed=frozenset(marks[REMOVED]),
        pinned=frozenset(marks[PINNED]),
        abandoned=frozenset(marks[ABANDONED]),
        decided=before.decided.union(number for number in decided if number is not None),
        burned=burned,
        resumed_by=resumed_by,
        retired_at={number: moment for number, moment in retired_at.items() if number in marks[RETIRED]},
    )


def _few(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
