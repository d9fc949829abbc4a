"""A run of a query: from its first batch on, which finds out what an earlier run left and where the pipeline stands."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from laminar_delta.catalog.healing import committed_row, find_rows
from laminar_delta.catalog.reconcile import open_checkpoints
from laminar_delta.errors import ConflictError
from laminar_delta.logs import Event, log_event
from laminar_delta.model.status import SinkCommitStatus
from laminar_delta.streaming.agreement import (
    check_begun_behind,
    check_not_shown,
    check_offsets,
    passed_over,
    shown_already,
)
from laminar_delta.streaming.batch import BatchResult, Delivery, Written
from laminar_delta.streaming.lines import Head, Line, line_left, line_of, plan_of
from laminar_delta.streaming.plans import OFFSETS, Plan
from laminar_delta.streaming.sinks import CLOSED_LINE, FrameSink, LineSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_delta.catalog.choosing import FailedSinks
    from laminar_delta.catalog.coordinator import Coordinator
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.reconcile import OpenCheckpoint
    from laminar_delta.catalog.resume import ResumeReport
    from laminar_delta.catalog.sinks import SinkEpoch
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.model.manifest import CheckpointManifest
    from laminar_delta.streaming.agreement import PassedOver
    from laminar_delta.streaming.query import PlannedLogs, RunningQuery

_LOG = logging.getLogger(__name__)

AfterReset = Literal["fresh", "continue"]
"""What becomes of a function's state when its query begins anew: it starts empty, or goes on."""
FRESH = "fresh"


@dataclass(slots=True, kw_only=True)
class Run:
    """One start of a query, as far as it has come."""

    query: RunningQuery
    writer: Writer
    coordinator: Coordinator
    line: Line
    earlier: Plan | None
    """If an earlier run saved something of the batch that comes next: Spark's plan of it, as it was then."""
    head: Head | None
    previous: CheckpointManifest | None
    batch_id: int
    """The last batch it was given."""
    restored: Mapping[str, object]
    """What the query's directory was restored from; nothing of one that was not."""
    is_fresh: bool = False
    """Whether the function begins without the state of the head: the query reads everything again."""
    left: Line | None = None
    """The line that was written before this one, until the sinks are told that nothing more of it comes."""
    behind: Sequence[PassedOver] = ()
    """What was passed over and must not be in a sink under another line; nothing where all is read again on purpose."""

    def goes_on(self, query: RunningQuery, batch_id: int) -> bool:
        """Whether a batch is the next one of this run."""
        same = (self.query.query_id, self.query.run_id) == (query.query_id, query.run_id)
        return same and batch_id == self.batch_id + 1

    def found(self, sinks: Iterable[FrameSink]) -> dict[str, Written]:
        """What the sinks have of the batch that is the head, by what is recorded of them."""
        assert self.head is not None
        assert self.previous is not None
        found: dict[str, Written] = {}
        for sink in sinks:
            status = self.previous.sink_commit_statuses.get(sink.name)
            if status is None or (self.head.given is not None and sink.name not in self.head.given):
                found[sink.name] = Written.NOTHING
            else:
                found[sink.name] = Written.FOUND if status.is_committed else Written.FAILED
        return found

    def close_left(self, sinks: Iterable[FrameSink]) -> None:
        """Closes the line that was left, for good: to be done when a checkpoint of the new one is saved, and no sooner.

        Until then the query that was before can go on: a start with a wrong directory may come to nothing. A run that dies
        after the save and before this leaves all its sinks Pending, and none of them has anything: the next one passes over
        that checkpoint, and comes here before its own sinks show anything.

        Raises:
            ConflictError: A driver that was only paused had a sink show a batch of that line after it was asked, and before
                it was closed.
        """
        if self.left is None:
            return
        by_line = [sink for sink in sinks if isinstance(sink, LineSink)]
        for sink in by_line:
            sink.close_line(self.left)
        for one in self.behind:
            if one.line == self.left:
                self._ask_once_more(one, by_line)
        self.left = None

    def _ask_once_more(self, one: PassedOver, sinks: Iterable[LineSink]) -> None:
        """Now that nothing more of it can be shown, what a sink says of a batch is final."""
        owed = {name for name, status in one.checkpoint.statuses.items() if not status.is_committed}
        shown = [sink.name for sink in sinks if sink.name in owed and sink.landed(one.checkpoint.epoch_of(sink.name))]
        if shown:
            number = one.checkpoint.row["checkpoint_id"]
            self.writer.set_sink_statuses(number, dict.fromkeys(shown, SinkCommitStatus.committed()))
            assert self.head is not None, "something was passed over"
            raise shown_already(self.writer.pipeline, self.head, self.line, one, shown)

    def result(
        self, batch_id: int, checkpoint_id: int, delivery: Delivery, sinks: Mapping[str, Written], clock: float
    ) -> BatchResult:
        """What became of a batch that came at `clock`, by the monotonic clock."""
        return BatchResult(
            batch_id=batch_id,
            epoch=batch_id + 1,
            checkpoint_id=checkpoint_id,
            delivery=delivery,
            query_id=self.query.query_id,
            lineage=self.line.lineage,
            sinks=sinks,
            duration_ms=int((time.monotonic() - clock) * 1000),
        )

    def check_open(self, cause: Exception | None) -> None:
        """Says how to go on if a batch was not delivered because its line is closed.

        Raises:
            ConflictError: That is the cause.
        """
        if self.head is not None and isinstance(cause, ConflictError) and CLOSED_LINE in cause.details:
            number = self.head.checkpoint_id
            raise ConflictError(
                cause.message,
                expected=cause.expected,
                found=cause.found,
                next_step=f"Rewind pipeline {self.writer.pipeline!r} to checkpoint {number}, from which this query goes on "
                f"(`writer.rewind({number}, reason=…)`): that begins a line of its own. Then start the query again.",
                details={**cause.details, "checkpoint_id": number},
            ) from cause

    def check_same(self, batch_id: int, planned: PlannedLogs) -> None:
        """Refuses a batch that has the number of an earlier one and other records: by the number it would pass for delivered.

        Raises:
            ConflictError: Spark planned it anew since.
        """
        # A checkpoint that was brought in may lack the offsets.
        if self.earlier is None or OFFSETS not in self.earlier.entries:
            return
        changed = self.earlier.changed(Plan.of(planned.told))
        for name, (before, now) in changed.items():
            raise ConflictError(
                f"batch {batch_id} of query {self.query.query_id} was planned anew: pipeline "
                f"{self.writer.pipeline!r} has it with other records ({name} differs)",
                expected=before,
                found=now,
                next_step="Bring Spark's directory back to what it was; or rewind the pipeline to a checkpoint before that "
                "batch, its sinks too, and write the directory with `restore_spark_checkpoint`.",
                details={"differs": list(changed)},
            )


