"""A listener that keeps the progress of every streaming query of a session in the catalog, where SQL finds it."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from laminar_delta.catalog.pipeline import default_owner
from laminar_delta.streaming.progress import IDLE, PROGRESS, STARTED, TERMINATED, Told
from laminar_delta.streaming.recorder import Recorder, RecorderCounts, pipeline_by

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog


class CheckpointListener(StreamingQueryListener):
    """Records offsets, rates, durations and state sizes of queries in `query_progress`, without touching the queries.

    with CheckpointListener(catalog) as listener:
        spark.streams.addListener(listener)
        ...

    An event costs the thread that brings it a place in a queue. Rows are written by another thread, many to a commit; what
    goes wrong there is logged and counted (`counts`), and never reaches a query.
    """

    def __init__(
        self,
        catalog: Catalog,
        pipelines: Mapping[str, str] | None = None,
        *,
        owner: str | None = None,
        capacity: int = 1000,
        batch_rows: int = 100,
        every_s: float = 5.0,
    ) -> None:
        """A listener to be added to a session's streams.

        Args:
            catalog: Where to.
            pipelines: By name or id of a query its pipeline; the others are kept without one. By default a query's pipeline
                is the one of its name.
            owner: Who, for the audit.
            capacity: Events that may wait; more are dropped.
            batch_rows: So many waiting events are written at once.
            every_s: Fewer are written after so many seconds, and when a query ends.
        """
        self._recorder = Recorder(
            catalog.engine,
            pipeline_by(pipelines),
            owner=owner or default_owner(),
            capacity=capacity,
            batch_rows=batch_rows,
            every_s=every_s,
        )
        self._names: dict[str, str | None] = {}
        # A daemon thread ends with the process, whatever is in its queue.
        atexit.register(self._recorder.close)

    @property
    def counts(self) -> RecorderCounts:
        """What became of the events so far."""
        return self._recorder.counts

    def close(self, timeout_s: float = 30.0) -> bool:
        """Writes what is waiting and ends; whether that was done in time. Remove the listener from the streams first."""
        atexit.unregister(self._recorder.close)
        return self._recorder.close(timeout_s)

    def __enter__(self) -> CheckpointListener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """A query begins."""
        self._names[str(event.runId)] = event.name
        self._tell(event, STARTED, timestamp=event.timestamp)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch is done."""
        said = event.progress
        self._names[str(said.runId)] = said.name
        self._recorder.tell(
            Told(
                event=PROGRESS,
                query_id=str(said.id),
                run_id=str(said.runId),
                query_name=said.name,
                progress=str(said.json),
            )
        )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """A query waits for data."""
        self._tell(event, IDLE, timestamp=event.timestamp)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """A query ended, by itself or with an error."""
        self._tell(event, TERMINATED, error=event.exception, soon=True)
        self._names.pop(str(event.runId), None)

    def _tell(
        self, event: Any, kind: str, *, timestamp: str | None = None, error: str | None = None, soon: bool = False
    ) -> None:
        told = Told(
            event=kind,
            query_id=str(event.id),
            run_id=str(event.runId),
            query_name=self._names.get(str(event.runId)),
            timestamp=timestamp,
            error=error,
        )
        self._recorder.tell(told, soon=soon)
