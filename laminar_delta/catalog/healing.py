"""Finding a pipeline's manifest rows although some were deleted, overwritten, or lie in a file that has rotted.

The log of `manifests` tells which checkpoints were committed and in which version, and which commits may have taken rows
out. A row that is missing, changed or unreadable now is looked for in the version of its commit and in those before losses:
Delta keeps removed rows, and files from before a compaction, for the healing window. Reads by checkpoint touch only the files
whose statistics match, so one rotten file does not hide the rows of others. Where nothing is left of any row, the other tables
are asked whether there were some, and the fence: only a pipeline that none of them knows of starts afresh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from laminar_delta.catalog.checkpoints import manifest_row, see_list
from laminar_delta.catalog.committed import (
    LogTold,
    check_never_committed,
    is_intact,
    known_elsewhere,
    salvaged_rows,
    told_by_log,
)
from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.salvage import Salvaged
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, NotFoundError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRow:
    """A checkpoint whose manifest row is not as it was committed, and where its original was found, if it was."""

    checkpoint_id: int
    problem: str
    row: Row | None = None
    version: int | None = None


@dataclass(slots=True)
class FoundRows:
    """The manifest rows of a pipeline."""

    rows: list[Row] = field(default_factory=list)
    """Intact, whether as they are or as they were."""
    lost: list[LostRow] = field(default_factory=list)
    """Those that are not as they were committed."""
    notes: list[str] = field(default_factory=list)

    def add(self, lost: LostRow) -> None:
        """Takes note of a row that is not as it was committed, and of its original."""
        self.lost.append(lost)
        if lost.row is not None:
            self.rows.append(lost.row)


def find_rows(reading: Reading, pipeline: str) -> FoundRows:
    """All manifest rows of a pipeline that can be had.

    Raises:
        CorruptionError: Nothing is known of any, and the fence tells that something was committed.
        StorageError: No row can be read, and the log tells of no commit that could be looked up instead.
    """
    told = told_by_log(reading, pipeline)
    found = FoundRows(notes=list(told.notes))
    damage = ""
    salvaged = Salvaged()
    try:
        salvaged.rows = reading.rows(MANIFESTS, where=col("pipeline").eq(pipeline))
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        damage = error.message
        salvaged = salvaged_rows(reading, pipeline, told.ids)
        found.notes.extend([f"manifests is damaged, and read around it: {damage}", *salvaged.beside])
    current = {row["checkpoint_id"]: row for row in salvaged.rows}
    for number in sorted({*current, *told.ids, *salvaged.lost}):
        row = current.get(number)
        if row is not None and is_intact(row):
            found.rows.append(row)
            continue
        what = "its row changed" if row is not None else salvaged.lost.get(number, "its row is gone")
        if row is None and number in salvaged.earlier:
            version, row = salvaged.earlier[number]
            found.add(LostRow(checkpoint_id=number, problem=what, row=row, version=version))
        else:
            found.add(_look_back(reading, pipeline, number, told, what))
    if damage and not told.ids and not found.rows:
        raise StorageError(
            f"the manifests of pipeline {pipeline!r} cannot be read: {damage}",
            found=damage,
            next_step="Bring the file back from a backup; recovery does not start afresh over unreadable checkpoints.",
        )
    is_now = MANIFESTS.name not in reading.versions
    if not found.rows or told.unread or (is_now and not told.is_all):
        what = "; ".join(["no version of manifests that can be read has its row", *told.unread])
        known = {row["checkpoint_id"] for row in found.rows} | {lost.checkpoint_id for lost in found.lost}
        # Losses that the log does not tell of any more: those above all that is known, or going back would go unnoticed.
        above = max(known) if found.rows and not told.unread else None
        for number in sorted(known_elsewhere(reading, pipeline, told, known, above=above)):
            # Looked for once more: it may have been committed since the rows were read.
            found.add(_look_back(reading, pipeline, number, told, what))
    if not found.rows and not found.lost:
        check_never_committed(reading, pipeline)
    return found


def find_row(reading: Reading, pipeline: str, checkpoint_id: int) -> Row | None:
    """The manifest row of a checkpoint as it was committed, retired or not; None when the log tells of no such commit.

    Raises:
        CorruptionError: It was committed, and its row is nowhere to be had.
    """
    return _current(reading, pipeline, checkpoint_id) or _earlier(reading, pipeline, checkpoint_id)


def committed_row(reading: Reading, pipeline: str, checkpoint_id: int) -> Row:
    """The same; a checkpoint that was never committed, or was removed, is `NotFoundError`."""
    row = _current(reading, pipeline, checkpoint_id)
    if row is None and checkpoint_id not in standing(reading, pipeline).removed:
        row = _earlier(reading, pipeline, checkpoint_id)
    if row is None:
        raise NotFoundError(
            f"pipeline {pipeline!r} has no checkpoint {checkpoint_id}",
            expected=checkpoint_id,
            next_step=f"{see_list(pipeline)}; it may never have been committed, or have been removed.",
        )
    return row


def unchanged_row(reading: Reading, pipeline: str, checkpoint_id: int) -> Row:
    """The row as it is now. Raises `CorruptionError` unless it is the one that was committed: it may hold state."""
    row = manifest_row(reading, pipeline, checkpoint_id)
    if not is_intact(row):
        raise CorruptionError(
            f"the manifest row of checkpoint {checkpoint_id} of pipeline {pipeline!r} is not the one that was committed",
            expected=row["content_digest"],
            found="other content",
            details={"table": MANIFESTS.name, "checkpoint_id": checkpoint_id},
        )
    return row


def _current(reading: Reading, pipeline: str, checkpoint_id: int) -> Row | None:
    """The row as it is, if it is the one that was committed."""
    where = col("pipeline").eq(pipeline) & col("checkpoint_id").eq(checkpoint_id)
    try:
        rows = reading.rows(MANIFESTS, where=where)
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        return None
    return next((row for row in rows if is_intact(row)), None)


def _earlier(reading: Reading, pipeline: str, checkpoint_id: int) -> Row | None:
    """The row as the log tells of it."""
    found = find_rows(reading, pipeline)
    lost = next((lost for lost in found.lost if lost.checkpoint_id == checkpoint_id and lost.row is None), None)
    if lost is not None:
        raise CorruptionError(
            f"the manifest of checkpoint {checkpoint_id} of pipeline {pipeline!r} is lost: {lost.problem}",
            expected=checkpoint_id,
            found=lost.problem,
        )
    return next((row for row in found.rows if row["checkpoint_id"] == checkpoint_id), None)


def highest_epoch(reading: Reading, pipeline: str) -> int:
    """The highest epoch any checkpoint of a pipeline has, visible or not; 0 without one."""
    found = find_rows(reading, pipeline)
    # A lost manifest does not tell its epoch; unless callers number epochs themselves, it is the id.
    epochs: list[int] = [row["epoch"] for row in found.rows]
    return max([0, *epochs, *(lost.checkpoint_id for lost in found.lost)])


def as_saved(reading: Reading, row: Row) -> Reading:
    """The child tables as they were right after a checkpoint's last part.

    Rows of the checkpoints that store some of its state are read as of their own last part: they may have been gone already
    when this one was saved.
    """
    stored_at: dict[tuple[str, int], int] = {}
    for pipeline, number in stores(reading, row):
        for child in (_found(reading, pipeline, number) or {}).get("children", ()):
            stored_at[child["table"], number] = child["version"]
    for child in row["children"]:
        reading = reading.with_version(child["table"], child["version"])
    return replace(reading, stored_at=stored_at)


def stores(reading: Reading, row: Row) -> list[tuple[str, int]]:
    """The checkpoints that store some of a checkpoint's state, itself aside."""
    if row["state_checkpoint_id"] is None:
        return [(row["pipeline"], number) for number in row["state_needs"] or ()]
    origin = _found(reading, row["state_pipeline"], row["state_checkpoint_id"])
    return [(row["state_pipeline"], number) for number in (origin or {}).get("state_needs") or ()]


