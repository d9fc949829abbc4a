"""Reading through delta-rs: rows, history, sizes, and queries of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from laminar_delta.engine.answer import HistoryEntry, PartitionSize
from laminar_delta.engine.arrow import cast_stream, project
from laminar_delta.engine.deltars import datafusion, rot
from laminar_delta.engine.deltars.sizes import partition_sizes
from laminar_delta.engine.embedded.tables import EmbeddedTables, schema_of
from laminar_delta.engine.local.log import check_entries
from laminar_delta.engine.predicate import Apart, Dialect, Predicate, quote_name
from laminar_delta.engine.request import COMMIT_KEY, Stamp, parse_user_metadata
from laminar_delta.engine.settle import HISTORY_WINDOW, OutcomeUnknown
from laminar_delta.errors import ErrorCode, LaminarDeltaError, StorageError

SQL = Dialect.DATAFUSION
AT_ONCE = 8
"""How many conditions that are apart are looked for at a time."""
_STEPS = (1, 20, HISTORY_WINDOW)
"""How many commits back a commit just made is looked for: it is the newest unless many write at once."""


class EmbeddedReader(EmbeddedTables):
    """What can be asked of the tables."""

    def scan(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        version: int | None = None,
        streamed: bool = False,  # noqa: ARG002  # DataFusion streams anyway
    ) -> pa.RecordBatchReader:
        """See `Engine.scan`."""
        handle = self._open_to_read(table, version)
        schema = project(schema_of(handle), columns, table)
        names = ", ".join(quote_name(name, SQL) for name in schema.names)
        # One as the other: what could not even be planned is told before a row is asked for.
        first, *others = _queries(f"SELECT {names} FROM t", where)
        with self._reading(table, version, where):
            builder = QueryBuilder().register("t", handle)
            stream = builder.execute(first)
        streams = chain((stream,), map(builder.execute, others))
        # Batch by batch in Python: handing the stream itself to Arrow's C interface would make a panic on a rotten file,
        # which arrives here as an exception, abort the process.
        batches = (pa.record_batch(batch) for found in streams for batch in found)
        return cast_stream(batches, schema, lambda: self._reading(table, version, where))

    def _query(
        self, sql: str, tables: Mapping[str, int | None], views: Mapping[str, str], known: Sequence[str]
    ) -> pa.Table:
        return datafusion.query(sql, {name: self._open_to_read(name, at) for name, at in tables.items()}, views, known)

    def history(self, table: str, *, limit: int | None = None) -> list[HistoryEntry]:
        """See `Engine.history`."""
        handle = self._open_to_read(table)
        with self._reading(table, history=True):
            if self._root is not None:
                # delta-rs numbers what it finds: past an empty entry every number would be wrong.
                check_entries(self._root / table, back=int(handle.version()) + 1 if limit is None else limit)
            return [
                HistoryEntry(
                    version=entry["version"],
                    timestamp_ms=_told(table, entry, "timestamp"),
                    operation=_told(table, entry, "operation"),
                    metadata=parse_user_metadata(entry.get("userMetadata")),
                    engine_info=entry.get("engineInfo"),
                )
                for entry in handle.history(limit)
            ]

    def fences(self, table: str, application_ids: Sequence[str]) -> Mapping[str, int]:
        """See `Engine.fences`."""
        handle = self._open_to_read(table)
        with self._reading(table):
            found = {name: handle.transaction_version(name) for name in application_ids}
        return {name: int(version) for name, version in found.items() if version is not None}

    def damaged(
        self,
        table: str,
        *,
        version: int | None = None,
        where: Predicate | None = None,
        columns: Sequence[str] = (),
        intact: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> list[str]:
        """See `Engine.damaged`."""
        if self._root is None:
            return []
        return rot.damaged(
            self._root / table, self._looked, version=version, where=where, columns=columns, intact=intact
        )

    def sizes(self, table: str) -> list[PartitionSize]:
        """See `Engine.sizes`."""
        handle = self._open_to_read(table)
        with self._reading(table):
            return partition_sizes(handle)

    def _find_commit(self, table: str, made: Stamp) -> int:
        """The version of a commit whose handle does not tell it."""
        try:
            for limit in _STEPS:
                for entry in self.history(table, limit=limit):
                    if entry.metadata.get(COMMIT_KEY) == made.commit_id:
                        return entry.version
        except LaminarDeltaError as error:
            # Not being able to look is no failure of the commit: `settle` looks again.
            raise OutcomeUnknown(f"it returned, but the log cannot be read: {error}", may_still_land=False) from error
        raise OutcomeUnknown(
            "the commit call returned, but the log does not show it", may_still_land=self._root is None
        )


def _queries(select: str, where: Predicate | None) -> list[str]:
    """What to ask, one after the other. DataFusion leaves out no row group for conditions of which any may hold, so those that
    are apart are looked for by themselves, some at a time: each holds a row group in memory.
    """
    if not isinstance(where, Apart) or not where.parts:
        return [select + (f" WHERE {where.sql(SQL)}" if where is not None else "")]
    each = [f"{select} WHERE {part.sql(SQL)}" for part in where.parts]
    return [" UNION ALL ".join(each[at : at + AT_ONCE]) for at in range(0, len(each), AT_ONCE)]


def _told(table: str, entry: Mapping[str, Any], name: str) -> Any:
    """What a log entry says of its commit. Every engine writes it: one without has rotted."""
    if name not in entry:
        raise StorageError(
            f"log entry {entry['version']} of table {table!r} does not tell its {name}",
            code=ErrorCode.LOG_DAMAGED,
            expected=name,
            found=sorted(entry),
            next_step="Bring the entry back from a backup.",
            details={"table": table, "version": entry["version"]},
        )
    return entry[name]
