"""Decisions on checkpoints: pinned, released, retired, restored, abandoned, each a row that stands in one order.

Decisions of a pipeline are numbered without a gap. A row with the next number is committed under a fence of its own, so two who
decide at once cannot both have it: the loser reads what the winner decided and decides again. No clock and no lock is asked.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.tables import RETENTION
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence
from laminar_delta.errors import ConflictError, FencedError
from laminar_delta.model.ids import new_attempt_id

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine

RETIRED = "retired"
RESTORED = "restored"
PINNED = "pinned"
RELEASED = "released"
ABANDONED = "abandoned"

_TRIES = 100
"""Races lost in a row before giving up: each means that another decision was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision to make."""

    checkpoint_id: int
    word: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What was decided on a pipeline's checkpoints so far."""

    last: int
    """The number of the last decision."""
    retired: frozenset[int]
    pinned: frozenset[int]
    abandoned: frozenset[int]


def standing(reading: Reading, pipeline: str) -> Standing:
    """The decisions of a pipeline, replayed in their order."""
    rows = reading.rows_despite_rot(
        RETENTION,
        where=col("pipeline").eq(pipeline),
        columns=["checkpoint_id", "ordinal", "decision"],
        exact=True,
    )
    marks: dict[str, set[int]] = {RETIRED: set(), PINNED: set(), ABANDONED: set()}
    for row in sorted(rows, key=lambda row: row["ordinal"]):
        word, number = row["decision"], row["checkpoint_id"]
        if word in marks:
            marks[word].add(number)
        elif word == RESTORED:
            marks[RETIRED].discard(number)
        elif word == RELEASED:
            marks[PINNED].discard(number)
    return Standing(
        last=max((row["ordinal"] for row in rows), default=0),
        retired=frozenset(marks[RETIRED]),
        pinned=frozenset(marks[PINNED]),
        abandoned=frozenset(marks[ABANDONED]),
    )


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
        seen = standing(Reading(engine), pipeline)
        chosen = list(choose(seen))
        if not chosen:
            return []
        rows = [
            {
                "pipeline": pipeline,
                "checkpoint_id": decision.checkpoint_id,
                "ordinal": seen.last + number,
                "decision": decision.word,
                "decision_id": new_attempt_id(),
                "reason": decision.reason,
                "generation": generation,
                "decided_at": dt.datetime.now(dt.timezone.utc),
                "decided_by": owner,
            }
            for number, decision in enumerate(chosen, 1)
        ]
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
                pa.Table.from_pylist(rows, schema=RETENTION.schema),
                fences=[Fence(f"laminar-retention:{pipeline}", seen.last + len(rows))],
                metadata=metadata,
                key={"pipeline": pipeline, "decision_id": str(rows[0]["decision_id"])},
            )
        except FencedError:
            continue
        return chosen
    raise ConflictError(f"pipeline {pipeline!r}: lost {_TRIES} races for the next decision in a row")
