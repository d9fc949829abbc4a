"""The ids of a pipeline's checkpoints: given out once, never again, whatever became of what they were given to.

Who names ids of its own answers for them: LaminarDB's coordinator tries again under the id that failed, an import fills gaps.
Under such an id anything can be saved as long as nothing is committed there, also below the newest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from laminar_delta.catalog.bounds import above, bound
from laminar_delta.catalog.committed import check_never_committed, committed_ids
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.generations import stands_at
from laminar_delta.catalog.reading import Reading, raise_unless_damage
from laminar_delta.catalog.standing import BURNED, Standing, standing
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_DELTAS, OPERATOR_SNAPSHOTS, SOURCE_OFFSETS
from laminar_delta.catalog.traces import certain_ids
from laminar_delta.errors import ConflictError, CorruptionError, StorageError
from laminar_delta.model.ids import check_ordering_number

if TYPE_CHECKING:
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.engine.base import Engine


class CheckpointNumbers:
    """Which ids are taken. Made behind the fence, where nobody else takes any more; not safe by itself between threads."""

    def __init__(self, reading: Reading, pipeline: str) -> None:
        self._reading = reading
        self._pipeline = pipeline
        self._recorded, self.highest = _highest(reading, pipeline)
        """Above it nothing was ever committed, and there is no need to look."""
        self.next = self.highest + 1
        """What the next checkpoint gets unless it names one."""
        self._given: set[int] = set()

    def take(self, wanted: int | None) -> int:
        """The next id, or the one wanted; not given out again, so that only who names a failed attempt's id saves under it.

        Raises:
            InvalidInputError: It is beyond what an id can be. Nothing is taken: ids after it would be beyond it too.
        """
        number = check_ordering_number("checkpoint_id", self.next if wanted is None else wanted)
        if number >= self.next:
            self._given.add(number)
            self.next = number + 1
        return number

    @property
    def unrecorded(self) -> int | None:
        """The highest id given out, where nothing that stays tells of it: neither a checkpoint nor a decision."""
        return self.next - 1 if self.next - 1 > self._recorded else None

    def note(self, checkpoint_id: int, *, certain: bool) -> None:
        """This one is committed for certain, or may be."""
        if certain:
            self._recorded = max(self._recorded, checkpoint_id)
        self._given.discard(checkpoint_id)
        self.highest = max(self.highest, checkpoint_id)
        self.next = max(self.next, checkpoint_id + 1)

    def is_new(self, checkpoint_id: int) -> bool:
        """Whether it was never committed, for certain: above the highest nothing was, nor what was only given out here."""
        return checkpoint_id > self.highest or checkpoint_id in self._given

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
        numbers = [number for number in checkpoint_ids if not self.is_new(number)]
        if not numbers:
            return
        removed = standing(self._reading, self._pipeline).removed
        for number in numbers:
            if number in removed:
                self.check_not_removed(number)
        # Also those whose row was deleted since: they have been committed all the same.
        taken = sorted(committed_ids(self._reading, self._pipeline) & set(numbers))
        if taken:
            raise ConflictError(
                f"checkpoint {taken[0]} of pipeline {self._pipeline!r} is committed", expected="new ids", found=taken
            )


def _highest(reading: Reading, pipeline: str) -> tuple[int, int]:
    """The highest id that a checkpoint or a decision tells of, also for what is removed since; and the highest anyone used,
    also in attempts that never committed: theirs are burned.
    """
    committed, seen = committed_ids(reading, pipeline), standing(reading, pipeline)
    highest = recorded = max({seen.burned, *committed, *seen.decided})
    for table in (MANIFESTS, SOURCE_OFFSETS, OPERATOR_SNAPSHOTS, OPERATOR_DELTAS):
        try:
            highest = max(above(reading, table, pipeline, "checkpoint_id", highest))
        except (StorageError, CorruptionError) as error:
            raise_unless_damage(error)
            if table is MANIFESTS and not committed:
                # As for recovery: checkpoints that cannot be read are not taken for none.
                raise
            # Some that nobody used may be left out; none is given out twice.
            highest = bound(reading, table, pipeline, "checkpoint_id", highest, error)
    if not highest and stands_at(reading.engine, pipeline)[1]:
        # Rows and children are gone: what sinks told is the last that knows of any.
        highest = max(certain_ids(reading, pipeline), default=0)
        if not highest:
            check_never_committed(reading, pipeline)
    return recorded, highest


def burn(engine: Engine, held: Generation, number: int) -> None:
    """Records that no id up to this one is to be given out again, though it is no checkpoint's."""
    reason = f"given out by generation {held.number} and not committed by it"
    _burn(engine, held.pipeline, number, owner=held.owner, reason=reason, generation=held.number)


def burn_removed(engine: Engine, pipeline: str, number: int, *, owner: str) -> None:
    """The same before what attempts up to this id staged is removed; nothing where what stays tells of a higher one."""
    recorded = max(committed_ids(Reading(engine), pipeline), default=0)
    if recorded < number:
        _burn(engine, pipeline, number, owner=owner, reason="what was staged under it is removed")


def _burn(
    engine: Engine, pipeline: str, number: int, *, owner: str, reason: str, generation: int | None = None
) -> None:
    def choose(seen: Standing) -> list[Decision]:
        known = max(seen.burned, *seen.decided, 0)
        return [] if known >= number else [Decision(checkpoint_id=number, word=BURNED, reason=reason)]

    decide(engine, pipeline, choose, owner=owner, generation=generation)
