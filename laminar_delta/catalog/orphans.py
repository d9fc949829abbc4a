"""Removing what attempts left behind that never became checkpoints, by proof and never by age.

An attempt is committed by the writer whose generation it carries, or by nobody. So once the fence on `manifests` stands at the
newest generation there is, an attempt of an older one without a manifest row can never get one: its children are orphans.
Attempts of the newest generation may be under way, however old they look; of those only the ones their own writer has given up
are removed. Cleaning is safe beside running saves, needs no generation, and can be repeated or cut off at any point.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog import generations
from laminar_delta.catalog.committed_attempts import committed_attempts
from laminar_delta.catalog.generations import Generation
from laminar_delta.catalog.numbers import burn_removed
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.removal import delete_rows
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.catalog.traces import CHILD_TABLES
from laminar_delta.engine.predicate import col
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.request import TableSpec

_LOG = logging.getLogger(__name__)

ATTEMPTS_PER_DELETE = 200
"""How many attempts one commit removes: keeps its condition short."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Orphan:
    """An attempt that never became a checkpoint and never will."""

    checkpoint_id: int
    attempt_id: str
    generation: int


def remove_orphans(engine: Engine, pipeline: str, *, owner: str, aborted: Collection[str] = ()) -> tuple[Orphan, ...]:
    """Removes the children of a pipeline's attempts that provably never commit.

    Args:
        engine: Where.
        pipeline: Whose.
        owner: Who, for the audit.
        aborted: Attempts of the newest generation that its writer has given up; only that writer knows.

    Returns:
        The attempts removed, in the order of their checkpoints.

    Raises:
        ConflictError: Others kept committing in between; what is left can be removed by calling again.
    """
    newest = generations.current(engine, pipeline)
    if newest is not None:
        begun = min(generations.stands_at(engine, pipeline)[1], 1)
        held = Generation(pipeline=pipeline, number=newest["generation"], owner=newest["owner"], begun=begun)
        _fence_off(engine, held, owner)
    removed: set[Orphan] = set()
    orphans = list(_orphans(engine, pipeline, _proven(engine, pipeline, newest), aborted))
    highest = max((orphan.checkpoint_id for _, found in orphans for orphan in found), default=0)
    if highest:
        # With its rows goes what tells that the id was given out.
        burn_removed(engine, pipeline, highest, owner=owner)
    for spec, found in orphans:
        for start in range(0, len(found), ATTEMPTS_PER_DELETE):
            _delete(engine, spec, pipeline, found[start : start + ATTEMPTS_PER_DELETE], owner)
        removed.update(found)
    if removed:
        log_event(
            _LOG,
            logging.INFO,
            Event.ORPHANS_REMOVED,
            "removed what %d attempts of pipeline %s left behind",
            len(removed),
            pipeline,
            pipeline=pipeline,
            attempts=sorted(orphan.attempt_id for orphan in removed),
            owner=owner,
        )
    return tuple(sorted(removed))


def find_orphans(engine: Engine, pipeline: str) -> tuple[Orphan, ...]:
    """What `remove_orphans` would remove as things are; nothing is fenced off or removed for a look."""
    told = _orphans(engine, pipeline, _proven(engine, pipeline, generations.current(engine, pipeline)), ())
    return tuple(sorted({orphan for _, found in told for orphan in found}))


def _proven(engine: Engine, pipeline: str, newest: Row | None) -> int:
    """Below which generation nobody commits: that of the newest writer, once it is fenced off. Rows of `writers` may be gone:
    then the fence itself tells more.
    """
    return max(0 if newest is None else int(newest["generation"]), generations.fenced(engine, pipeline))


def _orphans(
    engine: Engine, pipeline: str, generation: int, aborted: Collection[str]
) -> Iterator[tuple[TableSpec, list[Orphan]]]:
    """Per table the attempts that never commit, once the fence of `generation` stands."""
    # Read in this order: what is committed by now is all that older generations ever will have.
    committed = committed_attempts(Reading(engine), pipeline)

    def is_orphan(found: Orphan) -> bool:
        if found.attempt_id in committed.attempts:
            return False
        if found.attempt_id in aborted:
            return True
        # Where manifest rows are lost without a trace, that an attempt has none proves nothing.
        return found.generation < generation and committed.all_told and found.checkpoint_id not in committed.lost

    for spec in CHILD_TABLES:
        yield spec, [found for found in _attempts(engine, spec, pipeline) if is_orphan(found)]


def _fence_off(engine: Engine, newest: Generation, owner: str) -> None:
    """Completes what the newest writer may be in the middle of: the fence that keeps older ones from committing.

    The fence is the takeover's own, so the newest writer goes on unhindered; where it stands already nothing changes.
    """
    metadata = {"operation": "fence-off", "pipeline": newest.pipeline, "generation": newest.number, "owner": owner}
    engine.raise_fence(MANIFESTS.name, newest.fence(newest.begun), metadata=metadata)


def _attempts(engine: Engine, spec: TableSpec, pipeline: str) -> list[Orphan]:
    columns = ["checkpoint_id", "attempt_id", "generation"]
    rows = Reading(engine).rows(spec, where=col("pipeline").eq(pipeline), columns=columns)
    # Without a generation nothing is proven.
    return sorted({Orphan(**row) for row in rows if row["generation"] is not None})


def _delete(engine: Engine, spec: TableSpec, pipeline: str, orphans: Sequence[Orphan], owner: str) -> None:
    where = (
        col("pipeline").eq(pipeline)
        # State is partitioned by checkpoint: naming them keeps the removal away from everything else.
        & col("checkpoint_id").is_in(_distinct(orphan.checkpoint_id for orphan in orphans))
        & col("attempt_id").is_in(orphan.attempt_id for orphan in orphans)
    )
    metadata = {"operation": "remove-orphans", "pipeline": pipeline, "attempts": len(orphans), "owner": owner}
    delete_rows(engine, spec, where, metadata=metadata)


def _distinct(numbers: Iterable[int]) -> list[int]:
    return sorted(set(numbers))
