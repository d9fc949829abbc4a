"""Generations: who is the writer of a pipeline, and the fence that keeps everybody else out.

Taking over is an insert-only merge of the next generation into `writers`, which exactly one can win, and then the fence on the
two tables where a zombie could do harm. It is complete when both stand; nothing is read for resuming before that.

The fence also passes on whether anything was ever committed under it: manifest rows can be lost without a trace, and a pipeline
that had some is then not taken for a new one. A takeover behind a forerunner that committed stands at ordinal 1, not 0.

Rows of `writers` that were deleted, or whose file cannot be read, give no number out again: a fence that stands tells of the
generation that raised it, and the statistics in the log how far the generations in a file go. The merge decides as ever.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.bounds import bound
from laminar_delta.catalog.clock import now
from laminar_delta.catalog.positions import raise_head
from laminar_delta.catalog.reading import Reading, raise_unless_damage
from laminar_delta.catalog.said import check_said
from laminar_delta.catalog.tables import MANIFESTS, WRITERS
from laminar_delta.engine.predicate import col, target
from laminar_delta.engine.request import Fence, Merge, WhenMatched
from laminar_delta.errors import ConflictError, CorruptionError, FencedError, StorageError
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.base import Engine

_LOG = logging.getLogger(__name__)

ORDINALS = 2**32
"""Commits a generation has room for: a fence's version is `generation * ORDINALS + ordinal`."""

_TRIES = 100
"""Races for a generation lost in a row before giving up: each means that another writer won one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A pipeline's writer, as recorded."""

    pipeline: str
    number: int
    owner: str
    begun: int = 0
    """The ordinal of the takeover: 1 when something was committed under an earlier generation, as far as the fence tells."""

    def fence(self, ordinal: int) -> Fence:
        """The fence of this generation's commit with that ordinal; `begun` and 0 are the takeover itself."""
        return Fence(application_id(self.pipeline), self.number * ORDINALS + ordinal)


def application_id(pipeline: str) -> str:
    """The Delta transaction identifier of a pipeline."""
    return f"laminar:{pipeline}"


def current(engine: Engine, pipeline: str) -> Row | None:
    """The newest row of `writers` for a pipeline; where its file cannot be read, a row of its number and nothing else."""
    reading = Reading(engine)
    try:
        rows = reading.rows(WRITERS, where=col("pipeline").eq(pipeline))
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        number = bound(reading, WRITERS, pipeline, "generation", 0, error)
        return {**dict.fromkeys(WRITERS.schema.names), "pipeline": pipeline, "generation": number, "damage": error}
    return max(rows, key=lambda row: row["generation"], default=None)


def fenced(engine: Engine, pipeline: str) -> int:
    """The generation whose fence stands on `manifests`; 0 without one. It was in `writers` first, whatever became of that."""
    return stands_at(engine, pipeline)[0]


def stands_at(engine: Engine, pipeline: str) -> tuple[int, int]:
    """The same with the ordinal. Above 0 something was committed, or a save was given up whose outcome nobody knew."""
    application = application_id(pipeline)
    return divmod(engine.fences(MANIFESTS.name, [application]).get(application, 0), ORDINALS)


def take_over(engine: Engine, pipeline: str, *, owner: str, reason: str | None, seize: bool) -> Generation:
    """Becomes the writer of a pipeline.

    Args:
        engine: Where.
        pipeline: Whose.
        owner: Who, for messages and the audit.
        reason: Why, likewise.
        seize: Take it also from a holder that has not let go; otherwise that is `ConflictError`.
    """
    check_said(owner=owner, reason=reason)
    for _ in range(_TRIES):
        # The fence before the rows: who takes over in between must not look as if its row were lost.
        stands, ordinal = stands_at(engine, pipeline)
        holder = current(engine, pipeline)
        if not seize:
            _check_free(pipeline, holder, stands)
        newest = 0 if holder is None else holder["generation"]
        number = max(stands, newest) + 1
        damaged = holder is not None and "damage" in holder
        if _claim(engine, pipeline, number, owner, reason, narrow=damaged):
            taken = Generation(pipeline=pipeline, number=number, owner=owner, begun=min(ordinal, 1))
            taken = _raise_fences(engine, taken, reason)
            log_event(
                _LOG,
                logging.INFO,
                Event.WRITER_TAKEN,
                "generation %d of pipeline %s taken by %s",
                number,
                pipeline,
                owner,
                pipeline=pipeline,
                generation=number,
                owner=owner,
                reason=reason,
                taken_from=None if holder is None or holder["released_at"] is not None else holder["owner"],
            )
            return taken
    raise ConflictError(f"pipeline {pipeline!r}: lost {_TRIES} races for the next generation in a row")