def _found(reading: Reading, pipeline: str, checkpoint_id: int) -> Row | None:
    try:
        return find_row(reading, pipeline, checkpoint_id)
    except CorruptionError:
        return None


def healed(reading: Reading, row: Row, read: Callable[[Reading], T]) -> T:
    """What `read` makes of a checkpoint's children: as they are or, where that fails, as they were saved.

    Raises:
        CorruptionError: They are not what was saved, and their earlier version is gone or no better.
        StorageError: The same, for children that cannot be read at all.
    """
    try:
        return read(reading)
    except (CorruptionError, StorageError) as damage:
        raise_unless_damage(damage)
        try:
            return read(as_saved(reading, row))
        except (CorruptionError, StorageError, NotFoundError):
            raise damage from None


def _look_back(reading: Reading, pipeline: str, number: int, told: LogTold, problem: str) -> LostRow:
    """Looks for the original: as it is by itself, then as it was right after its commit, then before it was taken out."""
    where = col("pipeline").eq(pipeline) & col("checkpoint_id").eq(number)
    version = told.births.get(number)
    tried = [reading] if version is None else [reading, reading.with_version(MANIFESTS.name, version)]
    for attempt in tried:
        try:
            rows = attempt.rows(MANIFESTS, where=where)
        except (StorageError, CorruptionError, NotFoundError) as error:
            raise_unless_damage(error)
            problem = error.message
            continue
        for row in rows:
            if is_intact(row):
                return LostRow(
                    checkpoint_id=number,
                    problem=problem,
                    row=row,
                    version=attempt.versions.get(MANIFESTS.name),
                )
    if number in told.taken:
        version, row = told.taken[number]
        return LostRow(checkpoint_id=number, problem=problem, row=row, version=version)
    return LostRow(checkpoint_id=number, problem=problem)
