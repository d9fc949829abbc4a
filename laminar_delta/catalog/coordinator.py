"""The coordinator: one checkpoint and the sinks that deliver it, in two phases around one decision.

    fill        the caller says where its sources are and what its operators know
    pre-commit  every sink makes its output of the epoch durable and keeps it invisible
    save        the checkpoint exists, all sinks Pending: the decision. Before it everything is rolled back, after it never
    commit      every sink shows its output; one that fails does not stop the others
    record      the statuses, in one commit

A process can die between any two of these. Its successor calls `resume`: sinks are asked what they have, what can be shown is
shown, what must not be shown any more is dropped, and then the checkpoint to go on from is chosen.

After anything but a success the sinks and the caller's sources are no longer at the same point, so the next `run` is refused
until `resume` has said where to go on, or `reconcile` has delivered what was left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.catalog.healing import highest_epoch
from laminar_delta.catalog.reconcile import ReconcileReport, Reconciliation, commit_failure
from laminar_delta.catalog.resume import ResumeReport, Resumption, is_delivered
from laminar_delta.catalog.sinks import ExactlyOnceSink, Observe, SinkEpoch, Sinks, Step, attempt, raised
from laminar_delta.errors import FencedError, InvalidInputError, SessionStateError, is_certain
from laminar_delta.logs import Event, log_event
from laminar_delta.model.ids import check_ordering_number
from laminar_delta.model.status import SinkCommitStatus

if TYPE_CHECKING:
    from laminar_delta.catalog.builder import CheckpointBuilder
    from laminar_delta.catalog.writer import Writer

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOutcome:
    """What became of one checkpoint. A failure of the protocol is a value, not an exception."""

    checkpoint_id: int
    epoch: int
    success: bool = False
    """Saved, delivered by every sink, and recorded as such."""
    saved: bool | None = False
    """Whether the checkpoint exists; None when the answer to the save was lost."""
    statuses: Mapping[str, SinkCommitStatus] = field(default_factory=dict)
    """Of the sinks, once it is saved."""
    error: str | None = None
    cause: Exception | None = field(default=None, compare=False)
    """What was raised first, with its traceback."""
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a coordinator did so far."""

    completed: int = 0
    failed: int = 0
    last_duration_ms: int | None = None
    """Of the last success."""


