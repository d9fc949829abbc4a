"""Appending rows of state in parts of bounded size: what was cut is written while the next is being cut.

Where the engine can write ahead, all parts of a table become one commit; otherwise each is a commit of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from laminar_delta.catalog.attempt import Attempt, Part, PartAhead, stage, stage_ahead
from laminar_delta.catalog.state.chunks import rows_table
from laminar_delta.catalog.tables import BY_NAME

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.base import Engine


WRITERS = 2
"""Parts written at a time: one is being copied to the disk's cache while the other waits for the disk."""


ROW_BYTES = 1 << 10
"""What a row takes in memory beside what is stored of it: of many small states it is the most."""


class StateAppender:
    """Rows on their way into the state tables, of one attempt or several. What it wrote and did not commit, it removes."""

    def __init__(self, engine: Engine, attempts: list[Attempt], part_bytes: int) -> None:
        self._engine = engine
        self._attempts = attempts
        # What is being uploaded is in memory a second time.
        self._part_bytes = max(1, part_bytes // 2) if engine.holds_uploads else part_bytes
        self._waiting: dict[str, list[Row]] = {}
        self._sizes: dict[str, int] = {}
        self._begun: set[str] = set()
        self._left: dict[str, list[Row]] = {}
        self._ahead: dict[str, list[PartAhead]] = {}
        self._parts: dict[str, list[Part]] = {attempt.attempt_id: [] for attempt in attempts}
        self._beside = ThreadPoolExecutor(WRITERS, thread_name_prefix="laminar-state")
        self._writing: deque[Future[None]] = deque()
        self._staging = threading.Lock()

    def add(self, table: str, row: Row) -> None:
        """Takes a row, and hands a part over when there is enough for one."""
        self._waiting.setdefault(table, []).append(row)
        self._sizes[table] = self._sizes.get(table, 0) + ROW_BYTES + len(row["data"]) + len(row["names"])
        if self._sizes[table] >= self._part_bytes:
            self._sizes[table] = 0
            self._begin(table, self._waiting.pop(table))

    def finish(self) -> dict[str, list[Part]]:
        """Writes the rest; the parts of each attempt."""
        for table in sorted(self._waiting.keys() & self._begun):
            # Beside what is still being written: the commit itself has nothing left to write then.
            self._begin(table, self._waiting.pop(table), is_last=True)
        self._wait(0)
        for table in sorted(self._waiting.keys() | self._left.keys() | self._ahead.keys()):
            self._stage(table, [*self._left.pop(table, ()), *self._waiting.pop(table, ())])
        return self._parts

    def _begin(self, table: str, rows: list[Row], *, is_last: bool = False) -> None:
        # So many parts are in memory at most, and the one that is being cut.
        self._wait(WRITERS - 1)
        self._begun.add(table)
        self._writing.append(self._beside.submit(self._write, table, rows, is_last=is_last))

    def _write(self, table: str, rows: list[Row], *, is_last: bool) -> None:
        ahead = stage_ahead(self._engine, table, rows_table(rows, BY_NAME[table].schema))
        if ahead is not None:
            with self._staging:
                self._ahead.setdefault(table, []).append(ahead)
        elif is_last:
            # There is a commit for it anyway.
            self._left[table] = rows
        else:
            self._stage(table, rows)

    def _stage(self, table: str, rows: list[Row]) -> None:
        arrow = rows_table(rows, BY_NAME[table].schema)
        with self._staging:
            # From here on they are the commit's: whether it came about may not be known.
            before = self._ahead.pop(table, [])
            for attempt_id, parts in stage(self._engine, self._attempts, table, arrow, before).items():
                self._parts[attempt_id] += parts

    def _wait(self, left: int) -> None:
        while len(self._writing) > left:
            self._writing.popleft().result()

    def __enter__(self) -> StateAppender:
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.shutdown()
        for table, parts in self._ahead.items():
            for part in parts:
                assert part.ahead is not None
                self._engine.drop_ahead(table, part.ahead)