@dataclass(frozen=True, slots=True)
class Starting:
    """A run about to start: the pipeline is taken over, nothing is looked into yet."""

    writer: Writer
    coordinator: Coordinator
    sinks: Sequence[FrameSink]
    query: RunningQuery
    spark: SparkSession

    def run(
        self, batch_id: int, failed_sinks: FailedSinks, *, start_over: bool, after_reset: AfterReset | None = None
    ) -> Run:
        """Settles what was left, and says what the batch belongs to.

        Raises:
            ConflictError: Query and pipeline do not stand at the same batch, or at other offsets of it; or the query begins
                anew, and nobody said what becomes of the state there is, or it was begun before it was known what the sinks
                have.
        """
        reading, pipeline = self.writer.reading, self.writer.pipeline
        earlier = self._earlier_tries()
        self._tell_sinks(None, earlier)
        resumed = self.coordinator.resume(failed_sinks=failed_sinks, start_over=start_over)
        self._tell_repeats(resumed)
        recovery = resumed.recovery
        restored = self.query.restored_from()
        is_fresh, head, left, line = False, None, None, Line(pipeline=pipeline, query_id=self.query.query_id)
        behind: list[PassedOver] = []
        if recovery.chosen_id is not None:
            row = committed_row(reading, pipeline, recovery.chosen_id)
            head, left = Head.of(reading, row), line_left(reading, row)
            line = head.following(pipeline, self.query.query_id, batch_id, restored)
            is_fresh = self._is_fresh(head, batch_id, after_reset)
            if not head.begins_anew(self.query.query_id, batch_id):
                assert recovery.manifest is not None
                check_offsets(pipeline, recovery.manifest, head, self.query, batch_id)
            elif after_reset != FRESH:
                check_begun_behind(self.writer, head, self.query.query_id)
            if after_reset != FRESH or not head.begins_anew(self.query.query_id, batch_id):
                behind = passed_over(reading, pipeline, head)
                check_not_shown(pipeline, head, line, self._by_line, behind)
        elif batch_id > 0:
            log_event(
                _LOG,
                logging.WARNING,
                Event.BATCHES_BEGIN_LATE,
                "pipeline %s begins at batch %d of query %s",
                pipeline,
                batch_id,
                self.query.query_id,
                pipeline=pipeline,
                batch_id=batch_id,
            )
        self._tell_sinks(line, {**earlier, **self._epochs((one.checkpoint, one.made_for) for one in behind)})
        return Run(
            query=self.query,
            writer=self.writer,
            coordinator=self.coordinator,
            line=line,
            earlier=_earlier(reading, line, batch_id, head),
            head=head,
            previous=None if is_fresh else recovery.manifest,
            batch_id=batch_id,
            restored=restored,
            is_fresh=is_fresh,
            left=None if left == line else left,
            behind=behind,
        )

    def _is_fresh(self, head: Head, batch_id: int, after_reset: AfterReset | None) -> bool:
        """Whether the function begins without the state there is. Guessed wrong, totals double or begin at nothing."""
        if not head.operators or not head.begins_anew(self.query.query_id, batch_id):
            return False
        if after_reset is None:
            raise ConflictError(
                f"query {self.query.query_id} begins anew at batch 0, and pipeline {self.writer.pipeline!r} has state at "
                f"checkpoint {head.checkpoint_id}",
                expected="after_reset",
                found=None,
                next_step='Say what becomes of it: `after_reset="fresh"` lets it start empty, for a query that reads '
                'everything again; `after_reset="continue"` goes on with it, for one begun with `starting_options`.',
                details={"operators": head.operators, "checkpoint_id": head.checkpoint_id},
            )
        return after_reset == FRESH

    def _earlier_tries(self) -> dict[SinkEpoch, tuple[Line, int]]:
        """What batches the epochs are that sinks may be asked about."""
        reading = self.writer.reading
        return self._epochs(
            (left, line_of(reading, left.row)) for left in open_checkpoints(reading, self.writer.pipeline)
        )

    def _epochs(
        self, tries: Iterable[tuple[OpenCheckpoint, tuple[Line, int] | None]]
    ) -> dict[SinkEpoch, tuple[Line, int]]:
        found: dict[SinkEpoch, tuple[Line, int]] = {}
        for left, made_for in tries:
            if made_for is not None:
                found |= {left.epoch_of(sink.name): made_for for sink in self.sinks}
        return found

    def _tell_sinks(self, line: Line | None, earlier: Mapping[SinkEpoch, tuple[Line, int]]) -> None:
        for sink in self.sinks:
            if isinstance(sink, LineSink):
                sink.follow(self.spark, self.writer.pipeline, line, earlier)

    @property
    def _by_line(self) -> frozenset[str]:
        """The sinks that recognise a batch of their line, and take one of another for something else."""
        return frozenset(sink.name for sink in self.sinks if isinstance(sink, LineSink))

    def _tell_repeats(self, resumed: ResumeReport) -> None:
        """Says which sinks will have a batch twice: those that can neither recognise it nor take back what they show."""
        for sink, epochs in resumed.repeated.items():
            if sink in self._by_line:
                continue
            log_event(
                _LOG,
                logging.WARNING,
                Event.BATCHES_REPEATED,
                "pipeline %s: sink %s has epochs %s of checkpoints that are passed over, and gets their records again",
                self.writer.pipeline,
                sink,
                list(epochs),
                pipeline=self.writer.pipeline,
                sink=sink,
                epochs=list(epochs),
            )


@contextmanager
def let_go_on_error(writer: Writer) -> Iterator[None]:
    """Within: what raises ends the run, and nobody else would close its writer."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # what ended the run is what is to be told
            writer.close()
        raise


def _earlier(reading: Reading, line: Line, batch_id: int, head: Head | None) -> Plan | None:
    """Spark's plan of the batch if a checkpoint of it is the head, or was saved and then passed over."""
    if head is not None and head.is_batch(line.query_id, batch_id):
        return Plan.of(head.logs)
    after = 0 if head is None else head.checkpoint_id
    for row in find_rows(reading, line.pipeline).rows:
        if row["checkpoint_id"] > after and line_of(reading, row) == (line, batch_id):
            return plan_of(reading, row)
    return None
