"""Generations: who is the writer of a pipeline, and the fence that keeps everybody else out.

Taking over is an insert-only merge of the next generation into `writers`, which exactly one can win, and then the fence on the
two tables where a zombie could do harm. It is complete when both stand; nothing is read for resuming before that.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.clock import now
from laminar_delta.catalog.positions import raise_head
from laminar_delta.catalog.tables import MANIFESTS, WRITERS
from laminar_delta.engine.predicate import col, target
from laminar_delta.engine.request import Fence, Merge, WhenMatched
from laminar_delta.errors import ConflictError, FencedError
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

    def fence(self, ordinal: int) -> Fence:
        """The fence of this generation's commit with that ordinal; 0 is the takeover itself."""
        return Fence(application_id(self.pipeline), self.number * ORDINALS + ordinal)


def application_id(pipeline: str) -> str:
    """The Delta transaction identifier of a pipeline."""
    return f"laminar:{pipeline}"


def current(engine: Engine, pipeline: str) -> Row | None:
    """The newest row of `writers` for a pipeline."""
    rows = engine.read(WRITERS.name, where=col("pipeline").eq(pipeline)).to_pylist()
    return max(rows, key=lambda row: row["generation"], default=None)


def take_over(engine: Engine, pipeline: str, *, owner: str, reason: str | None, seize: bool) -> Generation:
    """Becomes the writer of a pipeline.

    Args:
        engine: Where.
        pipeline: Whose.
        owner: Who, for messages and the audit.
        reason: Why, likewise.
        seize: Take it also from a holder that has not let go; otherwise that is `ConflictError`.
    """
    for _ in range(_TRIES):
        holder = current(engine, pipeline)
        if holder is not None and holder["released_at"] is None and not seize:
            raise ConflictError(
                f"pipeline {pipeline!r} has a writer: {holder['owner']!r} on {holder['host']}, "
                f"generation {holder['generation']}",
                expected="no writer",
                found=holder["owner"],
                next_step="Wait for it to end, or take over.",
                details={"generation": holder["generation"], "host": holder["host"], "pid": holder["pid"]},
            )
        number = 1 if holder is None else holder["generation"] + 1
        if _claim(engine, pipeline, number, owner, reason):
            taken = Generation(pipeline=pipeline, number=number, owner=owner)
            _raise_fences(engine, taken, reason)
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
    if holder is not None and holder["generation"] > held.number:
        raise FencedError(
            f"pipeline {held.pipeline!r}: generation {held.number} of {held.owner!r} was taken over by generation "
            f"{holder['generation']} of {holder['owner']!r}",
            expected=held.number,
            found=holder["generation"],
        )


def _claim(engine: Engine, pipeline: str, number: int, owner: str, reason: str | None) -> bool:
    row = _row(pipeline, number, owner, reason)
    merge = Merge(keys=("pipeline", "generation"), scope=target("pipeline").eq(pipeline))
    metadata = {"operation": "claim", "pipeline": pipeline, "generation": number, "owner": owner, "reason": reason}
    try:
        made = engine.merge(WRITERS.name, pa.Table.from_pylist([row], schema=WRITERS.schema), merge, metadata=metadata)
    except ConflictError:
        return False
    return bool(made.inserted) or made.replayed


def _raise_fences(engine: Engine, taken: Generation, reason: str | None) -> None:
    metadata = {
        "operation": "takeover",
        "pipeline": taken.pipeline,
        "generation": taken.number,
        "owner": taken.owner,
        "reason": reason,
    }
    if engine.raise_fence(MANIFESTS.name, taken.fence(0), metadata=metadata) is None:
        check_held(engine, taken)
    if not raise_head(engine, taken, metadata):
        check_held(engine, taken)


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
