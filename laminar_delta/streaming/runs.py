"""A run of a query: how far it has come, and what is checked before a batch of it is shown. See `resuming` for its start."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.errors import ConflictError
from laminar_delta.model.status import SinkCommitStatus
from laminar_delta.streaming.agreement import shown_already
from laminar_delta.streaming.batch import BatchResult, Delivery, Written
from laminar_delta.streaming.lines import Head, Line
from laminar_delta.streaming.plans import OFFSETS, Plan
from laminar_delta.streaming.sinks import CLOSED_LINE, MAY_HAVE, FrameSink, LineSink

if TYPE_CHECKING:
    from laminar_delta.catalog.coordinator import Coordinator
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.model.manifest import CheckpointManifest
    from laminar_delta.streaming.agreement import PassedOver
    from laminar_delta.streaming.query import PlannedLogs, RunningQuery


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
    left: frozenset[Line] = frozenset()
    """The lines that were written before this one, until the sinks are told that nothing more of them comes."""
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
        """Closes the lines that were left, for good: to be done when a checkpoint of the new one is saved, and no sooner.

        Until then the query that was before can go on: a start with a wrong directory may come to nothing. A run that dies
        after the save and before this leaves all its sinks Pending, and none of them has anything: the next one passes over
        that checkpoint, and comes here before its own sinks show anything.

        Raises:
            FencedError: Another run took over meanwhile: one of the lines may be its own.
            ConflictError: A driver that was only paused had a sink show a batch of such a line after it was asked, and before
                it was closed.
        """
        if not self.left:
            return
        self.writer.check_held()
        by_line = [sink for sink in sinks if isinstance(sink, LineSink)]
        lines = sorted(self.left, key=lambda line: line.application_id)
        unclosed = {line for line in lines for sink in by_line if not sink.close_line(line)}
        # Only now that nothing more of any of them can be shown is what a sink says of a batch final.
        found = [(one, self._shown_since(one, by_line)) for one in self.behind if one.line in self.left]
        for one, shown in found:
            if shown:
                raise shown_already(self.writer.pipeline, self.head, self.line, one, shown)
        self.left = frozenset(unclosed)  # with the next batch again: there may be a table by then

    def _shown_since(self, one: PassedOver, sinks: Iterable[LineSink]) -> list[str]:
        """The sinks that turn out to have what was passed over, which is recorded."""
        owed = {name for name, status in one.checkpoint.statuses.items() if not status.is_committed}
        shown = [sink.name for sink in sinks if sink.name in owed and sink.landed(one.checkpoint.epoch_of(sink.name))]
        if shown:
            number = one.checkpoint.row["checkpoint_id"]
            self.writer.set_sink_statuses(number, dict.fromkeys(shown, SinkCommitStatus.committed()))
        return shown

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
        if not isinstance(cause, ConflictError) or CLOSED_LINE not in cause.details:
            return
        if self.head is None:  # nothing to rewind to
            next_step = (
                "Take the sinks back to what they were, delete the directory of this query, and begin it anew with "
                '`after_reset="fresh"`: that begins a line of its own.'
            )
        else:
            number = self.head.checkpoint_id
            next_step = (
                f"Rewind pipeline {self.writer.pipeline!r} to checkpoint {number}, from which this query goes on "
                f"(`writer.rewind({number}, reason=…)`): that begins a line of its own. Then start the query again."
            )
        if cause.details.get(MAY_HAVE):
            next_step = f"Look whether the sink has the records of that batch; if so, take them out. {next_step}"
        raise ConflictError(
            cause.message,
            expected=cause.expected,
            found=cause.found,
            next_step=next_step,
            details={**cause.details, "checkpoint_id": None if self.head is None else self.head.checkpoint_id},
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


@contextmanager
def let_go_on_error(writer: Writer) -> Iterator[None]:
    """Within: what raises ends the run, and nobody else would close its writer."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # what ended the run is what is to be told
            writer.close()
        raise