def _check_free(pipeline: str, holder: Row | None, fenced: int) -> None:
    """Raises unless nobody is the writer of a pipeline, for certain."""
    if holder is not None and "damage" in holder:
        # Whether it has let go is in what cannot be read.
        raise holder["damage"]
    if fenced > (0 if holder is None else holder["generation"]):
        raise ConflictError(
            f"pipeline {pipeline!r} has or had a writer of generation {fenced}, of which table {WRITERS.name!r} has no row any "
            "more: whether it has let go cannot be told",
            expected="no writer",
            found=fenced,
            next_step="Make sure that it has ended, and take over.",
            details={"generation": fenced},
        )
    if holder is not None and holder["released_at"] is None:
        raise ConflictError(
            f"pipeline {pipeline!r} has a writer: {holder['owner']!r} on {holder['host']}, "
            f"generation {holder['generation']}",
            expected="no writer",
            found=holder["owner"],
            next_step="Wait for it to end, or take over.",
            details={"generation": holder["generation"], "host": holder["host"], "pid": holder["pid"]},
        )


def release(engine: Engine, held: Generation) -> None:
    """Records that the holder let go of its own accord."""
    row = {**_row(held.pipeline, held.number, held.owner, None), "released_at": now()}
    merge = Merge(
        keys=("pipeline", "generation"),
        scope=target("pipeline").eq(held.pipeline),
        when_matched=(WhenMatched(columns=("released_at",)),),
        insert=False,
    )
    metadata = {"operation": "release", "pipeline": held.pipeline, "generation": held.number, "owner": held.owner}
    engine.merge(WRITERS.name, pa.Table.from_pylist([row], schema=WRITERS.schema), merge, metadata=metadata)
    log_event(
        _LOG,
        logging.INFO,
        Event.WRITER_RELEASED,
        "generation %d of pipeline %s let go",
        held.number,
        held.pipeline,
        pipeline=held.pipeline,
        generation=held.number,
        owner=held.owner,
    )


def check_held(engine: Engine, held: Generation) -> None:
    """Raises `FencedError` when a newer generation exists. For writes that need the generation but carry no fence."""
    holder = current(engine, held.pipeline)
    newest = 0 if holder is None else holder["generation"]
    if newest < held.number:
        # Its own row is not there: others may be missing too, and the fence tells.
        newest = max(newest, fenced(engine, held.pipeline))
    if newest > held.number:
        by = f" of {holder['owner']!r}" if holder is not None and holder["generation"] == newest else ""
        raise FencedError(
            f"pipeline {held.pipeline!r}: generation {held.number} of {held.owner!r} was taken over by generation {newest}{by}",
            expected=held.number,
            found=newest,
        )


def _claim(engine: Engine, pipeline: str, number: int, owner: str, reason: str | None, *, narrow: bool = False) -> bool:
    row = _row(pipeline, number, owner, reason)
    scope = target("pipeline").eq(pipeline)
    if narrow:
        # No file without that number is opened, by what the log tells of each.
        scope = scope & target("generation").eq(number)
    merge = Merge(keys=("pipeline", "generation"), scope=scope)
    metadata = {"operation": "claim", "pipeline": pipeline, "generation": number, "owner": owner, "reason": reason}
    try:
        made = engine.merge(WRITERS.name, pa.Table.from_pylist([row], schema=WRITERS.schema), merge, metadata=metadata)
    except ConflictError:
        return False
    return bool(made.inserted) or made.replayed


def _raise_fences(engine: Engine, taken: Generation, reason: str | None) -> Generation:
    """Completes a takeover; the generation as its fence stands."""
    metadata = {
        "operation": "takeover",
        "pipeline": taken.pipeline,
        "generation": taken.number,
        "owner": taken.owner,
        "reason": reason,
    }
    if engine.raise_fence(MANIFESTS.name, taken.fence(taken.begun), metadata=metadata) is None:
        check_held(engine, taken)
        # Whoever cleaned meanwhile raised it in its place, and may have seen a commit that came after the look above.
        taken = replace(taken, begun=stands_at(engine, taken.pipeline)[1])
    if not raise_head(engine, taken, metadata):
        check_held(engine, taken)
    return taken


def _row(pipeline: str, number: int, owner: str, reason: str | None) -> Row:
    return {
        "pipeline": pipeline,
        "generation": number,
        "owner": owner,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "taken_at": now(),
        "released_at": None,
        "reason": reason,
    }
