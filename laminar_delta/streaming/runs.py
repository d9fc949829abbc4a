"""A run of a query: from its first batch on, which finds out what an earlier run left and where the pipeline stands."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.healing import committed_row, find_rows
from laminar_delta.catalog.reconcile import open_checkpoints
from laminar_delta.logs import Event, log_event
from laminar_delta.streaming.lines import Head, Line, line_left, line_of
from laminar_delta.streaming.sinks import FrameSink, LineSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_delta.catalog.coordinator import Coordinator
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.recovery import FailedSinks
    from laminar_delta.catalog.sinks import SinkEpoch
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.model.manifest import CheckpointManifest
    from laminar_delta.streaming.query import RunningQuery

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Run:
    """One start of a query, as far as it has come."""

    query: RunningQuery
    writer: Writer
    coordinator: Coordinator
    line: Line
    tried: bool
    """Whether an earlier run saved something of the batch that comes next."""
    head: Head | None
    previous: CheckpointManifest | None
    batch_id: int
    """The last batch it was given."""

    def goes_on(self, query: RunningQuery, batch_id: int) -> bool:
        """Whether a batch is the next one of this run."""
        same = (self.query.query_id, self.query.run_id) == (query.query_id, query.run_id)
        return same and batch_id == self.batch_id + 1


@dataclass(frozen=True, slots=True)
class Starting:
    """A run about to start: the pipeline is taken over, nothing is looked into yet."""

    writer: Writer
    coordinator: Coordinator
    sinks: Sequence[FrameSink]
    query: RunningQuery
    spark: SparkSession

    def run(self, batch_id: int, failed_sinks: FailedSinks, *, start_over: bool) -> Run:
        """Settles what was left, and says what the batch belongs to.

        Raises:
            ConflictError: Query and pipeline do not stand at the same batch.
        """
        reading, pipeline = self.writer.reading, self.writer.pipeline
        earlier = self._earlier_tries()
        self._tell_sinks(None, earlier)
        recovery = self.coordinator.resume(failed_sinks=failed_sinks, start_over=start_over).recovery
        head, left, line = None, None, Line(pipeline=pipeline, query_id=self.query.query_id)
        if recovery.chosen_id is not None:
            row = committed_row(reading, pipeline, recovery.chosen_id)
            head, left = Head.of(reading, row), line_left(reading, row)
            line = head.following(pipeline, self.query.query_id, batch_id)
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
        self._tell_sinks(line, earlier)
        if left is not None and left != line:
            for sink in self.sinks:
                if isinstance(sink, LineSink):
                    sink.close_line(left)
        return Run(
            query=self.query,
            writer=self.writer,
            coordinator=self.coordinator,
            line=line,
            tried=_was_tried(reading, line, batch_id, after=0 if head is None else head.checkpoint_id),
            head=head,
            previous=recovery.manifest,
            batch_id=batch_id,
        )

    def _earlier_tries(self) -> dict[SinkEpoch, tuple[Line, int]]:
        """What batches the epochs are that sinks may be asked about."""
        reading = self.writer.reading
        found: dict[SinkEpoch, tuple[Line, int]] = {}
        for left in open_checkpoints(reading, self.writer.pipeline):
            made_for = line_of(reading, left.row)
            if made_for is not None:
                found |= {left.epoch_of(sink.name): made_for for sink in self.sinks}
        return found

    def _tell_sinks(self, line: Line | None, earlier: Mapping[SinkEpoch, tuple[Line, int]]) -> None:
        for sink in self.sinks:
            if isinstance(sink, LineSink):
                sink.follow(self.spark, line, earlier)


def _was_tried(reading: Reading, line: Line, batch_id: int, *, after: int) -> bool:
    """Whether a checkpoint of the batch was saved and then passed over."""
    rows = [row for row in find_rows(reading, line.pipeline).rows if row["checkpoint_id"] > after]
    return any(line_of(reading, row) == (line, batch_id) for row in rows)
