"""Reconciling: what the catalog says of sinks is brought up to what the sinks really have, before anything is recovered.

A process can die between a sink's commit and the record of it. Falling back then would deliver the epoch again, and taking the
record's word for a failure would lose it; so the sinks are asked, and an epoch they still hold is shown after all. That is
decided for a checkpoint as a whole: unless every sink that lacks it can get it, none gets it, and recovery falls back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from laminar_delta.catalog.choosing import FailedSinks, failed_sinks_of
from laminar_delta.catalog.deliveries import Deliveries, all_committed
from laminar_delta.catalog.healing import as_saved, find_rows
from laminar_delta.catalog.said import storable
from laminar_delta.catalog.sinks import SinkEpoch, Sinks, Step
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.validation import examine
from laminar_delta.errors import SessionStateError
from laminar_delta.model.status import SinkCommitKind, SinkCommitStatus

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.writer import Writer


class Action(str, Enum):
    """What was done about a sink that was not known to have a checkpoint."""

    RECORDED = "recorded"
    """The sink has it: now Committed."""
    COMMITTED = "committed"
    """The sink still held it and was told again to show it: now Committed."""
    FAILED = "failed"
    """The same, but the sink failed again: now Failed."""
    LEFT = "left"
    """Nothing: the sink does not have it, cannot tell or did not answer, or another sink stands in the way."""
    UNREGISTERED = "unregistered"
    """The checkpoint names a sink that nobody registered: not asked, nothing guessed."""
    NOT_NAMED = "not-named"
    """A registered sink that the checkpoint does not name: it has nothing to do with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkAnswer:
    """One sink of one checkpoint."""

    checkpoint_id: int
    sink: str
    epoch: SinkEpoch
    before: SinkCommitStatus | None
    """The status the catalog had; None for a sink the checkpoint does not name."""
    landed: bool | None = None
    """What the sink answered; None also when it was not asked or raised."""
    action: Action = Action.LEFT
    error: Exception | None = None
    """What the sink raised."""

    @property
    def is_delivered(self) -> bool:
        """Whether the sink has the checkpoint for sure, or never was to have it."""
        return self.action in (Action.RECORDED, Action.COMMITTED, Action.NOT_NAMED)

    def __str__(self) -> str:
        told = f": {self.error}" if self.error is not None else ""
        return (
            f"sink {self.sink!r}, checkpoint {self.checkpoint_id}, epoch {self.epoch.number}: {self.action.value}{told}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileReport:
    """What reconciling found and did, oldest checkpoint first."""

    answers: tuple[SinkAnswer, ...] = ()

    @property
    def undelivered(self) -> tuple[SinkAnswer, ...]:
        """Where a sink still lacks a checkpoint, or may lack it."""
        return tuple(answer for answer in self.answers if not answer.is_delivered)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCheckpoint:
    """A checkpoint that not all of its sinks are known to have."""

    row: Row
    statuses: Mapping[str, SinkCommitStatus]

    def epoch_of(self, sink: str) -> SinkEpoch:
        """The epoch a sink knows it by."""
        saved = {entry["name"]: entry["epoch"] for entry in self.row["sinks"]}.get(sink)
        return SinkEpoch(number=self.row["epoch"] if saved is None else saved, generation=self.row["generation"])


def open_checkpoints(reading: Reading, pipeline: str) -> list[OpenCheckpoint]:
    """The newest checkpoints with undelivered sinks, down to the first that recovery could use; ascending by id."""
    decided = standing(reading, pipeline)
    rows = find_rows(reading, pipeline).rows
    found: list[OpenCheckpoint] = []
    deliveries = Deliveries(reading, pipeline)
    for row in sorted(rows, key=lambda row: row["checkpoint_id"], reverse=True):
        if row["checkpoint_id"] in decided.retired | decided.abandoned:
            continue
        statuses = deliveries.statuses(row)
        if all_committed(statuses):
            break
        found.append(OpenCheckpoint(row=row, statuses=statuses))
    return found[::-1]


class Reconciliation:
    """A reconciliation under way.

    Args:
        writer: Whose checkpoints.
        sinks: Whom to ask.
        failed_sinks: What recovery will make of failed sinks: where it accepts them, they do not stand in the way.
    """

    def __init__(self, writer: Writer, sinks: Sinks, failed_sinks: FailedSinks) -> None:
        self._writer = writer
        self._sinks = sinks
        self._failed_sinks = failed_sinks_of(failed_sinks)

    def run(self) -> ReconcileReport:
        """Asks and mends, oldest first: a checkpoint is delivered only on top of delivered ones.

        Raises:
            SessionStateError: There is something to ask about and no sink to ask.
            FencedError: Another writer took over.
        """
        with self._sinks.step(Step.SETTLE):
            self._writer.settle()
        found = open_checkpoints(self._writer.reading, self._writer.pipeline)
        self._writer.check_held()
        if not found:
            return ReconcileReport()
        if not self._sinks.by_name:
            raise SessionStateError(
                f"checkpoint {found[-1].row['checkpoint_id']} of pipeline {self._writer.pipeline!r} waits for "
                f"{sorted(found[-1].statuses)} and no sink is registered",
                expected=sorted(found[-1].statuses),
                found=[],
                next_step="Give the coordinator its sinks: without asking them, output they have would be delivered again.",
            )
        held = self._sinks.prepared()
        answers: list[SinkAnswer] = []
        in_order = True
        for checkpoint in found:
            settled = self._reconcile(checkpoint, held, may_redrive=in_order)
            in_order = in_order and all(map(self.is_settled, settled))
            answers += settled
        return ReconcileReport(answers=tuple(answers))

    def _reconcile(
        self, checkpoint: OpenCheckpoint, held: Mapping[str, frozenset[SinkEpoch] | Exception], *, may_redrive: bool
    ) -> list[SinkAnswer]:
        answers = {name: self._ask(checkpoint, name, held.get(name, frozenset())) for name in self._names(checkpoint)}
        can_get_it = [name for name, answer in answers.items() if self._can_redrive(answer, held)]
        lacking = [name for name, answer in answers.items() if name not in can_get_it and not self.is_settled(answer)]
        can_show = can_get_it and not lacking and may_redrive
        # Recovery may pass over a damaged one anyway: showing its epoch would then show it twice.
        if can_show and not is_damaged(self._writer.reading, checkpoint.row):
            told = self._sinks.each(Step.COMMIT, lambda sink: sink.commit(answers[sink.name].epoch), names=can_get_it)
            for name, error in told.items():
                action = Action.COMMITTED if error is None else Action.FAILED
                answers[name] = replace(answers[name], action=action, error=error)
        self._record(checkpoint, answers)
        return list(answers.values())

    def _names(self, checkpoint: OpenCheckpoint) -> list[str]:
        open_ones = [name for name, status in checkpoint.statuses.items() if not status.is_committed]
        return sorted(open_ones) + sorted(set(self._sinks.by_name) - set(checkpoint.statuses))

    def _ask(self, checkpoint: OpenCheckpoint, name: str, held: frozenset[SinkEpoch] | Exception) -> SinkAnswer:
        epoch = checkpoint.epoch_of(name)
        answer = SinkAnswer(
            checkpoint_id=checkpoint.row["checkpoint_id"],
            sink=name,
            epoch=epoch,
            before=checkpoint.statuses.get(name),
        )
        if answer.before is None:
            return replace(answer, action=Action.NOT_NAMED)
        if name not in self._sinks.by_name:
            return replace(answer, action=Action.UNREGISTERED)
        landed = self._sinks.landed(epoch, name)
        if isinstance(landed, Exception):
            return replace(answer, error=landed)
        if landed is False and isinstance(held, Exception):
            return replace(answer, landed=False, error=held)
        return replace(answer, landed=landed, action=Action.RECORDED if landed else Action.LEFT)

    def _can_redrive(self, answer: SinkAnswer, held: Mapping[str, frozenset[SinkEpoch] | Exception]) -> bool:
        epochs = held.get(answer.sink, frozenset())
        return answer.landed is False and not isinstance(epochs, Exception) and answer.epoch in epochs

    def is_settled(self, answer: SinkAnswer) -> bool:
        """Whether recovery would use a checkpoint as far as this sink is concerned."""
        failed = answer.action is Action.FAILED or (
            answer.before is not None and answer.before.kind is SinkCommitKind.FAILED
        )
        return answer.is_delivered or (failed and self._failed_sinks is FailedSinks.ACCEPT)

    def _record(self, checkpoint: OpenCheckpoint, answers: Mapping[str, SinkAnswer]) -> None:
        statuses: dict[str, SinkCommitStatus] = {}
        for name, answer in answers.items():
            if answer.action in (Action.RECORDED, Action.COMMITTED):
                statuses[name] = SinkCommitStatus.committed()
            elif answer.action is Action.FAILED:
                statuses[name] = commit_failure(name, answer.error)
        if statuses:
            with self._sinks.step(Step.RECORD):
                self._writer.set_sink_statuses(checkpoint.row["checkpoint_id"], statuses)


def is_damaged(reading: Reading, row: Row) -> bool:
    """Whether a checkpoint is damaged, also as it was saved."""
    return all(any(finding.is_fatal for finding in examine(tried, row)) for tried in (reading, as_saved(reading, row)))


def commit_failure(sink: str, error: Exception | None) -> SinkCommitStatus:
    """The status of a sink whose commit raised, in LaminarDB's words."""
    # A sink's words must not keep what the other sinks did from being recorded.
    return SinkCommitStatus.failed(storable(f"sink '{sink}' commit failed: {error}"))
