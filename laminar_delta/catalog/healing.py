"""Finding a pipeline's manifest rows although some were deleted, overwritten, or lie in a file that has rotted.

The log of `manifests` tells which checkpoints were committed and in which version. A row that is missing, changed or unreadable
now is looked for in that version: Delta keeps removed rows, and files from before a compaction, for the healing window. Reads
by checkpoint touch only the files whose statistics match, so one rotten file does not hide the rows of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from laminar_delta.catalog.attempt import births
from laminar_delta.catalog.decisions import standing
from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.reading import raise_unless_damage
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


def find_rows(reading: Reading, pipeline: str) -> FoundRows:
    """All manifest rows of a pipeline that can be had.

    Raises:
        StorageError: The table cannot be read, and its log tells of no commit that could be looked up instead.
    """
    found = FoundRows()
    problem = ""
    try:
        current = {row["checkpoint_id"]: row for row in reading.rows(MANIFESTS, where=col("pipeline").eq(pipeline))}
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        current, problem = {}, error.message
    committed = _committed(reading, pipeline, found)
    if problem and not committed:
        raise StorageError(
            f"the manifests of pipeline {pipeline!r} cannot be read: {problem}",
            found=problem,
            next_step="Bring the file back from a backup; recovery does not start afresh over unreadable checkpoints.",
        )
    for number in sorted({*current, *committed}):
        row = current.get(number)
        if row is not None and is_intact(row):
            found.rows.append(row)
            continue
        what = "its row changed" if row is not None else problem or "its row is gone"
        lost = _look_back(reading, pipeline, number, committed.get(number), what)
        found.lost.append(lost)
        if lost.row is not None:
            found.rows.append(lost.row)
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
            next_step="See `list` for those there are; it may never have been committed, or have been removed.",
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


def committed_ids(reading: Reading, pipeline: str) -> set[int]:
    """The checkpoints the log tells of, also those whose rows are gone by now."""
    return set(_committed(reading, pipeline, FoundRows()))


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
    for pipeline, number in _stores(reading, row):
        for child in (_found(reading, pipeline, number) or {}).get("children", ()):
            stored_at[child["table"], number] = child["version"]
    for child in row["children"]:
        reading = reading.with_version(child["table"], child["version"])
    return replace(reading, stored_at=stored_at)


def _stores(reading: Reading, row: Row) -> list[tuple[str, int]]:
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


def is_intact(row: Row) -> bool:
    """Whether a manifest row is the one that was committed."""
    return bool(row_digest(row, without=["content_digest"]) == row["content_digest"])


def _committed(reading: Reading, pipeline: str, found: FoundRows) -> dict[int, int]:
    """Per checkpoint the version that committed it, as far as the log reaches."""
    history = reading.engine.history(MANIFESTS.name)
    newest = reading.versions.get(MANIFESTS.name)
    committed: dict[int, int] = {}
    for entry in history:
        if newest is not None and entry.version > newest:
            continue
        for born in births(entry):
            if born.get("pipeline") == pipeline and isinstance(number := born["checkpoint"], int):
                committed[number] = entry.version
    if history and history[-1].version > 0:
        found.notes.append(f"the log of manifests reaches back to version {history[-1].version} only")
    return committed


def _look_back(reading: Reading, pipeline: str, number: int, version: int | None, problem: str) -> LostRow:
    """Looks for the original: as it is by itself, then as it was right after its commit."""
    where = col("pipeline").eq(pipeline) & col("checkpoint_id").eq(number)
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
    return LostRow(checkpoint_id=number, problem=problem)
