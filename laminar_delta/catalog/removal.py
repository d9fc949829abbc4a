"""Physical removal: the rows of checkpoints that have been retired for longer than a grace period and are needed by nobody.

First the decision, then the rows: once `removed` stands nobody restores the checkpoint or comes to need it, so it matters
neither how long deleting takes nor how often it is cut off; whoever comes next finishes it. Manifests go last: as long as a
checkpoint's row is there, everything that belongs to it can be found.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING

from laminar_delta.catalog.batches import epochs_of_only
from laminar_delta.catalog.clock import now
from laminar_delta.catalog.copies import Copies
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.needs import Removing, needed
from laminar_delta.catalog.patience import again_after_conflicts
from laminar_delta.catalog.reading import REMOVAL, Reading
from laminar_delta.catalog.standing import REMOVED, Standing, standing
from laminar_delta.catalog.tables import (
    MANIFESTS,
    OPERATOR_DELTAS,
    OPERATOR_SNAPSHOTS,
    QUERY_PROGRESS,
    SINK_STATUSES,
    SOURCE_OFFSETS,
    STATE_BATCHES,
)
from laminar_delta.engine.predicate import col

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine, Metadata
    from laminar_delta.engine.predicate import Predicate
    from laminar_delta.engine.request import TableSpec

ORDER = (SOURCE_OFFSETS, SINK_STATUSES, OPERATOR_SNAPSHOTS, OPERATOR_DELTAS, MANIFESTS)
"""The tables that hold rows of a checkpoint, in the order they are deleted from."""

IDS_PER_DELETE = 200
"""How many ids one commit names: keeps its condition short."""

_TRIES = 20
"""How often a delete is tried. Only on an object store can appends come between, each of them a commit of somebody else."""


def retired_before(seen: Standing, limit: dt.datetime) -> list[int]:
    """The checkpoints that were retired by then, and are neither pinned nor removed."""
    return [number for number in sorted(seen.retired - seen.removed - seen.pinned) if seen.retired_at[number] <= limit]


def removable(reading: Reading, pipeline: str, seen: Standing, copies: Copies, *, grace: dt.timedelta) -> list[int]:
    """The checkpoints whose time has come: retired for longer than `grace`, not pinned, needed by nobody.

    Nor by one that is retired, but not for as long: until its own time has come it can be restored for certain. Nor by one
    whose row somebody took out: recovery finds it. And not while damage keeps recovery from anything newer.
    """
    limit = now() - grace
    old = retired_before(seen, limit)
    if not old:
        return []
    kept = needed(reading, pipeline, seen, Removing(retired_after=limit, copies=copies))
    return [number for number in old if number not in kept]


def remove_retired(
    engine: Engine, pipeline: str, *, grace: dt.timedelta, owner: str, copies: Copies | None = None
) -> tuple[int, ...]:
    """Removes the rows of a pipeline's checkpoints whose time has come, and what an earlier removal left behind.

    Args:
        engine: Where.
        pipeline: Whose.
        grace: How long after it was retired a checkpoint can be restored for certain.
        owner: Who, for the audit.
        copies: What has to be left alone, where it was looked at already.

    Returns:
        The checkpoints whose rows were deleted, ascending.

    Raises:
        ConflictError: Others kept committing in between; the decision stands, and calling again finishes it.
    """
    looked = copies or Copies(engine)

    def choose(seen: Standing) -> list[Decision]:
        reason = f"retired for longer than {grace}"
        return [
            Decision(checkpoint_id=number, word=REMOVED, reason=reason)
            for number in removable(Reading(engine), pipeline, seen, looked, grace=grace)
        ]

    decide(engine, pipeline, choose, owner=owner)
    reading = Reading(engine)
    gone = standing(reading, pipeline).removed
    if not gone:
        return ()
    removed: set[int] = set()
    of_pipeline = col("pipeline").eq(pipeline)
    # The batches of its epoch are kept for a checkpoint whose row somebody took out.
    lost = {head.epoch for head in looked.lost_heads if head.pipeline == pipeline}
    _remove_batches(engine, pipeline, gone, lost, owner)
    for spec in ORDER:
        present = {row["checkpoint_id"] for row in reading.rows(spec, where=of_pipeline, columns=["checkpoint_id"])}
        left = sorted(gone & present)
        metadata = {"operation": REMOVAL, "pipeline": pipeline, "checkpoints": left, "owner": owner}
        for batch in batches(left):
            delete_rows(engine, spec, of_pipeline & col("checkpoint_id").is_in(batch), metadata=metadata)
        removed.update(left)
    return tuple(sorted(removed))


def _remove_batches(engine: Engine, pipeline: str, gone: frozenset[int], kept: set[int], owner: str) -> None:
    """Batches of state blobs belong to an epoch, and go with its last checkpoint: while its manifest row still tells."""
    reading, of_pipeline = Reading(engine), col("pipeline").eq(pipeline)
    present = {row["epoch"] for row in reading.rows(STATE_BATCHES, where=of_pipeline, columns=["epoch"])}
    left = sorted(present & epochs_of_only(reading, pipeline, gone) - kept) if present else []
    metadata = {"operation": REMOVAL, "pipeline": pipeline, "epochs": left, "owner": owner}
    for batch in batches(left):
        delete_rows(engine, STATE_BATCHES, of_pipeline & col("epoch").is_in(batch), metadata=metadata)


def remove_progress(engine: Engine, *, keep_for: dt.timedelta, owner: str, dry_run: bool = False) -> int:
    """Removes what streaming queries said of themselves longer ago than that; how many rows. Nothing else needs them."""
    if not engine.exists(QUERY_PROGRESS.name):
        return 0
    old = col("timestamp_ms").lt(int((now() - keep_for).timestamp() * 1000))
    found = engine.read(QUERY_PROGRESS.name, columns=["timestamp_ms"], where=old).num_rows
    if found and not dry_run:
        metadata = {"operation": "remove-progress", "rows": found, "owner": owner}
        delete_rows(engine, QUERY_PROGRESS, old, metadata=metadata)
    return found


def batches(numbers: list[int]) -> Iterable[list[int]]:
    """The ids in groups that one delete can name."""
    return (numbers[start : start + IDS_PER_DELETE] for start in range(0, len(numbers), IDS_PER_DELETE))


def delete_rows(engine: Engine, spec: TableSpec, where: Predicate, *, metadata: Metadata) -> None:
    """Deletes rows, again and again where others commit in between. Raises `ConflictError` when they never pause."""
    again_after_conflicts(lambda: engine.delete(spec.name, where, metadata=metadata), tries=_TRIES)
