"""The rows of a pipeline's positions, all of them or an error: that a row is absent must mean that no session left one.

Every row has a checksum of its own, and the head row, in its `sequence`, the sum over all others. A session commit brings it
up to date together with the rows it changes, so rows that somebody took out (DELETE, an overwrite) are missed however long ago
that was. They are read from the version before, as long as log and files are kept, and written again with the next commit.
Where the head row is gone too, the log tells that there was one, and after its clean-up the fence. Head rows from before there
was a sum have none: of those pipelines a lost row is noticed from their next session commit on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from laminar_delta.catalog.reading import COMPACTION, raise_unless_damage
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import COMMIT_KEY
from laminar_delta.errors import CorruptionError, NotFoundError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.predicate import Predicate

HEAD = "head"
"""The kind of the row that fences the others; its `source` is empty."""
SOURCE = "source"
"""The kind of a source's position."""
RESULT = "result"
"""The kind of a query's result sequence; its `source` is the query."""

FORGET = "forget positions"
"""What the commit is called that gives up a pipeline's rows: see `forgetting`."""

EACH = 2**32
"""What each row adds to the sum beside its checksum, which is below: so rows are counted too."""

RowKey = tuple[str, str]
"""Kind and source."""


def checksum(row: Row) -> int:
    """Over what a row says of its source, query or configuration; in a form that SQL can compute too.

    The generation is not in it: a takeover raises it without knowing the rest, and a wrong one lets nobody in.
    """
    position = None if row["position"] is None else row["position"].hex().upper()
    config_hash = None if row["config_hash"] is None else int(row["config_hash"])
    said = (row["kind"], row["source"], row["sequence"], position, config_hash)
    return zlib.crc32("|".join("-" if part is None else str(part) for part in said).encode())


def sum_over(checksums: Iterable[int]) -> int:
    """What the head row says of the others."""
    return sum(EACH + one for one in checksums)


def is_whole(rows: Sequence[Row]) -> bool:
    """Whether these rows of a pipeline are all there are, by what its head row says; not without one."""
    heads = [row for row in rows if row["kind"] == HEAD]
    if len(heads) != 1:
        return False
    stated = heads[0]["sequence"]
    return stated is None or stated == sum_over(row["checksum"] for row in rows if row["kind"] != HEAD)


def intact_rows(reading: Reading, where: Predicate | None) -> list[Row]:
    """Rows as they were written, or `CorruptionError`."""
    return reading.rows_despite_rot(
        SOURCE_CHECKPOINTS, where=where, exact=True, intact=lambda row: row["checksum"] == checksum(row)
    )


def whole_rows(reading: Reading, pipeline: str) -> tuple[list[Row], tuple[Row, ...]]:
    """All rows of a pipeline, and those of them that only an earlier version has.

    Raises:
        CorruptionError: Some are lost, and no version that can be read has them.
    """
    rows = intact_rows(reading, col("pipeline").eq(pipeline))
    if not rows:
        if SOURCE_CHECKPOINTS.name not in reading.versions:
            check_never_made(reading, pipeline)
        return [], ()
    heads = [row for row in rows if row["kind"] == HEAD]
    if len(heads) != 1:
        raise CorruptionError(
            f"pipeline {pipeline!r} has {len(heads)} head rows in {SOURCE_CHECKPOINTS.name!r}",
            expected=1,
            found=len(heads),
            next_step="Restore the table to a version before someone changed it by hand.",
        )
    if is_whole(rows):
        return rows, ()
    there = {_key(row) for row in rows}
    before = _before_the_loss(reading, pipeline, heads[0])
    # What is there is part of what was committed, row by row: an older row put back has a checksum that fits it, and of one
    # that is there twice nobody can say which counts.
    if before is None or len(there) < len(rows) or not _stated(rows) <= _stated(before):
        raise CorruptionError(
            f"pipeline {pipeline!r} has lost rows in {SOURCE_CHECKPOINTS.name!r}, or somebody put others there, and no version "
            "that can be read has them as they were committed",
            expected=heads[0]["sequence"],
            found=sum_over(row["checksum"] for row in rows if row["kind"] != HEAD),
            next_step="Restore the table to a version before someone changed it by hand, or its files from a backup.",
            details={"table": SOURCE_CHECKPOINTS.name, "pipeline": pipeline},
        )
    missing = tuple(row for row in before if _key(row) not in there)
    return [*rows, *missing], missing


def check_never_made(reading: Reading, pipeline: str) -> None:
    """Raises `CorruptionError` where a pipeline has no row and had some that nobody gave up.

    The log tells it and, when it was cleaned since, the fence, which is raised in the commit that makes the head row. A
    takeover that was cut off may never have made any.
    """
    from laminar_delta.catalog.generations import application_id  # which is above: it raises head rows

    for entry in reading.history(SOURCE_CHECKPOINTS).entries:
        if entry.metadata.get("pipeline") == pipeline:
            if entry.metadata.get("operation") == FORGET:
                return
            raise CorruptionError(
                f"pipeline {pipeline!r} has lost its rows in {SOURCE_CHECKPOINTS.name!r}",
                expected="a head row",
                found=None,
                next_step=f"Restore the table: version {entry.version} had them. Nothing was made in their place. To go on "
                "without them, call `catalog.forget_positions`.",
                details={"table": SOURCE_CHECKPOINTS.name, "version": entry.version},
            )
    made, given_up = application_id(pipeline), forgotten_id(pipeline)
    stands = reading.engine.fences(SOURCE_CHECKPOINTS.name, [made, given_up])
    if stands.get(made, 0) > stands.get(given_up, 0):
        raise CorruptionError(
            f"pipeline {pipeline!r} has lost its rows in {SOURCE_CHECKPOINTS.name!r}: its fence stands, and the log does not "
            "tell of them any more",
            expected="a head row",
            found=None,
            next_step="Restore the table's files from a backup. Nothing was made in their place. To go on without them, call "
            "`catalog.forget_positions`.",
            details={"table": SOURCE_CHECKPOINTS.name, "fence": stands[made]},
        )


def forgotten_id(pipeline: str) -> str:
    """Under which name it is kept up to which fence a pipeline's rows were given up: longer than the log tells it."""
    return f"laminar-forgotten:{pipeline}"


def _before_the_loss(reading: Reading, pipeline: str, head: Row) -> list[Row] | None:
    """The rows as the head row says they are, from the version before the commit that took some; None without one."""
    for entry in reading.history(SOURCE_CHECKPOINTS).entries:
        # A session takes no row that the head row still counts.
        is_ours = COMMIT_KEY in entry.metadata and entry.operation == "MERGE"
        if entry.version == 0 or is_ours or entry.operation.startswith(COMPACTION):
            continue
        earlier = reading.with_version(SOURCE_CHECKPOINTS.name, entry.version - 1)
        try:
            rows = earlier.rows(SOURCE_CHECKPOINTS, where=col("pipeline").eq(pipeline))
        except (StorageError, CorruptionError, NotFoundError) as error:
            raise_unless_damage(error)
            continue
        others = [row for row in rows if row["kind"] != HEAD]
        if all(row["checksum"] == checksum(row) for row in others) and head["sequence"] == sum_over(
            row["checksum"] for row in others
        ):
            return [head, *others]
    return None


def _key(row: Row) -> RowKey:
    return row["kind"], row["source"]


def _stated(rows: Iterable[Row]) -> set[tuple[RowKey, int]]:
    """The rows that the head row counts, by what they say."""
    return {(_key(row), row["checksum"]) for row in rows if row["kind"] != HEAD}
