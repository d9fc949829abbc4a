"""Appending rows of state in parts of bounded size: what was cut is written while the next is being cut."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.attempt import Attempt, Part, stage
from laminar_delta.catalog.tables import BY_NAME

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.base import Engine


class StateAppender:
    """Rows on their way into the state tables, of one attempt or several."""

    def __init__(self, engine: Engine, attempts: list[Attempt], part_bytes: int) -> None:
        self._engine = engine
        self._attempts = attempts
        self._part_bytes = part_bytes
        self._waiting: dict[str, list[Row]] = {}
        self._sizes: dict[str, int] = {}
        self._parts: dict[str, list[Part]] = {attempt.attempt_id: [] for attempt in attempts}
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="laminar-state")
        self._writing: Future[None] | None = None

    def add(self, table: str, row: Row) -> None:
        """Takes a row, and hands a part over when there is enough for one."""
        self._waiting.setdefault(table, []).append(row)
        self._sizes[table] = self._sizes.get(table, 0) + len(row["data"]) + len(row["names"])
        if self._sizes[table] >= self._part_bytes:
            self._flush(table)

    def finish(self) -> dict[str, list[Part]]:
        """Writes the rest; the parts of each attempt."""
        for table in sorted(self._waiting):
            self._flush(table)
        self._wait()
        return self._parts

    def _flush(self, table: str) -> None:
        rows = self._waiting.pop(table)
        self._sizes[table] = 0
        # The part before must have been written by now, so that two are in memory at most.
        self._wait()
        self._writing = self._beside.submit(self._append, table, rows)

    def _append(self, table: str, rows: list[Row]) -> None:
        arrow = pa.Table.from_pylist(rows, schema=BY_NAME[table].schema)
        rows.clear()
        for attempt_id, part in stage(self._engine, self._attempts, table, arrow).items():
            self._parts[attempt_id].append(part)

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()

    def __enter__(self) -> StateAppender:
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.shutdown()
