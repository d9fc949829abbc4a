"""Giving up the positions of a pipeline's sources, where their file cannot be read and no backup has it.

They have no other copy, and a takeover merges into them: as long as they are unreadable there is no writer. To go on without
them is for somebody to decide who knows what it means; checkpoints, and who is the writer, are not touched.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from laminar_delta.catalog.generations import application_id
from laminar_delta.catalog.position_rows import FORGET, forgotten_id
from laminar_delta.catalog.said import check_reason
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence
from laminar_delta.errors import NotFoundError
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine

_LOG = logging.getLogger(__name__)


def forget_positions(engine: Engine, pipeline: str, *, reason: str, owner: str) -> None:
    """Takes everything of a pipeline out of `source_checkpoints`, read or not; the next takeover begins anew there.

    Sessions of writers before commit nothing after it: they miss the head row they were in step with.

    Also where somebody else took the rows out, or an earlier call was cut off half-way.

    Raises:
        NotFoundError: There is nothing to give up.
    """
    check_reason("giving up positions", reason)
    application, given_up = application_id(pipeline), forgotten_id(pipeline)
    # Before: what a takeover makes after it is not given up.
    fences = engine.fences(SOURCE_CHECKPOINTS.name, [application, given_up])
    stands = fences.get(application, 0)
    # By the log: the rows are what nobody can read.
    has_files = any(part.partition.get("pipeline") == pipeline for part in engine.sizes(SOURCE_CHECKPOINTS.name))
    if not has_files and stands <= fences.get(given_up, 0):
        raise NotFoundError(
            f"pipeline {pipeline!r} has no positions in {SOURCE_CHECKPOINTS.name!r}",
            expected=pipeline,
            found=None,
            next_step="See `catalog.pipelines()` for those there are.",
        )
    metadata = {"operation": FORGET, "pipeline": pipeline, "owner": owner, "reason": reason}
    if has_files:
        # By the partition alone: no file is opened for it.
        engine.delete(SOURCE_CHECKPOINTS.name, col("pipeline").eq(pipeline), metadata=metadata)
    if stands:
        # Beside the log, which is cleaned: rows that were given up are not to be taken for lost. Until then the log tells it.
        noted = {"operation": "note forgotten positions", "owner": owner} if has_files else metadata
        engine.raise_fence(SOURCE_CHECKPOINTS.name, Fence(given_up, stands), metadata=noted)
    log_event(
        _LOG,
        logging.WARNING,
        Event.POSITIONS_FORGOTTEN,
        "the positions of pipeline %s were given up by %s",
        pipeline,
        owner,
        pipeline=pipeline,
        owner=owner,
        reason=reason,
    )
