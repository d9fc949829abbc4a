"""The checkpoints that readers see; also when somebody took out all rows of a pipeline, which is not the same as having none.

Where some rows are there, what is listed is what is there: recovery tells of the rest. Where none is, the fence says whether
something was ever committed, and only then the log and the earlier versions of the table are searched. Whoever derives from
the newest has them searched in any case: work whose row is gone is not to be left behind without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import CheckpointHead, head_of, heads
from laminar_delta.catalog.generations import Generation
from laminar_delta.catalog.healing import find_rows
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.errors import CorruptionError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading


def listed(reading: Reading, pipeline: str) -> list[CheckpointHead]:
    """The visible checkpoints of a pipeline, ascending by id.

    Raises:
        CorruptionError: There were checkpoints, no row of any is left, and that of one is nowhere to be had.
    """
    found = heads(reading, pipeline)
    if found or not _was_committed_to(reading, pipeline):
        return found
    rows = find_rows(reading, pipeline)
    retired = standing(reading, pipeline).retired
    lost = {one.checkpoint_id: one.problem for one in rows.lost if one.row is None and one.checkpoint_id not in retired}
    if lost:
        newest = max(lost)
        raise CorruptionError(
            f"pipeline {pipeline!r} had checkpoints and no row of any is left; that of {newest} is lost: {lost[newest]}",
            expected=sorted(lost),
            found=[],
            next_step=f"Restore the table {MANIFESTS.name!r} to a version that has them, or its files from a backup.",
            details={"table": MANIFESTS.name, "pipeline": pipeline},
        )
    healed = [head_of(row) for row in rows.rows if row["checkpoint_id"] not in retired]
    return sorted(healed, key=lambda head: head.checkpoint_id)


def known_ids(reading: Reading, pipeline: str) -> list[int]:
    """The ids of the visible checkpoints, ascending, also of those that only an earlier version has."""
    retired = standing(reading, pipeline).retired
    return sorted(
        row["checkpoint_id"] for row in find_rows(reading, pipeline).rows if row["checkpoint_id"] not in retired
    )


def newest_known(reading: Reading, pipeline: str) -> int | None:
    """The newest of them; None without any.

    Raises:
        CorruptionError: There was a newer one, which no recovery passed over, and its row is nowhere to be had.
    """
    seen, found = standing(reading, pipeline), find_rows(reading, pipeline)
    newest = max((row["checkpoint_id"] for row in found.rows if row["checkpoint_id"] not in seen.retired), default=None)
    lost = {one.checkpoint_id: one.problem for one in found.lost if one.row is None}
    above = [number for number in lost.keys() - seen.retired - seen.abandoned if newest is None or number > newest]
    if above:
        number = max(above)
        raise CorruptionError(
            f"the row of checkpoint {number} of pipeline {pipeline!r}, the newest, is lost: {lost[number]}",
            expected=number,
            found=newest,
            next_step="Restore it, or name the checkpoint to go on from; `recover` tells which can be used.",
            details={"table": MANIFESTS.name, "pipeline": pipeline},
        )
    return newest


def _was_committed_to(reading: Reading, pipeline: str) -> bool:
    """Whether the fence stands behind the first takeover. In a catalog as it was, no row is no row."""
    if MANIFESTS.name in reading.versions:
        return False
    first = Generation(pipeline=pipeline, number=1, owner="").fence(0)
    stands = reading.engine.fences(MANIFESTS.name, [first.application_id])
    return stands.get(first.application_id, 0) > first.version
