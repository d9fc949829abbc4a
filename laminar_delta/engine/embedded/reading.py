"""Reading through delta-rs: rows, history, sizes, and queries of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from laminar_delta.engine.answer import HistoryEntry, PartitionSize
from laminar_delta.engine.deltars import datafusion, rot, scanning
from laminar_delta.engine.deltars.sizes import partition_sizes
from laminar_delta.engine.embedded.tables import EmbeddedTables
from laminar_delta.engine.local.log import check_entries
from laminar_delta.engine.predicate import Dialect, Predicate
from laminar_delta.engine.request import COMMIT_KEY, Stamp, parse_user_metadata
from laminar_delta.engine.settle import HISTORY_WINDOW, OutcomeUnknown
from laminar_delta.errors import ErrorCode, LaminarDeltaError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

SQL = Dialect.DATAFUSION
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
        return scanning.scan(handle, table, columns, where, lambda: self._reading(table, version, where))

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
