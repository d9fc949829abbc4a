"""What checkpoints need of one another: the parent of their deltas, the one whose state they use.

Whoever retires and whoever comes to need something look at each other after they have committed, so at least one of them sees
the other: what is needed after all is restored, by whoever notices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import CheckpointHead, all_heads
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.standing import RESTORED, RETIRED, Standing, standing
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine


def followed(heads: Iterable[CheckpointHead], roots: Mapping[int, str]) -> dict[int, str]:
    """What some checkpoints of a pipeline need of the same pipeline, however long the chain: ids, and by whom.

    Args:
        heads: All that may be needed.
        roots: Where to begin. They come back with the reason they came with.
    """
    by_id = {head.checkpoint_id: head for head in heads}
    reasons = dict(roots)
    todo = [number for number in roots if number in by_id]
    while todo:
        head = by_id[todo.pop()]
        for pipeline, needed in head.needs:
            if pipeline == head.pipeline and needed in by_id and needed not in reasons:
                reasons[needed] = f"needed by {head.checkpoint_id}"
                todo.append(needed)
    return reasons


def used_elsewhere(reading: Reading, pipeline: str) -> dict[int, str]:
    """Checkpoints whose state is used by visible checkpoints of other pipelines, and by whom."""
    found = all_heads(reading, col("state_pipeline").eq(pipeline) & ~col("pipeline").eq(pipeline))
    gone = {name: standing(reading, name).retired for name in {head.pipeline for head in found}}
    return {
        head.state_checkpoint_id: f"its state is used by checkpoint {head.checkpoint_id} of pipeline {head.pipeline!r}"
        for head in found
        if head.state_checkpoint_id is not None and head.checkpoint_id not in gone[head.pipeline]
    }


def needed(reading: Reading, pipeline: str, seen: Standing) -> dict[int, str]:
    """All checkpoints of a pipeline that visible ones, of this pipeline or others, need or are; and why."""
    heads = all_heads(reading, col("pipeline").eq(pipeline))
    visible = {head.checkpoint_id: "visible" for head in heads if head.checkpoint_id not in seen.retired}
    return followed(heads, {**visible, **used_elsewhere(reading, pipeline)})


def restore_needed(engine: Engine, pipeline: str, *, owner: str) -> frozenset[int]:
    """Restores what was retired and is needed all the same; those it restored."""

    def choose(seen: Standing) -> list[Decision]:
        kept = needed(Reading(engine), pipeline, seen) if seen.retired - seen.removed else {}
        return [
            Decision(checkpoint_id=number, word=RESTORED, reason=kept[number])
            for number in sorted(seen.retired - seen.removed)
            if number in kept
        ]

    made = decide(engine, pipeline, choose, owner=owner)
    return frozenset(decision.checkpoint_id for decision in made if decision.checkpoint_id is not None)


def keep_needed(engine: Engine, pipeline: str, checkpoint_id: int, *, owner: str) -> None:
    """Makes sure that what a checkpoint just committed needs is there to stay.

    Raises:
        ConflictError: It was removed for good; the checkpoint is of no use, and retired.
    """
    reading = Reading(engine)
    own = col("pipeline").eq(pipeline) & col("checkpoint_id").eq(checkpoint_id)
    for head in all_heads(reading, own):
        for other, number in head.needs:
            seen = standing(reading, other)
            if number in seen.removed:
                retired = Decision(checkpoint_id=checkpoint_id, word=RETIRED, reason=f"{number} is removed")
                decide(engine, pipeline, lambda _, retired=retired: [retired], owner=owner)  # type: ignore[misc]
                raise ConflictError(
                    f"checkpoint {checkpoint_id} of pipeline {pipeline!r} needs checkpoint {number} of {other!r}, "
                    "which maintenance removed meanwhile",
                    expected="retained",
                    found="removed",
                    next_step="Save a full checkpoint, or derive from another one.",
                )
            if number in seen.retired:
                restore_needed(engine, other, owner=owner)
