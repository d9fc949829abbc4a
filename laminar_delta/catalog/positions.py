"""What is committed of a pipeline's sources: one row per source, and one head row that fences them all.

The head row holds the generation that may commit and the number of its last session commit. Every session commit rewrites it,
under the condition that it still is what the session began with: compare and set, in the one merge that brings the rows.
A takeover raises it, so that also statements without a transaction identifier, such as SQL in a notebook, are fenced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.clock import now
from laminar_delta.catalog.names import check_text
from laminar_delta.catalog.patience import again_after_conflicts
from laminar_delta.catalog.position_rows import (
    HEAD,
    RESULT,
    SOURCE,
    check_never_made,
    checksum,
    intact_rows,
    is_whole,
    whole_rows,
)
from laminar_delta.catalog.reading import Reading, raise_unless_damage
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS, WRITERS
from laminar_delta.engine.predicate import col, source, target
from laminar_delta.engine.request import Merge, WhenMatched
from laminar_delta.errors import CorruptionError, FencedError, InvalidInputError, StorageError
from laminar_delta.model.source_checkpoint import SourceCheckpoint

if TYPE_CHECKING:
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.catalog.position_rows import RowKey
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.predicate import Predicate

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
    checksums: Mapping[RowKey, int] = field(default_factory=dict)
    """Of all of those, as their rows have them."""
    missing: tuple[Row, ...] = ()
    """Rows that somebody took out of the table, as an earlier version has them; they stand, and the next commit writes them."""

    @property
    def empty(self) -> bool:
        """Whether nothing of a run is there: no position and no result sequence."""
        return not self.sources and not self.results


def read_positions(reading: Reading, pipeline: str) -> Positions:
    """Everything committed of a pipeline's sources. What cannot be read is an error, never nothing.

    Raises:
        CorruptionError: Rows are lost, and no earlier version that can be read has them.
    """
    rows, missing = whole_rows(reading, pipeline)
    heads = [row for row in rows if row["kind"] == HEAD]
    head: Row = heads[0] if heads else dict.fromkeys(SOURCE_CHECKPOINTS.schema.names)
    return Positions(
        pipeline=pipeline,
        generation=head["generation"] or 0,
        ordinal=head["ordinal"] or 0,
        session_id=head["session_id"],
        config_hash=None if head["config_hash"] is None else int(head["config_hash"]),
        sources={row["source"]: _checkpoint(row) for row in rows if row["kind"] == SOURCE},
        results={row["source"]: row["sequence"] for row in rows if row["kind"] == RESULT},
        checksums={(row["kind"], row["source"]): row["checksum"] for row in rows if row["kind"] != HEAD},
        missing=missing,
    )


def read_position(reading: Reading, pipeline: str, name: str) -> SourceCheckpoint | None:
    """The committed position of one source.

    All rows are read for it: whether one is as it was committed last, only the sum in the head row tells.
    """
    name = check_text("source", name)
    return read_positions(reading, pipeline).sources.get(name)


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

    Raises:
        CorruptionError: One that counts has lost rows, and no earlier version has them.
    """
    source_name = check_text("source", name)
    if isinstance(pipelines, str):
        raise InvalidInputError("who counts is given by several names", expected="a list of names", found="a text")
    wanted = None if pipelines is None else {check_text("pipeline", one) for one in pipelines}
    if wanted is not None and not wanted:
        return None
    # A pipeline may have lost all of its rows: then only its writers tell that there is one.
    known = reading.rows(WRITERS, columns=["pipeline"]) if wanted is None else ()
    together: dict[str, list[Row]] = {one: [] for one in wanted or {row["pipeline"] for row in known}}
    for row in intact_rows(reading, None if wanted is None else col("pipeline").is_in(sorted(wanted))):
        together.setdefault(row["pipeline"], []).append(row)
    # A pipeline that lost its row has not confirmed nothing: others would take what it needs for no longer needed.
    found = {
        pipeline: next(
            (_checkpoint(row) for row in rows if (row["kind"], row["source"]) == (SOURCE, source_name)), None
        )
        if is_whole(rows)
        else read_positions(reading, pipeline).sources.get(source_name)
        for pipeline, rows in together.items()
    }
    confirmed = [(position.sequence, pipeline) for pipeline, position in found.items() if position is not None]
    if not confirmed:
        return None
    _, behind = min(confirmed)
    return behind, found[behind] or SourceCheckpoint(sequence=0)


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
        check_never_made(Reading(engine), taken.pipeline)
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
        insert_condition=~gone & source("kind").ne(HEAD),
        guard=_head(pipeline) & col("generation").eq(generation) & col("ordinal").eq(ordinal),
    )


def _head(pipeline: str) -> Predicate:
    return col("pipeline").eq(pipeline) & col("kind").eq(HEAD)


def _head_rows(engine: Engine, pipeline: str) -> list[Row]:
    try:
        return intact_rows(Reading(engine), _head(pipeline))
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        error.next_step = (
            "Bring the file back from a backup: data files never change. Without one, "
            f"`catalog.forget_positions({pipeline!r}, reason=...)` gives up where its sources were; checkpoints stay."
        )
        raise


def _checkpoint(row: Row) -> SourceCheckpoint:
    try:
        return SourceCheckpoint(sequence=row["sequence"], position=row["position"])
    except InvalidInputError as error:
        raise CorruptionError(
            f"pipeline {row['pipeline']!r} has a row of source {row['source']!r} in {SOURCE_CHECKPOINTS.name!r} that no source "
            f"can have: {error.message}",
            expected=error.expected,
            found=error.found,
            next_step="Restore the table to a version before it was put there. To go on without this pipeline's positions, "
            "call `catalog.forget_positions`.",
            details={"table": SOURCE_CHECKPOINTS.name, "pipeline": row["pipeline"], "source": row["source"]},
        ) from error
