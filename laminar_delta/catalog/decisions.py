"""Making decisions on checkpoints: rows in one order, whoever decides at once.

A row with the next number is committed under a fence of its own, so two who decide at once cannot both have it: the loser reads
what the winner decided and decides again. No clock and no lock is asked. What the rows mean is told in `standing.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.clock import now
from laminar_delta.catalog.decision_rows import application_of, digest_of
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.said import check_said
from laminar_delta.catalog.standing import Standing, standing
from laminar_delta.catalog.tables import RETENTION
from laminar_delta.engine.request import Fence
from laminar_delta.errors import ConflictError, FencedError
from laminar_delta.logs import Event, log_event
from laminar_delta.model.ids import new_attempt_id

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine

_LOG = logging.getLogger(__name__)

_TRIES = 100
"""Races lost in a row before giving up: each means that another decision was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision to make."""

    checkpoint_id: int | None
    """None only for a writer that resumed from nothing."""
    word: str
    reason: str | None = None


def decide(
    engine: Engine,
    pipeline: str,
    choose: Callable[[Standing], Sequence[Decision]],
    *,
    owner: str,
    generation: int | None = None,
) -> list[Decision]:
    """Makes decisions that depend on the ones before: `choose` is asked again whenever another came first.

    Returns:
        The decisions made; none when `choose` found none to make.
    """
    for _ in range(_TRIES):
        seen = standing(Reading(engine), pipeline, searched=True)
        chosen = list(choose(seen))
        if not chosen:
            return []
        for decision in chosen:
            check_said(owner=owner, reason=decision.reason)
        rows = [
            {
                "pipeline": pipeline,
                "checkpoint_id": decision.checkpoint_id,
                "ordinal": seen.last + number,
                "decision": decision.word,
                "decision_id": new_attempt_id(),
                "reason": decision.reason,
                "generation": generation,
                "decided_at": now(),
                "decided_by": owner,
            }
            for number, decision in enumerate(chosen, 1)
        ]
        rows = [{**row, "digest": digest_of(row)} for row in rows]
        metadata = {
            "operation": "decide",
            "pipeline": pipeline,
            "decisions": {str(decision.checkpoint_id): decision.word for decision in chosen},
            "owner": owner,
            "generation": generation,
        }
        try:
            engine.append(
                RETENTION.name,
                # With those that were taken out: the version that has them is not kept for ever.
                pa.Table.from_pylist([*rows, *seen.missing], schema=RETENTION.schema),
                # The first number of the batch: of all who saw the same last decision one has it, however many each makes.
                fences=[Fence(application_of(pipeline), seen.last + 1)],
                metadata=metadata,
                key={"pipeline": pipeline, "decision_id": str(rows[0]["decision_id"])},
            )
        except FencedError:
            continue
        log_event(
            _LOG,
            logging.INFO,
            Event.RETENTION_DECIDED,
            "decided on %d checkpoints of pipeline %s",
            len(chosen),
            pipeline,
            pipeline=pipeline,
            decisions=metadata["decisions"],
            owner=owner,
            generation=generation,
        )
        return chosen
    raise ConflictError(f"pipeline {pipeline!r}: lost {_TRIES} races for the next decision in a row")
