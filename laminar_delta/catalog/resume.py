"""Starting up: sinks reconciled, what must not be shown dropped, and only then the checkpoint to go on from chosen.

The order is the point. A sink that cannot answer stops the start before anything is decided, because a fallback would be a
guess. An epoch that is not going to be used is dropped before it is passed over, and its sink asked once more: a predecessor
that was only paused may have shown it in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laminar_delta.catalog.deliveries import Deliveries
from laminar_delta.catalog.healing import find_row, find_rows
from laminar_delta.catalog.reconcile import Action, OpenCheckpoint, ReconcileReport, Reconciliation, SinkAnswer
from laminar_delta.catalog.sinks import SinkEpoch, Sinks, Step, raised
from laminar_delta.errors import SessionStateError, StorageError
from laminar_delta.model.status import SinkCommitStatus

if TYPE_CHECKING:
    from laminar_delta.catalog.choosing import FailedSinks
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.model.report import RecoveryReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeReport:
    """Where to go on, and how that came about."""

    recovery: RecoveryReport
    """Go on from its manifest; without one, from the beginning."""
    reconciled: ReconcileReport
    repeated: Mapping[str, tuple[int, ...]]
    """By sink, epochs that it shows although the chosen checkpoint lies before them: their records come to it again. Empty
    unless a sink lost what it had pre-committed, or a checkpoint was damaged."""
    perhaps_repeated: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The same for epochs of which a sink cannot tell whether it shows them (`landed` is None)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """A start under way."""

    writer: Writer
    sinks: Sinks
    failed_sinks: FailedSinks
    pipeline_hash: int | None
    start_over: bool

    def run(self, last: SinkEpoch) -> ResumeReport:
        """Starts.

        Args:
            last: The last epoch there was: whatever sinks hold above it is dropped.
        """
        reconciliation = Reconciliation(self.writer, self.sinks, self.failed_sinks)
        reconciled = reconciliation.run()
        _check_answers([answer for answer in reconciled.answers if not reconciliation.is_settled(answer)])
        self._roll_back(reconciled.undelivered, last)
        self._ask_again(reconciled.undelivered)
        with self.sinks.step(Step.RECOVER):
            recovery = self.writer.recover(
                failed_sinks=self.failed_sinks,
                pipeline_hash=self.pipeline_hash,
                start_over=self.start_over,
            )
        shown, untold = self._repeated(recovery, reconciled)
        return ResumeReport(recovery=recovery, reconciled=reconciled, repeated=shown, perhaps_repeated=untold)

    def _roll_back(self, undelivered: tuple[SinkAnswer, ...], last: SinkEpoch) -> None:
        prepared = self.sinks.prepared()
        _check_raised("could not say what it holds", raised(prepared))
        to_drop = {name: {last} for name in self.sinks.by_name}
        for answer in undelivered:
            if answer.sink in to_drop:
                to_drop[answer.sink].add(answer.epoch)
        for name, epochs in prepared.items():
            # Those of a later generation belong to a successor: its takeover is noticed in a moment.
            own = () if isinstance(epochs, Exception) else (e for e in epochs if e.generation <= last.generation)
            to_drop[name].update(own)
        for epoch in sorted(set().union(*to_drop.values()), reverse=True):
            names = [name for name, epochs in to_drop.items() if epoch in epochs]
            _check_raised(f"could not roll back epoch {epoch.number}", self.sinks.abort(epoch, names))

    def _ask_again(self, undelivered: tuple[SinkAnswer, ...]) -> None:
        for answer in undelivered:
            if answer.sink not in self.sinks.by_name:
                continue
            landed = self.sinks.landed(answer.epoch, answer.sink)
            _check_raised(f"could not say whether epoch {answer.epoch.number} landed", raised({answer.sink: landed}))
            if landed is True:
                with self.sinks.step(Step.RECORD):
                    self.writer.set_sink_statuses(answer.checkpoint_id, {answer.sink: SinkCommitStatus.committed()})

    def _repeated(
        self, recovery: RecoveryReport, reconciled: ReconcileReport
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        """By sink, epochs passed over that it shows, and those that it may show."""
        skipped = {skipped.checkpoint_id for skipped in recovery.skipped}
        shown, untold = dict[str, tuple[int, ...]](), dict[str, tuple[int, ...]]()
        if not skipped:
            return shown, untold
        reading = self.writer.reading
        deliveries = Deliveries(reading, self.writer.pipeline)
        told = {(answer.checkpoint_id, answer.sink): answer.landed for answer in reconciled.answers}
        for row in find_rows(reading, self.writer.pipeline).rows:
            if row["checkpoint_id"] in skipped:
                checkpoint = OpenCheckpoint(row=row, statuses=deliveries.statuses(row))
                for name, status in checkpoint.statuses.items():
                    if status.is_committed:
                        shown[name] = (*shown.get(name, ()), row["epoch"])
                    elif name in self.sinks.by_name:
                        asked = row["checkpoint_id"], name
                        # One that an earlier start passed over is not asked about any more when sinks are reconciled.
                        landed = told[asked] if asked in told else self.sinks.landed(checkpoint.epoch_of(name), name)
                        if landed is None:
                            untold[name] = (*untold.get(name, ()), row["epoch"])
        return shown, untold


def is_delivered(reading: Reading, pipeline: str, checkpoint_id: int) -> bool:
    """Whether a checkpoint exists and all its sinks are known to have it."""
    row = find_row(reading, pipeline, checkpoint_id)
    return row is not None and Deliveries(reading, pipeline).is_delivered(row)


def _check_answers(answers: list[SinkAnswer]) -> None:
    """Refuses to go on where it would be a guess what a sink has."""
    unregistered = [answer for answer in answers if answer.action is Action.UNREGISTERED]
    if unregistered:
        raise SessionStateError(
            f"{unregistered[0]}: falling back could deliver again what it has",
            expected=sorted({answer.sink for answer in unregistered}),
            next_step="Give the coordinator that sink, or record with `writer.sink_committed` that nothing is owed to it.",
        )
    failed = [answer for answer in answers if answer.error is not None]
    if failed:
        raise StorageError(
            "; ".join(map(str, failed)), next_step="Resume again when the sink works: nothing was given up."
        ) from failed[0].error


def _check_raised(what: str, failed: Mapping[str, Exception]) -> None:
    for name, error in failed.items():
        raise StorageError(
            f"sink {name!r} {what}: {error}", next_step="Resume again when the sink works: nothing was given up."
        ) from error
