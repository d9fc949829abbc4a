"""Writing what queries say into the catalog: many rows to a commit, on a thread of its own, and never at a query's expense.

Whoever tells puts an event into a bounded queue and is done. When the queue is full, or a catalog cannot be written for long,
events are counted and dropped: history is worth less than the query it is about.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.later import ensure
from laminar_delta.catalog.tables import QUERY_PROGRESS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import InvalidInputError
from laminar_delta.logs import Event, log_event
from laminar_delta.model.ids import new_attempt_id, validate_pipeline_name

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.streaming.progress import Row, Told

_LOG = logging.getLogger(__name__)

PipelineOf = Callable[["Told"], "str | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderCounts:
    """What became of the events so far."""

    told: int = 0
    recorded: int = 0
    """Rows that are in the catalog."""
    dropped: int = 0
    """Events lost: the queue was full, one could not be read, or the catalog could not be written until the end."""
    failures: int = 0
    """Tries to write that failed; their rows are tried again with the next."""
    last_error: str | None = None


@dataclass(slots=True)
class _Batch:
    """Rows on their way, under the attempt by which they are recognised if an answer gets lost."""

    rows: list[Row] = field(default_factory=list)
    attempt_id: str = field(default_factory=new_attempt_id)
    tried: bool = False
    """Nothing is added to it any more: what is in it may be in the catalog already."""


class Recorder:
    """Takes events and writes them. Ends with `close`, or with the process."""

    def __init__(
        self,
        engine: Engine,
        pipeline_of: PipelineOf,
        *,
        owner: str,
        capacity: int = 1000,
        batch_rows: int = 100,
        every_s: float = 5.0,
    ) -> None:
        for name, value in (("capacity", capacity), ("batch_rows", batch_rows), ("every_s", every_s)):
            if value <= 0:
                raise InvalidInputError(f"{name} must be above 0", expected="above 0", found=value)
        self._engine = engine
        self._pipeline_of = pipeline_of
        self._owner = owner
        self._batch_rows = batch_rows
        self._every_s = every_s
        self._queue: queue.Queue[Told] = queue.Queue(capacity)
        self._awake = threading.Event()
        self._closing = threading.Event()
        self._counting = threading.Lock()
        self._counts = RecorderCounts()
        self._batch = _Batch()
        self._ready = False
        self._taking = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def counts(self) -> RecorderCounts:
        """What became of the events so far."""
        with self._counting:
            return self._counts

    def tell(self, event: Told, *, soon: bool = False) -> None:
        """Takes an event. Returns at once, raises nothing.

        Args:
            event: The event.
            soon: Do not wait for more of them before writing.
        """
        self._count(told=1)
        try:
            with self._taking:
                if self._closing.is_set():
                    raise queue.Full
                self._start()
                self._queue.put_nowait(event)
        except Exception as error:  # noqa: BLE001  # it would be the query's failure
            self._drop(1, error)
        if soon or self._queue.qsize() >= self._batch_rows:
            self._awake.set()

    def close(self, timeout_s: float = 30.0) -> bool:
        """Writes what there is and ends; whether it came to an end in time. Events told later are dropped."""
        with self._taking:  # what was taken before is in the queue, and is written or counted
            self._closing.set()
            thread = self._thread
        self._awake.set()
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="laminar-progress", daemon=True)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        until = time.monotonic() + self._every_s
        while True:
            self._awake.wait(max(0.0, until - time.monotonic()))
            self._awake.clear()
            # After that: who closes says so first and wakes then, so what is forgotten here was said already.
            closing = self._closing.is_set()
            self._write_all()
            until = time.monotonic() + self._every_s
            if closing:
                left = len(self._batch.rows) + self._queue.qsize()
                if left:
                    self._drop(left, None)
                return

    def _write_all(self) -> None:
        """Writes what is in the queue; stops at the first failure."""
        while self._fill():
            try:
                self._write()
            except Exception as error:  # noqa: BLE001  # told and counted; the rows are tried again
                log_event(
                    _LOG,
                    logging.WARNING,
                    Event.PROGRESS_LOST,
                    "%d events of streaming queries could not be recorded: %s",
                    len(self._batch.rows),
                    error,
                    error=str(error),
                )
                self._count(failures=1, error=error)
                return

    def _fill(self) -> bool:
        while not self._batch.tried and len(self._batch.rows) < self._batch_rows:
            try:
                event = self._queue.get_nowait()
            except queue.Empty:
                break
            try:
                row = event.row(self._pipeline_of(event), recorded_by=self._owner)
                _table([row], self._batch.attempt_id)
            except Exception as error:  # noqa: BLE001  # one that cannot be read or held must not hold up the others
                self._drop(1, error)
                continue
            self._batch.rows.append(row)
        return bool(self._batch.rows)

    def _write(self) -> None:
        if not self._ready:
            ensure(self._engine, QUERY_PROGRESS)
            self._ready = True
        batch = self._batch
        if not (batch.tried and self._is_there(batch)):
            batch.tried = True
            self._engine.append(
                QUERY_PROGRESS.name,
                _table(batch.rows, batch.attempt_id),
                metadata={"operation": "progress", "attempt": batch.attempt_id, "owner": self._owner},
                key={"attempt_id": batch.attempt_id},
            )
        self._count(recorded=len(batch.rows))
        self._batch = _Batch()

    def _is_there(self, batch: _Batch) -> bool:
        """Whether an earlier try, of which nothing was heard, had been committed."""
        where = col("attempt_id").eq(batch.attempt_id)
        return self._engine.read(QUERY_PROGRESS.name, columns=["attempt_id"], where=where).num_rows > 0

    def _drop(self, number: int, error: Exception | None) -> None:
        if error is not None and not isinstance(error, queue.Full):
            log_event(
                _LOG,
                logging.WARNING,
                Event.PROGRESS_LOST,
                "an event of a streaming query could not be read: %s",
                error,
                error=str(error),
            )
        self._count(dropped=number, error=error if not isinstance(error, queue.Full) else None)

    def _count(
        self, *, told: int = 0, recorded: int = 0, dropped: int = 0, failures: int = 0, error: Exception | None = None
    ) -> None:
        with self._counting:
            counts = self._counts
            self._counts = replace(
                counts,
                told=counts.told + told,
                recorded=counts.recorded + recorded,
                dropped=counts.dropped + dropped,
                failures=counts.failures + failures,
                last_error=counts.last_error if error is None else str(error),
            )


def _table(rows: Iterable[Row], attempt_id: str) -> pa.Table:
    """Rows as they are written. Raises for what Arrow cannot hold, such as half a character."""
    return pa.Table.from_pylist([{"attempt_id": attempt_id, **row} for row in rows], schema=QUERY_PROGRESS.schema)


def pipeline_by(names: Mapping[str, str] | None) -> PipelineOf:
    """Which pipeline a query belongs to: by its name or id in `names`; without those, the pipeline of the query's name."""
    known = {query: validate_pipeline_name(pipeline) for query, pipeline in (names or {}).items()}

    def find(event: Told) -> str | None:
        for name in (event.query_name, event.query_id):
            if name is not None and name in known:
                return known[name]
        return None if names is not None else event.query_name

    return find
