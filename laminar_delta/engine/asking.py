"""The engine contract: what can be asked of the tables. `base.py` has what changes them.

This module imports nothing heavy either.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

from laminar_delta.engine import sql as queries
from laminar_delta.engine.answer import History
from laminar_delta.errors import ErrorCode, NotFoundError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar_delta.engine.answer import HistoryEntry, PartitionSize
    from laminar_delta.engine.predicate import Dialect, Predicate

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class Asking(ABC):
    """A place with Delta tables, as far as it is only read."""

    dialect: ClassVar[Dialect]
    """Whose SQL answers queries."""

    location: str
    by_name: bool = False
    """Whether the tables have names in a schema, beside which views can be kept."""

    @abstractmethod
    def exists(self, table: str) -> bool:
        """Whether there is a Delta table of that name."""

    @abstractmethod
    def schema(self, table: str) -> pa.Schema:
        """The table's columns. Raises `NotFoundError` without the table."""

    @abstractmethod
    def properties(self, table: str) -> Mapping[str, str]:
        """The table properties as stored, `delta.*` names included."""

    @abstractmethod
    def version(self, table: str) -> int:
        """The newest version of the table."""

    @abstractmethod
    def scan(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        version: int | None = None,
        streamed: bool = False,
    ) -> pa.RecordBatchReader:
        """Rows of one version (the newest unless told), in the table's column types, in no order.

        Args:
            table: The table's name.
            columns: Which columns, in this order; all by default.
            where: Rows for which this is true.
            version: Read the table as it was then. Raises `NotFoundError` (code `version-gone`) once it is cleaned away.
            streamed: The result may be larger than memory. Engines that stream anyway ignore it.

        Raises:
            StorageError: Code `file-missing` when a data file of that version is gone, code `log-damaged` when an entry of the
                log is empty or its newest cut off: it is never read past.
        """

    @final
    def read(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        version: int | None = None,
    ) -> pa.Table:
        """Like `scan`, whole."""
        return self.scan(table, columns=columns, where=where, version=version).read_all()

    @final
    def query(self, sql: str, *, tables: Mapping[str, int | None], views: Mapping[str, str] | None = None) -> pa.Table:
        """Answers a query over tables and views by their plain names; it never changes anything.

        Args:
            sql: One `SELECT` or `WITH … SELECT`.
            tables: The tables it may use, and the version of each; None for the newest. They are opened in this order.
            views: Queries it may use by name, each after those it uses, as `engine/sql.py` describes.

        Raises:
            InvalidInputError: It is no query, or uses what there is not, or fails on the values it meets.
        """
        # Here for the same reason as in `conform`.
        from laminar_delta.engine.arrow import answered

        text = queries.select_only(sql)
        known: dict[str, str | None] = {**dict.fromkeys(tables), **(views or {})}
        needed = queries.mentioned(text, known)
        return answered(
            self._query(
                text,
                {name: version for name, version in tables.items() if name in needed},
                {name: queries.spelled(body, self.dialect) for name, body in (views or {}).items() if name in needed},
                sorted(known),
            )
        )

    @abstractmethod
    def history(self, table: str, *, limit: int | None = None) -> list[HistoryEntry]:
        """The commits that the log still tells of, newest first."""

    @final
    def told_history(self, table: str, *, limit: int | None = None) -> History:
        """The same; where an entry is damaged, those newer than it.

        A damaged entry is not read past. As long as a log checkpoint covers it the table itself can be read, so for those who
        look for what the table does not have any more it is as if the log had been cleaned up to there. Who concludes that
        something never happened has to look at `damage`.
        """
        try:
            return History(entries=self.history(table, limit=limit))
        except StorageError as error:
            damaged = error.details.get("version")
            if error.code is not ErrorCode.LOG_DAMAGED or not isinstance(damaged, int):
                raise
            newest = self.version(table)
            intact = newest - damaged if limit is None else min(limit, newest - damaged)
            return History(entries=self.history(table, limit=intact) if intact > 0 else [], damage=error.message)

    @abstractmethod
    def fences(self, table: str, application_ids: Sequence[str]) -> Mapping[str, int]:
        """Where the fences of these applications stand now, without those that nobody raised.

        On Spark those of tables away from this machine's disk are left out as well: it has no words to ask for them.
        """

    @final
    def version_at(self, table: str, timestamp_ms: int) -> int:
        """The version that was the newest at that time. Raises `NotFoundError` (code `version-gone`) before the first one."""
        entries = self.history(table)
        for entry in entries:
            if entry.timestamp_ms <= timestamp_ms:
                return entry.version
        asked = _EPOCH + dt.timedelta(milliseconds=max(timestamp_ms, 0))
        raise NotFoundError(
            f"table {table!r} has no version as old as {asked:%Y-%m-%d %H:%M:%S} UTC",
            code=ErrorCode.VERSION_GONE,
            expected=timestamp_ms,
            found=entries[-1].timestamp_ms if entries else None,
            next_step="Ask for a later time: the log before it has been cleaned or never existed.",
        )

    def damaged(
        self,
        table: str,  # noqa: ARG002  # for engines with files to look at
        *,
        version: int | None = None,  # noqa: ARG002
        where: Predicate | None = None,  # noqa: ARG002
        columns: Sequence[str] = (),  # noqa: ARG002
        intact: Callable[[Mapping[str, Any]], bool] | None = None,  # noqa: ARG002
    ) -> list[str]:
        """The files of a table and its log that are damaged, in words that name each: for messages, and never raises.

        Every file is looked at by itself, which costs what reading the table costs. Empty where none is found, and where the
        engine has no files on this machine's disk: object stores check what they keep.

        Args:
            table: The table's name.
            version: The files of which version; those of the newest by default.
            where: Only files that may have rows for which this is true.
            columns: What `intact` is shown of a row.
            intact: Whether a row is as it was written. Files with others, of those `where` is true for, are named too.
        """
        return []

    @abstractmethod
    def sizes(self, table: str) -> list[PartitionSize]:
        """The files and bytes that the newest version consists of, by partition, in no order; no row is read for it."""

    @abstractmethod
    def _query(
        self, sql: str, tables: Mapping[str, int | None], views: Mapping[str, str], known: Sequence[str]
    ) -> pa.Table:
        """See `query`; `known` is for messages."""
