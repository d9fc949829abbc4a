"""What maintenance has to leave alone: the only good copies of checkpoints, and what recovery would need if it could not go
back to anything better.

VACUUM takes earlier versions one day, and removal takes what was retired. Both ask here first, for all pipelines of a catalog
at once; each is looked at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import CheckpointHead, head_of
from laminar_delta.catalog.deliveries import DOUBT, Deliveries
from laminar_delta.catalog.healing import as_saved, find_rows, unchanged_row
from laminar_delta.catalog.reading import Reading, raise_unless_damage
from laminar_delta.catalog.standing import Standing, standings
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.catalog.taken_out import taken_out
from laminar_delta.catalog.validation import examine
from laminar_delta.errors import ConflictError, CorruptionError, NotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laminar_delta.catalog.healing import FoundRows
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.base import Engine

_COLUMNS = ["pipeline", "checkpoint_id", "attempt_id", "sinks"]
"""What tells which checkpoint recovery goes back to if nothing is damaged."""

_STATUSES_OUT = "what its sinks told was taken out"
_SHORTER = "Without VACUUM that version is there until the log is cleaned past it, and no longer."
_DERIVE = f"Derive a checkpoint from it, unpin it, and run maintenance again. {_SHORTER}"
_TELL_AGAIN = f"Record again what its sinks have (`writer.sink_committed`), and run maintenance again. {_SHORTER}"


@dataclass(slots=True)
class Looked:
    """What there is of one pipeline."""

    chosen_id: int | None = None
    """The checkpoint that recovery goes back to."""
    past: dict[int, str] = field(default_factory=dict)
    """Of the newest, the one chosen and those pinned: what only an earlier version has whole, and what is wrong with it."""
    damaged: dict[int, str] = field(default_factory=dict)
    """What recovery would rather go back to, but cannot: no version has it whole."""


class Copies:
    """The pipelines of a catalog as maintenance finds them. What is asked for is looked up then, and once."""

    def __init__(self, engine: Engine) -> None:
        self._reading = Reading(engine)
        self._looked: dict[str, Looked] = {}

    def check(self) -> None:
        """Refuses when what is pinned, the newest, or what recovery goes back to is whole only in an earlier version.

        Raises:
            ConflictError: VACUUM would take that version one day.
        """
        for pipeline in sorted({*self._rows, *self._taken_out}):
            for number, problem in sorted(self._look(pipeline).past.items()):
                raise ConflictError(
                    f"VACUUM would one day take the only good copy of checkpoint {number} of pipeline {pipeline!r}: {problem}",
                    expected="whole as it is now",
                    found=problem,
                    next_step=_TELL_AGAIN if problem == _STATUSES_OUT else _DERIVE,
                )

    @cached_property
    def lost_heads(self) -> list[CheckpointHead]:
        """Checkpoints whose rows were taken out or changed, as they were committed: they need what they needed."""
        return [
            head_of(lost.row)
            for pipeline, found in self._taken_out.items()
            for lost in found.lost
            if lost.row is not None and lost.checkpoint_id not in self._seen(pipeline).removed
        ]

    def spared(self, pipeline: str) -> frozenset[int]:
        """Retired checkpoints that are not to be removed: all newer than what recovery goes back to, while damage is why."""
        seen, looked = self._seen(pipeline), self._look(pipeline)
        if not looked.damaged:
            return frozenset()
        above = -1 if looked.chosen_id is None else looked.chosen_id
        return frozenset(number for number in seen.retired - seen.removed if number > above)

    def why_spared(self, pipeline: str) -> str:
        """The damage that spares them, in words."""
        damaged = sorted(self._look(pipeline).damaged.items(), reverse=True)
        return "; ".join(f"checkpoint {number} cannot be used: {problem}" for number, problem in damaged)

    @cached_property
    def _decided(self) -> Mapping[str, Standing]:
        return standings(self._reading)

    @cached_property
    def _taken_out(self) -> Mapping[str, FoundRows]:
        return taken_out(self._reading, self._decided)

    @cached_property
    def _rows(self) -> Mapping[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self._reading.rows(MANIFESTS, columns=_COLUMNS):
            found.setdefault(row["pipeline"], []).append(row)
        return found

    def _seen(self, pipeline: str) -> Standing:
        return self._decided.get(pipeline, Standing())

    def _look(self, pipeline: str) -> Looked:
        if pipeline not in self._looked:
            self._looked[pipeline] = self._look_anew(pipeline)
        return self._looked[pipeline]

    def _look_anew(self, pipeline: str) -> Looked:
        """Chooses as recovery does. What it passes over because of its sinks is not examined: of those there can be many."""
        seen, looked = self._seen(pipeline), Looked()
        found = self._taken_out.get(pipeline)
        rows = self._rows.get(pipeline, []) if found is None else found.rows
        lost = {} if found is None else {one.checkpoint_id: one.problem for one in found.lost if one.row is None}
        visible = {row["checkpoint_id"]: row for row in rows if row["checkpoint_id"] not in seen.retired}
        deliveries = Deliveries(self._reading, pipeline)
        newest = max(visible, default=None)
        untold: dict[int, str] = {}
        for number in sorted({*visible, *lost} - seen.retired, reverse=True):
            usable = number not in seen.abandoned and (number in lost or deliveries.is_delivered(visible[number]))
            if not usable and number not in seen.abandoned:
                if deliveries.may_have_lost(visible[number]):
                    looked.damaged[number] = DOUBT
                elif deliveries.is_untold(visible[number]):
                    untold[number] = DOUBT
            if not usable and number != newest:
                continue
            if number in lost:
                looked.damaged[number] = lost[number]
                continue
            now, ever = self._examine(pipeline, number)
            if now is not None and ever:
                looked.past[number] = now
            if usable and (now is None or ever):
                looked.chosen_id = number
                if deliveries.healed(visible[number]):
                    looked.past.setdefault(number, _STATUSES_OUT)
                break
            if usable and now is not None:
                looked.damaged[number] = now
        if looked.chosen_id is None:
            # Above one that is delivered, it is what a sink that is down for long looks like.
            looked.damaged.update(untold)
        for number in seen.pinned - looked.past.keys() - {looked.chosen_id}:
            now, ever = self._examine(pipeline, number)
            if now is not None and ever:
                looked.past[number] = now
        return looked

    def _examine(self, pipeline: str, number: int) -> tuple[str | None, bool]:
        """What is wrong with a checkpoint as it is; and whether it is whole as it was saved."""
        row, problem = self._row(pipeline, number)
        if row is None:
            return problem, False
        now = [str(finding) for finding in examine(self._reading, row) if finding.is_fatal]
        ever = not now or not any(finding.is_fatal for finding in examine(as_saved(self._reading, row), row))
        return "; ".join([*now, *([] if problem is None else [problem])]) or None, ever

    def _row(self, pipeline: str, number: int) -> tuple[Row | None, str | None]:
        """The row of a checkpoint as it was committed, if it can be had; and what is wrong with it as it is."""
        try:
            return unchanged_row(self._reading, pipeline, number), None
        except NotFoundError:
            problem = "its manifest row is gone"
        except (CorruptionError, StorageError) as damage:
            raise_unless_damage(damage)
            problem = damage.message
        found = self._taken_out.get(pipeline) or find_rows(self._reading, pipeline)
        return next((row for row in found.rows if row["checkpoint_id"] == number), None), problem
