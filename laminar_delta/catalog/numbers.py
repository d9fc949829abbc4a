"""The ids of a pipeline's checkpoints: given out once, never again, whatever became of what they were given to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from laminar_delta.catalog.decisions import standing
from laminar_delta.catalog.healing import committed_ids
from laminar_delta.catalog.tables import MANIFESTS, RETENTION, SOURCE_OFFSETS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading


class CheckpointNumbers:
    """Which ids are taken. Made behind the fence, where nobody else takes any more; not safe by itself between threads."""

    def __init__(self, reading: Reading, pipeline: str) -> None:
        self._reading = reading
        self._pipeline = pipeline
        self.highest = _highest(reading, pipeline)
        """Above it nothing was ever committed, and there is no need to look."""
        self.next = self.highest + 1
        """What the next checkpoint gets unless it names one."""

    def take(self, wanted: int | None) -> int:
        """The next id, or the one wanted; taken for good, so that no other content ever goes under a failed attempt's id."""
        number = self.next if wanted is None else wanted
        self.next = max(self.next, number + 1)
        return number

    def note(self, checkpoint_id: int) -> None:
        """This one is committed, or may be."""
        self.highest = max(self.highest, checkpoint_id)
        self.next = max(self.next, checkpoint_id + 1)

    def check_not_removed(self, checkpoint_id: int) -> None:
        """Raises `ConflictError` when the checkpoint of that id was removed: no id is ever committed twice."""
        if checkpoint_id in standing(self._reading, self._pipeline).removed:
            raise ConflictError(
                f"checkpoint {checkpoint_id} of pipeline {self._pipeline!r} was committed before, and removed",
                expected="an id that was never used",
                found=checkpoint_id,
                next_step="Save under another id: no id is ever committed twice.",
            )

    def check_new(self, checkpoint_ids: Iterable[int]) -> None:
        """Raises `ConflictError` when one of several ids was ever committed: one look for all of them."""
        numbers = [number for number in checkpoint_ids if number <= self.highest]
        if not numbers:
            return
        where = col("pipeline").eq(self._pipeline) & col("checkpoint_id").is_in(numbers)
        taken = sorted(
            row["checkpoint_id"] for row in self._reading.rows(MANIFESTS, where=where, columns=["checkpoint_id"])
        )
        if taken:
            raise ConflictError(
                f"checkpoint {taken[0]} of pipeline {self._pipeline!r} is committed", expected="new ids", found=taken
            )
        removed = standing(self._reading, self._pipeline).removed
        for number in numbers:
            if number in removed:
                self.check_not_removed(number)


def _highest(reading: Reading, pipeline: str) -> int:
    """The highest id anyone used, also in attempts that never committed (theirs are burned) and for what is removed since."""
    used = {0, *committed_ids(reading, pipeline)}
    for table in (MANIFESTS, SOURCE_OFFSETS, RETENTION):
        rows = reading.rows(table, where=col("pipeline").eq(pipeline), columns=["checkpoint_id"])
        used.update(row["checkpoint_id"] or 0 for row in rows)
    return max(used)