class Coordinator:
    """Saves checkpoints and has sinks deliver them. One per writer; its calls take turns.

    Args:
        writer: The holder of the pipeline's generation.
        sinks: All exactly-once sinks of the pipeline. Others need no coordination.
        max_workers: How many sinks are called at once.
        observe: Told of every step.
        reuse_epochs: The caller numbers its epochs itself, and one of an earlier generation may come again: a batch that is
            tried again has the number it had. Within this generation they still only go up.
    """

    def __init__(
        self,
        writer: Writer,
        sinks: Iterable[ExactlyOnceSink],
        *,
        max_workers: int = 1,
        observe: Observe | None = None,
        reuse_epochs: bool = False,
    ) -> None:
        if max_workers < 1:
            raise InvalidInputError("a coordinator needs a worker", expected="1 or more", found=max_workers)
        self._writer = writer
        self._sinks = Sinks(sinks, observe, max_workers)
        self._turn = threading.Lock()
        self._reuse_epochs = reuse_epochs
        self._next_epoch = 1
        self._ready = False
        self._unsettled: int | None = None
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """What was done so far."""
        return self._counters

    def resume(
        self,
        *,
        failed_sinks: FailedSinks = FailedSinks.SKIP,
        pipeline_hash: int | None = None,
        start_over: bool = False,
    ) -> ResumeReport:
        """Says where to go on: the call before the first `run`, and after one that failed. Safe to repeat.

        Everything written to the sinks and not delivered is dropped: read the sources again from the chosen checkpoint.

        Args:
            failed_sinks: Whether a checkpoint may be used that a sink failed to deliver and cannot deliver any more.
            pipeline_hash: What the pipeline is now; a difference is reported.
            start_over: Begin anew when there are checkpoints and none can be used; otherwise that is `CorruptionError`.

        Raises:
            SessionStateError: A checkpoint waits for a sink that is not registered.
            StorageError: A sink could not answer, or the catalog could not be read. Nothing was given up.
            CorruptionError: There are checkpoints and none can be used.
            FencedError: Another writer took over.
        """
        with self._turn:
            self._ready = False
            if not self._reuse_epochs:
                highest = highest_epoch(self._writer.reading, self._writer.pipeline)
                self._next_epoch = max(self._next_epoch, highest + 1)
            report = Resumption(
                writer=self._writer,
                sinks=self._sinks,
                failed_sinks=failed_sinks,
                pipeline_hash=pipeline_hash,
                start_over=start_over,
            ).run(last=self._epoch(self._next_epoch - 1))
            self._ready, self._unsettled = True, None
            return report

    def reconcile(self, *, failed_sinks: FailedSinks = FailedSinks.SKIP) -> ReconcileReport:
        """Asks the sinks about checkpoints they are not known to have, has them deliver what they still hold, and records it.

        When that delivers the checkpoint a `run` left unfinished, the next `run` can follow without going back.
        """
        with self._turn:
            report = Reconciliation(self._writer, self._sinks, failed_sinks).run()
            left = self._unsettled
            if left is not None and is_delivered(self._writer.reading, self._writer.pipeline, left):
                self._ready, self._unsettled = True, None
            return report

    def run(
        self,
        fill: Callable[[CheckpointBuilder], None],
        *,
        epoch: int | None = None,
        once_saved: Callable[[], None] | None = None,
    ) -> CheckpointOutcome:
        """Takes one checkpoint through all steps.

        Args:
            fill: Fills in sources, state and the rest; sinks are filled in here. What it raises is passed on: no sink was
                touched then, and `run` can be called again.
            epoch: Above all epochs so far; the next one by default.
            once_saved: Called when the checkpoint exists, before any sink shows it: for what may not be done for a checkpoint
                that never comes to be. What it raises is passed on; no sink was told to show anything then.

        Raises:
            SessionStateError: `resume` has to come first.
            FencedError: Another writer took over. Sinks were rolled back unless the checkpoint was saved: then it is the
                successor's, who delivers it or drops it.
        """
        with self._turn:
            self._check_ready()
            number = self._number(epoch)
            builder = self._writer.checkpoint(epoch=number)
            try:
                fill(builder)
                self._name_sinks(builder)
            except BaseException:
                builder.roll_back()
                raise
            self._ready, self._unsettled, self._next_epoch = False, builder.id, number + 1
            clock = time.monotonic()
            try:
                begun = CheckpointOutcome(checkpoint_id=builder.id, epoch=number)
                outcome = self._deliver(builder, self._epoch(number), begun, once_saved)
            except BaseException:
                self._count(success=False)
                raise
            outcome = replace(outcome, duration_ms=int((time.monotonic() - clock) * 1000))
            self._count(success=outcome.success, duration_ms=outcome.duration_ms)
            if outcome.success:
                self._ready, self._unsettled = True, None
            else:
                log_event(
                    _LOG,
                    logging.WARNING,
                    Event.CHECKPOINT_FAILED,
                    "checkpoint %d: %s",
                    outcome.checkpoint_id,
                    outcome.error,
                    cause=outcome.cause,
                    pipeline=self._writer.pipeline,
                    checkpoint_id=outcome.checkpoint_id,
                    error=outcome.error,
                )
            return outcome

    def _deliver(
        self,
        builder: CheckpointBuilder,
        epoch: SinkEpoch,
        outcome: CheckpointOutcome,
        once_saved: Callable[[], None] | None,
    ) -> CheckpointOutcome:
        failed = raised(self._sinks.each(Step.PRE_COMMIT, lambda sink: sink.pre_commit(epoch), all_or_nothing=True))
        if failed:
            name, error = next(iter(failed.items()))
            builder.roll_back()
            return self._rolled_back(epoch, outcome, f"pre-commit failed: sink {name!r}: {error}", error)
        with self._sinks.step(Step.SAVE):
            saved = attempt(builder.commit)
        if isinstance(saved, FencedError):
            self._sinks.abort(epoch)
            raise saved
        if (
            isinstance(saved, Exception)
            and not is_certain(saved)
            and self._writer.committer.may_be_committed(builder.id)
        ):
            # It may exist: rolled back, its output would be lost; shown, it could be output of a checkpoint that never was.
            # Of what is no answer, a time limit may have come after the commit; what users' state raises comes before it.
            return replace(outcome, saved=None, error=f"save outcome unknown: {_said(saved)}", cause=saved)
        if isinstance(saved, Exception):
            return self._rolled_back(epoch, outcome, f"save failed: {_said(saved)}", saved)
        if once_saved is not None:
            once_saved()
        return self._commit(epoch, outcome)

    def _commit(self, epoch: SinkEpoch, outcome: CheckpointOutcome) -> CheckpointOutcome:
        # When a sink failed for good the others wait: what they show now would be shown again.
        answers = self._sinks.each(Step.COMMIT, lambda sink: sink.commit(epoch), most_once=True)
        failed = raised(answers)
        told = {
            name: commit_failure(name, failed[name]) if name in failed else SinkCommitStatus.committed()
            for name in answers
        }
        error = "partial sink commit failure: " + ", ".join(sorted(failed)) if failed else None
        cause = next(iter(failed.values()), None)
        if told:
            with self._sinks.step(Step.RECORD):
                recorded = attempt(lambda: self._writer.set_sink_statuses(outcome.checkpoint_id, told))
            if isinstance(recorded, FencedError):
                raise recorded
            if recorded is not None:
                error = "; ".join(filter(None, [error, f"statuses not recorded: {recorded}"]))
                cause = cause or recorded
        statuses = {name: told.get(name, SinkCommitStatus.pending()) for name in self._sinks.by_name}
        return replace(outcome, success=error is None, saved=True, statuses=statuses, error=error, cause=cause)

    def _rolled_back(
        self, epoch: SinkEpoch, outcome: CheckpointOutcome, error: str, cause: Exception
    ) -> CheckpointOutcome:
        # All sinks, also one that was not asked to pre-commit: what it was given will be read and written again.
        for name, problem in self._sinks.abort(epoch).items():
            error = f"{error}; sink {name!r} could not roll back: {problem}"
        return replace(outcome, error=error, cause=cause)

    def _check_ready(self) -> None:
        if self._ready:
            return
        if self._unsettled is None:
            raise SessionStateError(
                f"pipeline {self._writer.pipeline!r} was not resumed",
                next_step="Call `resume` first, and read the sources from the checkpoint it chooses.",
            )
        raise SessionStateError(
            f"checkpoint {self._unsettled} of pipeline {self._writer.pipeline!r} was not completed",
            found=self._unsettled,
            next_step="Call `resume` and read the sources again from there; another epoch now would skip its records.",
        )

    def _number(self, wanted: int | None) -> int:
        if wanted is None:
            return max(self._next_epoch, self._writer.next_id)
        if wanted < self._next_epoch:
            raise InvalidInputError(
                f"epoch {wanted} of pipeline {self._writer.pipeline!r} is not above those so far",
                expected=f"{self._next_epoch} or more",
                found=wanted,
            )
        return check_ordering_number("epoch", wanted)

    def _epoch(self, number: int) -> SinkEpoch:
        return SinkEpoch(number=number, generation=self._writer.generation)

    def _name_sinks(self, builder: CheckpointBuilder) -> None:
        unknown = sorted(set(builder.manifest().sink_epochs) - set(self._sinks.by_name))
        if unknown:
            raise InvalidInputError(
                f"checkpoint {builder.id} names sink {unknown[0]!r}, which is not registered",
                expected=sorted(self._sinks.by_name),
                found=unknown,
                next_step="Give it to the coordinator: nobody else would deliver to it.",
            )
        for name in self._sinks.by_name:
            builder.sink(name)

    def _count(self, *, success: bool, duration_ms: int = 0) -> None:
        now = self._counters
        if success:
            self._counters = replace(now, completed=now.completed + 1, last_duration_ms=duration_ms)
        else:
            self._counters = replace(now, failed=now.failed + 1)


def _said(error: Exception) -> str:
    """Its words; what it is where it has none, as what a signal handler raises."""
    return str(error) or repr(error)
