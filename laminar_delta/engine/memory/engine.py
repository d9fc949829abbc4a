"""The engine over `MemoryTable`: no files, nothing outlives the process, everything else as the others do it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from laminar_delta.engine.answer import HistoryEntry, PartitionSize
from laminar_delta.engine.arrow import canonical, check_same_table, project
from laminar_delta.engine.base import Engine, Metadata
from laminar_delta.engine.memory.merge import merge_rows
from laminar_delta.engine.memory.table import Change, MemoryTable, Version
from laminar_delta.engine.predicate import Dialect, Predicate
from laminar_delta.engine.request import Merge, Stamp, TableSpec, parse_user_metadata, stamp
from laminar_delta.engine.settle import Settled
from laminar_delta.errors import InvalidInputError, NotFoundError

_HOUR_MS = 3_600_000
_UNITS_MS = {"minute": 60_000, "hour": _HOUR_MS, "day": 24 * _HOUR_MS, "week": 168 * _HOUR_MS}


class MemoryEngine(Engine):
    """Tables in this object. Engines opened on one shared `store` see the same tables."""

    name: ClassVar[str] = "memory"
    persistent: ClassVar[bool] = False
    many_fences: ClassVar[bool] = True
    dialect: ClassVar[Dialect] = Dialect.DATAFUSION

    def __init__(
        self,
        location: str = "memory",
        *,
        store: dict[str, MemoryTable] | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Opens the store.

        Args:
            location: A name, for messages only.
            store: The tables, to share them between engines of one process.
            clock_ms: What time it is: retention is decided by it.
        """
        self.location = location
        self._tables = {} if store is None else store
        self._clock_ms = clock_ms
        self._creating = threading.Lock()

    # -- tables -------------------------------------------------------------------------------------------------------

    def create(self, spec: TableSpec) -> bool:
        """See `Engine.create`."""
        schema = canonical(spec.schema)
        with self._creating:
            created = spec.name not in self._tables
            if created:
                table = MemoryTable(spec, schema, self._clock_ms)
                entry = HistoryEntry(
                    version=0,
                    timestamp_ms=self._clock_ms(),
                    operation="CREATE TABLE",
                    metadata=parse_user_metadata(stamp((), {"operation": "create"}).user_metadata),
                )
                table.versions[0] = Version(entry, frozenset(), {})
                self._tables[spec.name] = table
        found = self._table(spec.name)
        check_same_table(spec.name, schema, found.schema, spec.partition_by, found.spec.partition_by)
        return created

    def exists(self, table: str) -> bool:
        """See `Engine.exists`."""
        return table in self._tables

    def schema(self, table: str) -> pa.Schema:
        """See `Engine.schema`."""
        return self._table(table).schema

    def properties(self, table: str) -> Mapping[str, str]:
        """See `Engine.properties`."""
        return dict(self._table(table).spec.properties)

    def version(self, table: str) -> int:
        """See `Engine.version`."""
        return self._table(table).newest.entry.version

    # -- writing ------------------------------------------------------------------------------------------------------

    def _append(self, table: str, rows: pa.Table, made: Stamp) -> int:
        found = self._table(table)
        return found.commit(found.newest, Change(operation="WRITE", added=rows), made)

    def _commit_fence(self, table: str, made: Stamp) -> int:
        found = self._table(table)
        return found.commit(found.newest, Change(operation="WRITE"), made)

    def _merge(self, table: str, rows: pa.Table, merge: Merge, made: Stamp) -> Settled:
        found = self._table(table)
        snapshot = found.newest
        fragments = {number: found.rows(number) for number in snapshot.fragments}
        if merge.guard is not None and not any(any(_mask(part, merge.guard)) for part in fragments.values()):
            return Settled(None, inserted=0, updated=0, deleted=0)
        outcome = merge_rows(fragments, rows, merge)
        version = None
        if outcome.changed:
            change = Change(operation="MERGE", added=outcome.added, removed=outcome.removed, read=outcome.would_read)
            version = found.commit(snapshot, change, made)
        return Settled(version, inserted=outcome.inserted, updated=outcome.updated, deleted=outcome.deleted)

    def _delete(self, table: str, where: Predicate, made: Stamp) -> Settled:
        found = self._table(table)
        snapshot = found.newest
        removed: set[int] = set()
        kept: list[pa.Table] = []
        count = 0
        for number in snapshot.fragments:
            rows = found.rows(number)
            mask = _mask(rows, where)
            if any(mask):
                removed.add(number)
                count += sum(mask)
                kept.append(rows.filter(pa.array([not hit for hit in mask])))
        if not removed:
            return Settled(None, deleted=0)
        change = Change(
            operation="DELETE",
            added=pa.concat_tables(kept),
            removed=frozenset(removed),
            read=lambda rows: any(_mask(rows, where)),
        )
        return Settled(found.commit(snapshot, change, made), deleted=count)

    # -- reading ------------------------------------------------------------------------------------------------------

    def scan(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        version: int | None = None,
        streamed: bool = False,  # noqa: ARG002  # fragments are handed out one by one anyway
    ) -> pa.RecordBatchReader:
        """See `Engine.scan`."""
        found = self._table(table)
        schema = project(found.schema, columns, table)
        fragments = found.at(version).fragments

        def batches() -> Iterator[pa.RecordBatch]:
            for number in sorted(fragments):
                rows = found.rows(number)
                if where is not None:
                    rows = rows.filter(pa.array(_mask(rows, where), pa.bool_()))
                yield from rows.select(schema.names).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _query(
        self, sql: str, tables: Mapping[str, int | None], views: Mapping[str, str], known: Sequence[str]
    ) -> pa.Table:
        # Here, because the reference needs delta-rs for this alone: its own rows, asked by a real SQL engine.
        from laminar_delta.engine.deltars import datafusion

        return datafusion.query_rows(
            sql, {name: self.read(name, version=at) for name, at in tables.items()}, views, known
        )

    def history(self, table: str, *, limit: int | None = None) -> list[HistoryEntry]:
        """See `Engine.history`."""
        versions = self._table(table).versions
        return [versions[number].entry for number in sorted(versions, reverse=True)[:limit]]

    def fences(self, table: str, application_ids: Sequence[str]) -> Mapping[str, int]:
        """See `Engine.fences`."""
        standing = self._table(table).newest.fences
        return {name: standing[name] for name in application_ids if name in standing}

    def sizes(self, table: str) -> list[PartitionSize]:
        """See `Engine.sizes`. A fragment counts as a file of each partition it has rows of."""
        found = self._table(table)
        names = list(found.spec.partition_by)
        totals: dict[tuple[object, ...], tuple[int, int]] = {}
        for number in found.newest.fragments:
            rows = found.rows(number)
            keys = list(zip(*(rows.column(name).to_pylist() for name in names), strict=True)) or [()] * rows.num_rows
            for key in set(keys):
                own = rows.filter(pa.array([other == key for other in keys], pa.bool_()))
                files, size = totals.get(key, (0, 0))
                totals[key] = files + 1, size + own.combine_chunks().nbytes
        return [
            PartitionSize(partition=dict(zip(names, key, strict=True)), files=files, size_bytes=size)
            for key, (files, size) in totals.items()
        ]

    # -- maintenance --------------------------------------------------------------------------------------------------

    def optimize(self, table: str, *, order_by: Sequence[str] = (), metadata: Metadata | None = None) -> int | None:
        """See `Engine.optimize`."""
        found = self._table(table)
        snapshot = found.newest
        if len(snapshot.fragments) < 2:
            return None
        rows = pa.concat_tables([found.rows(number) for number in snapshot.fragments])
        if order_by:
            rows = rows.sort_by([(name, "ascending") for name in order_by])
        change = Change(operation="OPTIMIZE", added=rows, removed=snapshot.fragments)
        return found.commit(snapshot, change, stamp((), metadata))

    def log_checkpoint(self, table: str) -> None:
        """See `Engine.log_checkpoint`."""
        found = self._table(table)
        found.log_checkpoints.add(found.newest.entry.version)

    def clean_log(self, table: str) -> None:
        """See `Engine.clean_log`."""
        found = self._table(table)
        horizon = self._clock_ms() - _interval_ms(
            found.spec.properties.get("delta.logRetentionDuration", "interval 30 days")
        )
        covered = max(found.log_checkpoints, default=-1)
        for number in [n for n, v in found.versions.items() if n < covered and v.entry.timestamp_ms < horizon]:
            del found.versions[number]

    def vacuum(
        self,
        table: str,
        *,
        older_than_hours: int | None = None,
        dry_run: bool = True,
        metadata: Metadata | None = None,  # noqa: ARG002  # its log has no entry for it
    ) -> list[str]:
        """See `Engine.vacuum`."""
        found = self._table(table)
        if older_than_hours is None:
            stored = found.spec.properties.get("delta.deletedFileRetentionDuration", "interval 1 week")
            horizon = self._clock_ms() - _interval_ms(stored)
        else:
            horizon = self._clock_ms() - older_than_hours * _HOUR_MS
        live = found.newest.fragments
        gone = [
            n for n, when in found.removed_at_ms.items() if n in found.fragments and n not in live and when <= horizon
        ]
        if not dry_run:
            for number in gone:
                del found.fragments[number]
        return [f"fragment-{number}" for number in gone]

    def restore(self, table: str, version: int, *, metadata: Metadata | None = None) -> int:
        """See `Engine.restore`."""
        found = self._table(table)
        return found.restore(found.at(version), stamp((), metadata))

    def close(self) -> None:
        """See `Engine.close`: the tables go with the last engine that knows them."""

    def _table(self, table: str) -> MemoryTable:
        if table not in self._tables:
            raise NotFoundError(f"there is no table {table!r}", expected=table, found=sorted(self._tables))
        return self._tables[table]


def _mask(rows: pa.Table, where: Predicate) -> list[bool]:
    return [where.holds({None: row}) is True for row in rows.to_pylist()]


def _interval_ms(text: str) -> int:
    """A Delta interval such as `interval 7 days` in milliseconds."""
    match = re.fullmatch(r"interval\s+(\d+)\s+(minute|hour|day|week)s?", text.strip())
    if match is None:
        raise InvalidInputError(f"{text!r} is not an interval", expected="interval 7 days", found=text)
    return int(match[1]) * _UNITS_MS[match[2]]
