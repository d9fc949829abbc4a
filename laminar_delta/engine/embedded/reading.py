"""Reading through delta-rs: rows, history, sizes, and queries of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from laminar_delta.engine.answer import HistoryEntry, PartitionSize
from laminar_delta.engine.arrow import cast_stream, project
from laminar_delta.engine.deltars import datafusion
from laminar_delta.engine.deltars.faults import reading
from laminar_delta.engine.deltars.sizes import partition_sizes
from laminar_delta.engine.embedded.tables import EmbeddedTables, schema_of
from laminar_delta.engine.predicate import Dialect, Predicate, quote_name
from laminar_delta.engine.request import COMMIT_KEY, Stamp, parse_user_metadata
from laminar_delta.engine.settle import HISTORY_WINDOW, OutcomeUnknown
from laminar_delta.errors import ErrorCode, StorageError

SQL = Dialect.DATAFUSION


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
        handle = self._open(table, version)
        schema = project(schema_of(handle), columns, table)
        names = ", ".join(quote_name(name, SQL) for name in schema.names)
        query = f"SELECT {names} FROM t" + (f" WHERE {where.sql(SQL)}" if where is not None else "")
        with reading(table, version):
            stream = QueryBuilder().register("t", handle).execute(query)
        # Batch by batch in Python: handing the stream itself to Arrow's C interface would make a panic on a rotten file,
        # which arrives here as an exception, abort the process.
        batches = (pa.record_batch(batch) for batch in stream)
        return cast_stream(batches, schema, lambda: reading(table, version))

    def _query(
        self, sql: str, tables: Mapping[str, int | None], views: Mapping[str, str], known: Sequence[str]
    ) -> pa.Table:
        return datafusion.query(sql, {name: self._open(name, at) for name, at in tables.items()}, views, known)

    def history(self, table: str, *, limit: int | None = None) -> list[HistoryEntry]:
        """See `Engine.history`."""
        handle = self._open(table)
        with reading(table):
            entries = handle.history(limit)
        return [
            HistoryEntry(
                version=entry["version"],
                timestamp_ms=_told(table, entry, "timestamp"),
                operation=_told(table, entry, "operation"),
                metadata=parse_user_metadata(entry.get("userMetadata")),
                engine_info=entry.get("engineInfo"),
            )
            for entry in entries
        ]

    def fences(self, table: str, application_ids: Sequence[str]) -> Mapping[str, int]:
        """See `Engine.fences`."""
        handle = self._open(table)
        with reading(table):
            found = {name: handle.transaction_version(name) for name in application_ids}
        return {name: int(version) for name, version in found.items() if version is not None}

    def sizes(self, table: str) -> list[PartitionSize]:
        """See `Engine.sizes`."""
        handle = self._open(table)
        with reading(table):
            return partition_sizes(handle)

    def _find_commit(self, table: str, made: Stamp) -> int:
        """The version of a commit whose handle does not tell it."""
        for entry in self.history(table, limit=HISTORY_WINDOW):
            if entry.metadata.get(COMMIT_KEY) == made.commit_id:
                return entry.version
        raise OutcomeUnknown(
            "the commit call returned, but the log does not show it", may_still_land=self._root is None
        )


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
