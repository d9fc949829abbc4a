"""What is committed of a pipeline's sources: one row per source, and one head row that fences them all.

The head row holds the generation that may commit and the number of its last session commit. Every session commit rewrites it,
under the condition that it still is what the session began with: compare and set, in the one merge that brings the rows.
A takeover raises it, so that also statements without a transaction identifier, such as SQL in a notebook, are fenced.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.clock import now
from laminar_delta.catalog.names import check_text
from laminar_delta.catalog.patience import again_after_conflicts
from laminar_delta.catalog.reading import Reading, raise_unless_damage
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col, source, target
from laminar_delta.engine.request import Merge, WhenMatched
from laminar_delta.errors import CorruptionError, FencedError, InvalidInputError, StorageError
from laminar_delta.model.source_checkpoint import SourceCheckpoint

if TYPE_CHECKING:
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.predicate import Predicate

HEAD = "head"
"""The kind of the row that fences the others; its `source` is empty."""
SOURCE = "source"
"""The kind of a source's position."""
RESULT = "result"
"""The kind of a query's result sequence; its `source` is the query."""

FORGET = "forget positions"
"""What the commit is called that gives up a pipeline's rows: see `forgetting`."""

KEYS = ("pipeline", "kind", "source")
"""What a row is known by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """What is committed of a pipeline's sources at one moment."""

    pipeline: str
    generation: int = 0
    """The one that may commit; 0 before there was any."""
    ordinal: int = 0
    """Of the last session commit of that generation; 0 before its first."""
    session_id: str | None = None
    """The session that committed last."""
    config_hash: int | None = None
    sources: Mapping[str, SourceCheckpoint] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    """The last result sequence of each query."""

    @property
    def empty(self) -> bool:
        """Whether nothing of a run is there: no position and no result sequence."""
        return not self.sources and not self.results


def read_positions(reading: Reading, pipeline: str) -> Positions:
    """Everything committed of a pipeline's sources. What cannot be read is an error, never nothing."""
    rows = _rows(reading, col("pipeline").eq(pipeline))
    heads = [row for row in rows if row["kind"] == HEAD]
    if len(heads) != min(1, len(rows)):
        raise CorruptionError(
            f"pipeline {pipeline!r} has {len(heads)} head rows in {SOURCE_CHECKPOINTS.name!r}",
            expected=1,
            found=len(heads),
            next_step="Restore the table to a version before someone changed it by hand.",
        )
    head: Row = heads[0] if heads else dict.fromkeys(SOURCE_CHECKPOINTS.schema.names)
    return Positions(
        pipeline=pipeline,
        generation=head["generation"] or 0,
        ordinal=head["ordinal"] or 0,
        session_id=head["session_id"],
        config_hash=None if head["config_hash"] is None else int(head["config_hash"]),
        sources={row["source"]: _checkpoint(row) for row in rows if row["kind"] == SOURCE},
        results={row["source"]: row["sequence"] for row in rows if row["kind"] == RESULT},
    )


def read_position(reading: Reading, pipeline: str, name: str) -> SourceCheckpoint | None:
    """The committed position of one source."""
    name = check_text("source", name)
    where = col("pipeline").eq(pipeline) & col("kind").eq(SOURCE) & col("source").eq(name)
    rows = _rows(reading, where)
    return _checkpoint(rows[0]) if rows else None


def min_confirmed(
    reading: Reading, name: str, pipelines: Collection[str] | None = None
) -> tuple[str, SourceCheckpoint] | None:
    """The pipeline that is furthest behind on a source, and where it is: what comes before, nobody asks for again.

    Args:
        reading: Where.
        name: The source.
        pipelines: Who counts; all by default. One that has confirmed nothing yet is left out.

    Returns:
        None when nobody has confirmed anything.
    """
    where = col("kind").eq(SOURCE) & col("source").eq(check_text("source", name))
    if pipelines is not None:
        if isinstance(pipelines, str):
            raise InvalidInputError("who counts is given by several names", expected="a list of names", found="a text")
        pipelines = [check_text("pipeline", one) for one in pipelines]
        where = col("pipeline").is_in(sorted(set(pipelines))) & where
    rows = _rows(reading, where)
    behind = min(rows, key=lambda row: (row["sequence"], row["pipeline"]), default=None)
    return None if behind is None else (behind["pipeline"], _checkpoint(behind))


