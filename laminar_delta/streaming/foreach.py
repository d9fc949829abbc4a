"""`foreachBatch` with a catalog: one checkpoint per micro-batch, and sinks that get each batch once.

Spark writes down what a batch will read, runs it, and notes that it is done. A process that dies in between runs the batch
again. Here the batch is a checkpoint (`Coordinator`): saved with its offsets and all sinks Pending, then shown by the sinks,
then recorded. The first batch of a run finds out what an earlier one left: nothing, a batch that all sinks have, or something
between the two. A checkpoint that not all sinks have is passed over and the batch is run anew; a sink that has it already
recognises it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Union, get_args

from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.catalog.coordinator import Coordinator
from laminar_delta.catalog.sinks import SinkEpoch, Step, When
from laminar_delta.catalog.state.policy import DEFAULT_POLICY, StatePolicy
from laminar_delta.errors import InvalidInputError, SessionStateError, StorageError
from laminar_delta.interop.sparkdir.logs import connector_checkpoints
from laminar_delta.interop.sparkdir.source import SOURCES
from laminar_delta.logs import Event, log_event
from laminar_delta.model.ids import validate_pipeline_name
from laminar_delta.streaming.agreement import reason_of
from laminar_delta.streaming.batch import Batch, BatchResult, BatchStep, Delivery, Written
from laminar_delta.streaming.checks import schema_hash
from laminar_delta.streaming.delta_sink import check_tables
from laminar_delta.streaming.elsewhere import CatalogElsewhere
from laminar_delta.streaming.lines import BATCH, DOCUMENT, Head, document, in_short
from laminar_delta.streaming.query import RunningQuery
from laminar_delta.streaming.resuming import AfterReset, Starting
from laminar_delta.streaming.runs import Run, let_go_on_error
from laminar_delta.streaming.sinks import FrameSink, addressed, check_sinks, in_order, outcome_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from laminar_delta.catalog.builder import CheckpointBuilder
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.model.manifest import CheckpointManifest
    from laminar_delta.streaming.query import PlannedLogs

_LOG = logging.getLogger(__name__)

Output = Union["DataFrame", Mapping[str, "DataFrame"], None]
"""What a function gives: the frame for the one sink, or frames by the names of sinks, or nothing."""
BatchFunction = Callable[["DataFrame", Batch], Output]
Observe = Callable[[BatchStep | Step, When], None]
"""Told of each step as it is taken, on the thread that takes it. For tests and progress; what it raises is not caught."""


def foreach_batch(
    catalog: Catalog,
    pipeline: str,
    fn: BatchFunction,
    *,
    sinks: Sequence[FrameSink] = (),
    checkpoint_location: str | None = None,
    owner: str | None = None,
    failed_sinks: FailedSinks = FailedSinks.SKIP,
    start_over: bool = False,
    after_reset: AfterReset | None = None,
    state_policy: StatePolicy = DEFAULT_POLICY,
    on_result: Callable[[BatchResult], None] | None = None,
    observe: Observe | None = None,
) -> ForeachBatch:
    """A function for `writeStream.foreachBatch` that keeps a checkpoint per batch and delivers each batch once.

    Args:
        catalog: Where checkpoints go.
        pipeline: Whose. A query has one of its own.
        fn: Gets the records and the `Batch`, and gives what the sinks are to have. Run again on the same batch it has to give
            the same; what it writes elsewhere by itself is not covered.
        sinks: All exactly-once sinks: `DeltaSink`, or anything that is a `FrameSink`. Delta tables show a batch first.
        checkpoint_location: The query's checkpoint directory. By default asked of Spark, which needs a classic session.
        owner: Who, for messages and the audit.
        failed_sinks: Whether a checkpoint may be gone on from that a sink failed to deliver.
        start_over: Go on at the query's batch, without state, when there are checkpoints and none can be used.
        after_reset: What becomes of the state when the query begins anew, its checkpoint directory deleted or a new one:
            `fresh` lets it start empty, for a query that reads everything again; `continue` goes on with it, for one begun
            with `starting_options`. Without either such a query is refused, where there is state.
        state_policy: How operator state is cut, and how long its chains may get.
        on_result: Told what became of each batch; the log says it too.
        observe: Told of each step.

    Raises:
        InvalidInputError: A sink is none, two have one name or are for one table, or `after_reset` is neither.
    """
    check_sinks(sinks)
    check_tables(sinks)
    if after_reset is not None and after_reset not in get_args(AfterReset):
        raise InvalidInputError(
            f"after a reset there is no {after_reset!r}", expected=get_args(AfterReset), found=after_reset
        )
    return ForeachBatch(
        catalog=catalog,
        pipeline=validate_pipeline_name(pipeline),
        fn=fn,
        sinks=in_order(sinks),
        checkpoint_location=checkpoint_location,
        owner=owner,
        failed_sinks=failed_sinks,
        start_over=start_over,
        after_reset=after_reset,
        state_policy=state_policy,
        on_result=on_result,
        observe=observe,
    )


_OF_THIS_PROCESS = frozenset({"catalog", "last", "_run", "_busy", "_turn"})
"""What a process that the function is handed to finds for itself."""


@dataclass(slots=True, kw_only=True)
class ForeachBatch:
    """What Spark calls; made by `foreach_batch`. Belongs to one query at a time, which may be started again and again."""

    catalog: Catalog | CatalogElsewhere
    pipeline: str
    fn: BatchFunction
    sinks: tuple[FrameSink, ...]
    checkpoint_location: str | None
    owner: str | None
    failed_sinks: FailedSinks
    start_over: bool
    after_reset: AfterReset | None
    state_policy: StatePolicy
    on_result: Callable[[BatchResult], None] | None
    observe: Observe | None
    last: BatchResult | None = None
    """What became of the last batch."""
    _run: Run | None = field(default=None, repr=False)
    _busy: str | None = field(default=None, repr=False)
    """The query a batch of which is at work; `_run` is nothing meanwhile."""
    _turn: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Delivers a batch. What it raises ends the query; started again, the query gives the batch again.

        Raises:
            ConflictError: Query and pipeline do not stand at the same batch, or Spark has planned it anew; or the query begins
                anew, and nobody said what becomes of the state.
            FencedError: Another run took the pipeline over.
            SessionStateError: It is at work for another query.
            StorageError: The checkpoint was not saved, or a sink did not take it.
        """
        clock = time.monotonic()
        with self._step(BatchStep.DELIVER):
            query = RunningQuery.of(frame, self.checkpoint_location)
            with self._alone(query):
                if isinstance(self.catalog, CatalogElsewhere):
                    self.catalog = self.catalog.open(frame.sparkSession)
                run = self._run
                if run is None or not run.goes_on(query, batch_id):
                    run = self._start(query, frame, batch_id)
                self._run = None  # until it has succeeded: what failed is to be looked into again
                with let_go_on_error(run.writer):
                    result = self._deliver(run, frame, batch_id, clock)
                self._run = run
                self.last = result
        log_event(
            _LOG, logging.INFO, Event.BATCH_DONE, "pipeline %s: %s", self.pipeline, result, pipeline=self.pipeline
        )
        if self.on_result is not None:
            self.on_result(result)

    def __reduce__(self) -> tuple[Callable[[], ForeachBatch], tuple[()]]:
        """For Spark Connect, which runs the function in a process of the server's; `last` is known there only."""
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _OF_THIS_PROCESS}
        return partial(ForeachBatch, catalog=CatalogElsewhere.of(self.catalog), **kept), ()

    def close(self) -> None:
        """Lets go of the pipeline, so that others need not take it over. A further batch takes it again."""
        run, self._run = self._run, None
        if run is not None:
            run.writer.close()

    def __enter__(self) -> ForeachBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, query: RunningQuery, frame: DataFrame, batch_id: int) -> Run:
        with ExitStack() as ending, self._step(BatchStep.RESUME):
            reason = reason_of(query.query_id, query.run_id)
            writer = self._here.writer(self.pipeline, owner=self.owner, reason=reason, state_policy=self.state_policy)
            ending.enter_context(let_go_on_error(writer))
            coordinator = Coordinator(writer, self.sinks, observe=self.observe, reuse_epochs=True)
            starting = Starting(writer, coordinator, self.sinks, query, frame.sparkSession)
            return starting.run(batch_id, self.failed_sinks, start_over=self.start_over, after_reset=self.after_reset)

    def _deliver(self, run: Run, frame: DataFrame, batch_id: int, clock: float) -> BatchResult:
        # The first batch that the catalog has of a query which ran without it brings what its sources noted until then.
        planned = run.query.planned(batch_id, with_all_before=run.head is None)
        run.check_same(batch_id, planned)
        if run.head is not None and run.head.is_batch(run.query.query_id, batch_id):
            _run_for_nobody(frame)
            found, run.earlier = run.found(self.sinks), None
            return run.result(batch_id, run.head.checkpoint_id, Delivery.REPLAYED_DELIVERED, found, clock)
        filled: list[tuple[CheckpointManifest, frozenset[str]]] = []

        def fill(checkpoint: CheckpointBuilder) -> None:
            given = self._fill(run, frame, batch_id, planned, checkpoint)
            filled.append((checkpoint.manifest(), given))

        outcome = run.coordinator.run(fill, epoch=batch_id + 1, once_saved=lambda: run.close_left(self.sinks))
        if not outcome.success:
            run.check_open(outcome.cause)
            raise StorageError(
                f"batch {batch_id} of pipeline {self.pipeline!r} was not delivered: {outcome.error}",
                expected="saved and delivered",
                found="saved" if outcome.saved else "not saved",
                next_step="Start the query again when the cause is removed: Spark gives the same batch again.",
                details={"checkpoint_id": outcome.checkpoint_id, "epoch": outcome.epoch},
            ) from outcome.cause
        epoch = SinkEpoch(number=batch_id + 1, generation=run.writer.generation)
        ((manifest, given),) = filled
        sinks = {sink.name: outcome_of(sink, epoch, is_given=sink.name in given) for sink in self.sinks}
        if Written.FOUND in sinks.values() and Written.WRITTEN not in sinks.values():
            _run_for_nobody(frame)
        replayed = run.earlier is not None or Written.FOUND in sinks.values()
        delivery = Delivery.REPLAYED_WRITTEN if replayed else Delivery.FRESH
        run.head = Head(
            checkpoint_id=outcome.checkpoint_id, query_id=run.query.query_id, batch_id=batch_id, line=run.line
        )
        run.previous, run.batch_id, run.earlier, run.is_fresh = manifest, batch_id, None, False
        return run.result(batch_id, outcome.checkpoint_id, delivery, sinks, clock)

    def _fill(
        self, run: Run, frame: DataFrame, batch_id: int, planned: PlannedLogs, checkpoint: CheckpointBuilder
    ) -> frozenset[str]:
        """Fills in the checkpoint; which sinks were given something."""
        head = None if run.is_fresh else run.head
        state = None if head is None else self._here.pipeline(self.pipeline).state(head.checkpoint_id)
        # What the query is, for `check_resume`; the function may know better, and says so after this.
        checkpoint.describe(pipeline_hash=schema_hash(frame))
        batch = Batch(id=batch_id, checkpoint=checkpoint, spark=frame.sparkSession, previous=run.previous, state=state)
        with self._step(BatchStep.FUNCTION):
            output = self.fn(frame, batch)
        frames = addressed(output, self.sinks, self.pipeline)
        for sink in self.sinks:
            if sink.name in frames:
                sink.write(frames[sink.name])
        for name, source in connector_checkpoints(planned.entry, batch.epoch).items():
            checkpoint.source(name, source.offsets, metadata=source.metadata)
        checkpoint.describe(
            watermark=planned.entry.watermark_ms,
            source_names=[f"source-{index}" for index in range(len(planned.entry.offsets))],
        )
        checkpoint.state(DOCUMENT, document(run.line, batch_id, planned.told, frames, run.restored))
        checkpoint.state(BATCH, in_short(run.line, batch_id, planned.told, frames))
        for (index, number), entry in planned.compacted.items():
            checkpoint.state(f"{SOURCES}/{index}", entry, partition=number)
        return frozenset(frames)

    @contextmanager
    def _alone(self, query: RunningQuery) -> Iterator[None]:
        """Within: a batch of this query, and no other. Its sinks and the pipeline could not tell two of them apart."""
        with self._turn:
            run, holder = self._run, self._busy
            if holder is None and run is not None and run.query.query_id != query.query_id and run.query.is_active():
                holder = run.query.query_id
            if holder is not None:
                raise SessionStateError(
                    f"pipeline {self.pipeline!r} is that of query {holder}, which is running",
                    expected=holder,
                    found=query.query_id,
                    next_step="Give each query a `foreach_batch` and a pipeline of its own.",
                )
            self._busy = query.query_id
        try:
            yield
        finally:
            self._busy = None

    @property
    def _here(self) -> Catalog:
        assert not isinstance(self.catalog, CatalogElsewhere), "opened by the first batch"
        return self.catalog

    @contextmanager
    def _step(self, step: BatchStep) -> Iterator[None]:
        if self.observe is not None:
            self.observe(step, When.BEFORE)
        yield
        if self.observe is not None:
            self.observe(step, When.AFTER)


def _run_for_nobody(frame: DataFrame) -> None:
    """Runs a batch that no sink had to be given: Spark learns from that how far event time is, and what its state is."""
    frame.write.format("noop").mode("overwrite").save()
