"""What checkpoints need of one another: the parent of their deltas, the one whose state they use.

Whoever retires and whoever comes to need something look at each other after they have committed, so at least one of them sees
the other: what is needed after all is restored, by whoever notices.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import CheckpointHead, all_heads, see_list
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.standing import RESTORED, RETIRED, Standing, standing
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from laminar_delta.catalog.copies import Copies
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Removing:
    """Whose needs count when rows are to be removed for good, beside those of visible checkpoints."""

    retired_after: dt.datetime
    """Those retired after that time: whoever restores one finds what it needs."""
    copies: Copies
    """Those whose rows somebody took out, and those that are spared."""


def used_elsewhere(reading: Reading, pipeline: str, removing: Removing | None = None) -> dict[int, str]:
    """Checkpoints whose state is used by visible checkpoints of other pipelines, and by whom; see `needed`."""
    found = all_heads(reading, col("state_pipeline").eq(pipeline) & ~col("pipeline").eq(pipeline))
    if removing is not None:
        lost = removing.copies.lost_heads
        found += [head for head in lost if head.state_pipeline == pipeline and head.pipeline != pipeline]
    gone = {name: _gone(name, standing(reading, name), removing) for name in {head.pipeline for head in found}}
    return {
        head.state_checkpoint_id: f"its state is used by checkpoint {head.checkpoint_id} of pipeline {head.pipeline!r}"
        for head in found
        if head.state_checkpoint_id is not None and head.checkpoint_id not in gone[head.pipeline]
    }


def needed(reading: Reading, pipeline: str, seen: Standing, removing: Removing | None = None) -> dict[int, str]:
    """All checkpoints of a pipeline that visible ones, of this pipeline or others, need or are; and why.

    Args:
        reading: Where.
        pipeline: Whose.
        seen: What was decided on them.
        removing: Who else counts, when rows are to be removed. Without it the log is not searched for rows that were taken
            out: what is retired can be restored.
    """
    heads = all_heads(reading, col("pipeline").eq(pipeline))
    if removing is not None:
        heads += [head for head in removing.copies.lost_heads if head.pipeline == pipeline]
    gone = _gone(pipeline, seen, removing)
    visible = {head.checkpoint_id: "visible" for head in heads if head.checkpoint_id not in gone}
    return followed(heads, {**visible, **used_elsewhere(reading, pipeline, removing)})


def _gone(pipeline: str, seen: Standing, removing: Removing | None) -> frozenset[int]:
    if removing is None:
        return seen.retired
    late = {number for number in seen.retired - seen.removed if seen.retired_at[number] <= removing.retired_after}
    # Asked only where there are some: to know it, the state of the newest checkpoint is read.
    return seen.removed | (late - removing.copies.spared(pipeline) if late else late)


def restore(engine: Engine, pipeline: str, checkpoint_id: int, *, reason: str | None, owner: str) -> None:
    """Brings a retired checkpoint back, and what it needs with it.

    Raises:
        NotFoundError: It is removed.
        ConflictError: Something that it needs is removed: it could not be read any more.
    """
    reading = Reading(engine)

    def choose(seen: Standing) -> list[Decision]:
        if checkpoint_id in seen.removed:
            raise NotFoundError(
                f"checkpoint {checkpoint_id} of pipeline {pipeline!r} is removed",
                expected=checkpoint_id,
                next_step=f"{see_list(pipeline)}: maintenance took it after the grace period.",
            )
        if checkpoint_id not in seen.retired:
            return []
        chain = _all_needed(reading, pipeline, checkpoint_id)
        _check_there(reading, pipeline, checkpoint_id, chain)
        numbers = sorted(number for name, number in chain if name == pipeline and number in seen.retired)
        return [Decision(checkpoint_id=checkpoint_id, word=RESTORED, reason=reason)] + [
            Decision(checkpoint_id=number, word=RESTORED, reason=f"needed by {checkpoint_id}") for number in numbers
        ]

    if not decide(engine, pipeline, choose, owner=owner):
        return
    # Other pipelines decide for themselves, so they are looked at once more when it is visible.
    _keep(engine, pipeline, checkpoint_id, _all_needed(reading, pipeline, checkpoint_id), owner)


def _all_needed(reading: Reading, pipeline: str, checkpoint_id: int) -> set[tuple[str, int]]:
    """What a checkpoint needs, and what that needs, in whatever pipeline."""
    heads: dict[str, dict[int, CheckpointHead]] = {}
    found: set[tuple[str, int]] = set()
    todo = [(pipeline, checkpoint_id)]
    while todo:
        name, number = todo.pop()
        if name not in heads:
            heads[name] = {head.checkpoint_id: head for head in all_heads(reading, col("pipeline").eq(name))}
        head = heads[name].get(number)
        more = set() if head is None else {*head.needs} - found
        found |= more
        todo.extend(more)
    return found - {(pipeline, checkpoint_id)}


def _check_there(reading: Reading, pipeline: str, checkpoint_id: int, needs: Iterable[tuple[str, int]]) -> None:
    for other, numbers in _by_pipeline(needs).items():
        removed = sorted(standing(reading, other).removed & numbers)
        if removed:
            raise ConflictError(
                f"checkpoint {checkpoint_id} of pipeline {pipeline!r} needs checkpoint {removed[0]} of {other!r}, "
                "which maintenance removed",
                expected="retained",
                found="removed",
                next_step="Save a full checkpoint, or derive from another one.",
            )


def _by_pipeline(needs: Iterable[tuple[str, int]]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for pipeline, number in sorted(needs):
        found.setdefault(pipeline, set()).add(number)
    return found


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
    own = col("pipeline").eq(pipeline) & col("checkpoint_id").eq(checkpoint_id)
    for head in all_heads(Reading(engine), own):
        _keep(engine, pipeline, checkpoint_id, head.needs, owner)


def _keep(engine: Engine, pipeline: str, checkpoint_id: int, needs: Iterable[tuple[str, int]], owner: str) -> None:
    """Restores what a visible checkpoint needs; or retires it where that is removed, and raises `ConflictError`."""
    reading = Reading(engine)
    for other, numbers in _by_pipeline(needs).items():
        if standing(reading, other).retired & numbers:
            restore_needed(engine, other, owner=owner)
    try:
        # Only now: of restoring and removing one came first, and stands.
        _check_there(reading, pipeline, checkpoint_id, needs)
    except ConflictError as error:
        retired = Decision(checkpoint_id=checkpoint_id, word=RETIRED, reason=error.message)
        decide(engine, pipeline, lambda _: [retired], owner=owner)
        raise
