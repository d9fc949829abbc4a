"""Which checkpoints of a pipeline were ever committed, as `manifests`, its log and the other tables tell.

The log tells of each commit for as long as it is kept. What is older has a row, or had one in the version before a commit that
took it out. Where files are damaged, rows are read around them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laminar_delta.catalog.attempt import births
from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.generations import stands_at
from laminar_delta.catalog.losses import taken_rows
from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.salvage import Salvaged, salvage
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.catalog.traces import certain_ids, staged_ids
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, NotFoundError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row


@dataclass(slots=True)
class LogTold:
    """What the log of `manifests` tells of a pipeline's checkpoints."""

    births: dict[int, int] = field(default_factory=dict)
    """By checkpoint the version that committed it."""
    taken: dict[int, tuple[int, Row]] = field(default_factory=dict)
    """By checkpoint its row from before a commit that may have taken it out, and the version it was found in."""
    attempts: set[object] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)
    """Where rows may have been taken out and nobody can look any more, in words."""
    since_ms: int = 0
    """From when on the log is kept; 0 for all of it."""
    is_all: bool = False
    """Whether the log goes back to the beginning: then there were no others."""
    notes: list[str] = field(default_factory=list)

    @property
    def ids(self) -> set[int]:
        """All of them."""
        return {*self.births, *self.taken}


def told_by_log(reading: Reading, pipeline: str) -> LogTold:
    """What the log tells, as far as it reaches."""
    told = LogTold()
    history = reading.history(MANIFESTS)
    entries = history.entries
    for entry in entries:
        for born in births(entry):
            if born.get("pipeline") == pipeline and isinstance(number := born["checkpoint"], int):
                told.births[number] = entry.version
                told.attempts.add(born["attempt"])
    told.is_all = bool(entries) and entries[-1].version == 0
    if entries and entries[-1].version > 0:
        told.since_ms = entries[-1].timestamp_ms
        told.notes.append(f"the log of manifests reaches back to version {entries[-1].version} only")

    def read(before: Reading) -> list[Row]:
        try:
            return before.rows(MANIFESTS, where=col("pipeline").eq(pipeline))
        except (StorageError, CorruptionError) as error:
            raise_unless_damage(error)
            salvaged = salvaged_rows(before, pipeline, set(told.births))
            rows = [*salvaged.rows, *(row for number, (_, row) in salvaged.earlier.items() if number in salvaged.lost)]
            if not rows:
                raise
            told.unread.append(f"an earlier version of manifests can be read in part only: {error.message}")
            return rows

    taken = taken_rows(reading, MANIFESTS, entries, read)
    for version, row in taken.rows:
        if is_intact(row):
            told.taken.setdefault(row["checkpoint_id"], (version, row))
            told.attempts.add(row["attempt_id"])
    if history.damage is not None:
        # What took rows out may be in there, unlike in what was cleaned away after the healing window.
        told.unread.append(f"the log of manifests cannot be read any further back: {history.damage}")
    told.unread.extend(taken.unread)
    told.notes.extend(told.unread)
    return told


def known_elsewhere(
    reading: Reading, pipeline: str, told: LogTold, known: set[int], *, above: int | None = None
) -> set[int]:
    """Checkpoints that other tables tell of, beside those that have a row or that the log knows: never a fresh start.

    Where nothing at all is known of a pipeline, children from before the log was kept count as well: that they are of attempts
    that never committed could only be told by what is gone.

    Args:
        reading: Where.
        pipeline: Whose.
        told: What the log tells.
        known: Those that have a row, or that the log knows.
        above: Only those above that one.
    """
    found = certain_ids(reading, pipeline, above=above)
    if not known:
        found |= staged_ids(reading, pipeline, before_ms=None if told.unread else told.since_ms)
    return found - known


def salvaged_rows(reading: Reading, pipeline: str, known: set[int]) -> Salvaged:
    """What can be read of a damaged table; the other tables know ids that its log does not tell of any more."""
    # As they are now, whatever version of manifests is read: children stay as long as their checkpoint.
    known = known | certain_ids(reading, pipeline) | staged_ids(reading, pipeline)
    return salvage(reading, MANIFESTS, pipeline, known, _before_compaction(reading, pipeline))


def _before_compaction(reading: Reading, pipeline: str) -> dict[int, tuple[int, Row]]:
    """By checkpoint its row as it was before the last compaction that can be looked behind; rows never change."""
    for version in reading.before_compactions(MANIFESTS, exact=False):
        try:
            rows = reading.with_version(MANIFESTS.name, version).rows(MANIFESTS, where=col("pipeline").eq(pipeline))
        except (StorageError, CorruptionError, NotFoundError) as error:
            raise_unless_damage(error)
            continue
        return {row["checkpoint_id"]: (version, row) for row in rows if is_intact(row)}
    return {}


def is_intact(row: Row) -> bool:
    """Whether a manifest row is the one that was committed."""
    return bool(row_digest(row, without=["content_digest"]) == row["content_digest"])


def committed_ids(reading: Reading, pipeline: str) -> set[int]:
    """The checkpoints that have a row or that the log tells of, also those whose rows are gone or unreadable by now.

    Raises:
        StorageError: Some rows cannot be read, and there may be others among them than are known.
    """
    told = told_by_log(reading, pipeline)
    try:
        rows = reading.rows(MANIFESTS, where=col("pipeline").eq(pipeline), columns=["checkpoint_id"])
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        salvaged = salvaged_rows(reading, pipeline, told.ids)
        if salvaged.beside and not told.is_all:
            raise
        return {row["checkpoint_id"] for row in salvaged.rows} | set(salvaged.lost) | told.ids
    return {row["checkpoint_id"] for row in rows} | told.ids


def check_never_committed(reading: Reading, pipeline: str) -> None:
    """Refuses to take a pipeline for a new one of which nothing is known but its fence, where that tells of a commit.

    What was never staged, because all of it travels in the manifest row, leaves no other trace when that row and its log are
    gone. Whoever began anew, or had all of it removed, has decided on it: then it is no loss.

    Raises:
        CorruptionError: Something was committed, or may have been, and nothing tells what.
    """
    if MANIFESTS.name in reading.versions:
        return
    generation, ordinal = stands_at(reading.engine, pipeline)
    if not ordinal:
        return
    seen = standing(reading, pipeline)
    if seen.removed or seen.abandoned:
        return
    entries = reading.history(MANIFESTS).entries
    if entries and entries[-1].version == 0:
        # The log is whole and tells of none: a save without an answer was settled, which raises the fence as well.
        return
    raise CorruptionError(
        f"pipeline {pipeline!r} is no new one, and nothing tells of its checkpoints: its fence stands at generation "
        f"{generation} behind a commit, or a save whose outcome was unknown; no row is left, and the log was cleaned since",
        expected="its checkpoints",
        found=[],
        next_step=f"Restore the table {MANIFESTS.name!r} to a version that has them, or its files from a backup; or go on "
        "under another name: which ids were given out is not known any more.",
        details={"table": MANIFESTS.name, "pipeline": pipeline},
    )