def raise_head(engine: Engine, taken: Generation, metadata: Mapping[str, object]) -> bool:
    """Puts a generation into the head row, and its fence beside it, in one commit. False when it stands there, or a newer.

    Raises:
        CorruptionError: There is no head row any more, although the log tells of one: its rows were lost, not never made.
    """
    row: Row = dict.fromkeys(SOURCE_CHECKPOINTS.schema.names)
    row |= {
        "pipeline": taken.pipeline,
        "kind": HEAD,
        "source": "",
        "generation": taken.number,
        "ordinal": 0,
        "changed_at": now(),
        "changed_by": taken.owner,
    }
    row["checksum"] = checksum(row)
    raised = WhenMatched(
        columns=("generation", "ordinal", "changed_at", "changed_by"),
        condition=target("generation").lt(source("generation")),
    )
    merge = Merge(keys=KEYS, scope=target("pipeline").eq(taken.pipeline), when_matched=(raised,))
    if taken.number > 1 and not _head_rows(engine, taken.pipeline):
        _check_never_made(engine, taken.pipeline)
    rows = pa.Table.from_pylist([row], schema=SOURCE_CHECKPOINTS.schema)

    def raise_once() -> bool:
        # Lost to a session commit, the writer before got one in: it is fenced off all the same by the next try.
        try:
            made = engine.merge(SOURCE_CHECKPOINTS.name, rows, merge, fences=[taken.fence(0)], metadata=metadata)
        except FencedError:
            return False
        return made.version is not None

    return again_after_conflicts(raise_once)


def compare_and_set(pipeline: str, generation: int, ordinal: int) -> Merge:
    """The merge of a session commit: as long as the head row is the one the session began with.

    A source row without a sequence says that the row goes. The head row is never inserted: a takeover made it.
    """
    gone = source("sequence").is_null()
    return Merge(
        keys=KEYS,
        scope=target("pipeline").eq(pipeline),
        when_matched=(WhenMatched(delete=True, condition=gone & source("kind").ne(HEAD)), WhenMatched()),
        insert_condition=~gone,
        guard=_head(pipeline) & col("generation").eq(generation) & col("ordinal").eq(ordinal),
    )


def checksum(row: Row) -> int:
    """Over what a row says of its source, query or configuration; in a form that SQL can compute too.

    The generation is not in it: a takeover raises it without knowing the rest, and a wrong one lets nobody in.
    """
    position = None if row["position"] is None else row["position"].hex().upper()
    config_hash = None if row["config_hash"] is None else int(row["config_hash"])
    said = (row["kind"], row["source"], row["sequence"], position, config_hash)
    return zlib.crc32("|".join("-" if part is None else str(part) for part in said).encode())


def _head(pipeline: str) -> Predicate:
    return col("pipeline").eq(pipeline) & col("kind").eq(HEAD)


def _head_rows(engine: Engine, pipeline: str) -> list[Row]:
    try:
        return _rows(Reading(engine), _head(pipeline))
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        error.next_step = (
            "Bring the file back from a backup: data files never change. Without one, "
            f"`catalog.forget_positions({pipeline!r}, reason=...)` gives up where its sources were; checkpoints stay."
        )
        raise


def _check_never_made(engine: Engine, pipeline: str) -> None:
    """Refuses to make a head row where there was one. A takeover that was cut off may never have made it."""
    for entry in engine.history(SOURCE_CHECKPOINTS.name):
        if entry.metadata.get("pipeline") == pipeline:
            if entry.metadata.get("operation") == FORGET:
                return
            raise CorruptionError(
                f"pipeline {pipeline!r} has lost its rows in {SOURCE_CHECKPOINTS.name!r}",
                expected="a head row",
                found=None,
                next_step=f"Restore the table: version {entry.version} had them. Nothing was made in their place.",
                details={"table": SOURCE_CHECKPOINTS.name, "version": entry.version},
            )


def _rows(reading: Reading, where: Predicate) -> list[Row]:
    return reading.rows_despite_rot(
        SOURCE_CHECKPOINTS, where=where, exact=True, intact=lambda row: row["checksum"] == checksum(row)
    )


def _checkpoint(row: Row) -> SourceCheckpoint:
    return SourceCheckpoint(sequence=row["sequence"], position=row["position"])
