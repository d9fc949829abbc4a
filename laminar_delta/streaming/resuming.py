"""The start of a run: what an earlier one left is settled, and then it is known what the first batch belongs to."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from laminar_delta.catalog.healing import committed_row, find_rows
from laminar_delta.catalog.reconcile import open_checkpoints
from laminar_delta.errors import ConflictError
from laminar_delta.logs import Event, log_event
from laminar_delta.streaming.agreement import (
    PassedOver,
    check_begun_behind,
    check_not_shown,
    check_offsets,
    is_given_up,
    lines_left,
    passed_over,
    was_left,
)
from laminar_delta.streaming.lines import Head, Line, line_of, plan_of
from laminar_delta.streaming.plans import Plan
from laminar_delta.streaming.runs import Run
from laminar_delta.streaming.sinks import FrameSink, LineSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_delta.catalog.choosing import FailedSinks
    from laminar_delta.catalog.coordinator import Coordinator
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.reconcile import OpenCheckpoint
    from laminar_delta.catalog.resume import ResumeReport
    from laminar_delta.catalog.sinks import SinkEpoch
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.streaming.query import RunningQuery

_LOG = logging.getLogger(__name__)

AfterReset = Literal["fresh", "continue"]
"""What becomes of a function's state when its query begins anew: it starts empty, or goes on."""
FRESH = "fresh"


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
        is_fresh, row, head, line = False, None, None, Line(pipeline=pipeline, query_id=self.query.query_id)
        begins_anew = batch_id == 0
        if recovery.chosen_id is not None:
            row = committed_row(reading, pipeline, recovery.chosen_id)
            head = Head.of(reading, row)
            begins_anew = head.begins_anew(self.query.query_id, batch_id)
            line = head.following(pipeline, self.query.query_id, batch_id, restored)
            is_fresh = self._is_fresh(head, batch_id, after_reset)
            if not begins_anew:
                assert recovery.manifest is not None
                check_offsets(pipeline, recovery.manifest, head, self.query, batch_id)
            elif after_reset != FRESH:
                check_begun_behind(self.writer, head, self.query.query_id)
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
        over = passed_over(reading, pipeline, head)
        behind = [] if begins_anew and after_reset == FRESH else over
        if head is None:
            behind = [one for one in behind if not is_given_up(reading, pipeline, one)]
        check_not_shown(pipeline, head, line, self._by_line, behind)
        self._tell_sinks(line, {**earlier, **self._epochs((one.checkpoint, one.made_for) for one in behind)}, over=over)
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
            left=lines_left(reading, row, over) - {line},
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

    def _tell_sinks(
        self, line: Line | None, earlier: Mapping[SinkEpoch, tuple[Line, int]], *, over: Sequence[PassedOver] = ()
    ) -> None:
        may_be_closed = line is not None and was_left(self.writer.reading, line)
        for sink in self.sinks:
            if isinstance(sink, LineSink):
                # Also of what is given up on purpose: it may have that all the same.
                tried = [one.made_for for one in over if one.made_for is not None and one.may_be_in(sink.name)]
                sink.follow(self.spark, self.writer.pipeline, line, earlier, tried=tried, may_be_closed=may_be_closed)

    @property
    def _by_line(self) -> frozenset[str]:
        """The sinks that recognise a batch of their line, and take one of another for something else."""
        return frozenset(sink.name for sink in self.sinks if isinstance(sink, LineSink))

    def _tell_repeats(self, resumed: ResumeReport) -> None:
        """Says which sinks will have a batch twice, or may: they can neither recognise it nor take back what they show."""
        for has, repeated in (("has", resumed.repeated), ("cannot tell whether it has", resumed.perhaps_repeated)):
            for sink, epochs in repeated.items():
                if sink in self._by_line:
                    continue
                log_event(
                    _LOG,
                    logging.WARNING,
                    Event.BATCHES_REPEATED,
                    "pipeline %s: sink %s %s epochs %s of checkpoints that are passed over, and gets their records again",
                    self.writer.pipeline,
                    sink,
                    has,
                    list(epochs),
                    pipeline=self.writer.pipeline,
                    sink=sink,
                    epochs=list(epochs),
                    is_certain=repeated is resumed.repeated,
                )


def _earlier(reading: Reading, line: Line, batch_id: int, head: Head | None) -> Plan | None:
    """Spark's plan of the batch if a checkpoint of it is the head, or was saved and then passed over."""
    if head is not None and head.is_batch(line.query_id, batch_id):
        return Plan.of(head.logs)
    after = 0 if head is None else head.checkpoint_id
    for row in find_rows(reading, line.pipeline).rows:
        if row["checkpoint_id"] > after and line_of(reading, row) == (line, batch_id):
            return plan_of(reading, row)
    return None
