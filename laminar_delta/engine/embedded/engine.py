"""Delta through delta-rs.

Every operation opens a handle of its own (4 ms) and drops it. A shared handle was measured to let a fenced writer through:
one thread checks the fence on it, another refreshes it, and the first thread's commit is then judged against the newer state.
With a private handle delta-rs itself refuses a commit whose transaction identifier moved since the handle was opened, so check
and commit are one step also on an object store, where there is no file lock.

On a local disk writes take turns under the catalog's lock and are flushed before they are answered. delta-rs's own hooks after
a commit are off: they remove log entries before the log checkpoint that replaces them is on the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    QueryBuilder,
    Transaction,
    write_deltalake,
)
from deltalake.transaction import AddAction

from laminar_delta.engine.arrow import canonical, cast_stream, check_same_table, project
from laminar_delta.engine.base import Commit, Engine, HistoryEntry, Metadata, PartitionSize
from laminar_delta.engine.deltars import datafusion, upkeep
from laminar_delta.engine.deltars.faults import committing, reading
from laminar_delta.engine.deltars.sizes import partition_sizes
from laminar_delta.engine.embedded import payloads
from laminar_delta.engine.embedded.merging import add_clauses, merge_condition
from laminar_delta.engine.local import durability
from laminar_delta.engine.local.lock import DEFAULT_TIMEOUT_S, CatalogLock
from laminar_delta.engine.local.log import check_all_entries, check_newest_entry
from laminar_delta.engine.local.place import local_path
from laminar_delta.engine.predicate import Dialect, Literal, Predicate, Side, quote_name
from laminar_delta.engine.request import COMMIT_KEY, Ahead, Fence, Merge, Stamp, TableSpec, parse_user_metadata, stamp
from laminar_delta.engine.settle import HISTORY_WINDOW, FenceRefused, OutcomeUnknown, Settled
from laminar_delta.errors import ErrorCode, FormatError, StorageError
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_LOG = logging.getLogger(__name__)

_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_STATS_COLUMNS = "delta.dataSkippingStatsColumns"
LOG_CHECKPOINT_EVERY = 10
"""How many commits apart the log is checkpointed, whatever `delta.checkpointInterval` says: that one is for Spark, where a log
checkpoint takes a second. Here it takes milliseconds, and opening a table grows by 0.3 ms with every entry since the last."""
ORDERED_FILE_BYTES = 1 << 20
"""About how large the files of an unpartitioned table become when it is compacted in an order: some ten thousand checkpoints. A
reader of one pipeline opens the one or two that have it; at delta-rs's own 100 MB one file would have them all."""
_COMMIT_RETRIES = 50
"""How often delta-rs itself tries the next version number after losing it to a commit that does not conflict."""
_SQL = Dialect.DATAFUSION


class EmbeddedEngine(Engine):
    """Delta tables below a directory or an object-store URI."""

    name: ClassVar[str] = "embedded"
    persistent: ClassVar[bool] = True
    many_fences: ClassVar[bool] = True
    beyond = frozenset({"add_files"})
    dialect: ClassVar[Dialect] = _SQL

    def __init__(
        self,
        location: str | Path,
        *,
        storage_options: Mapping[str, str] | None = None,
        lock_timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Opens the location; nothing is read or created yet.

        Args:
            location: A directory, or a URI such as `s3://bucket/checkpoints`.
            storage_options: What delta-rs's object store needs (credentials, endpoint). Never logged or stored.
            lock_timeout_s: How long a local write waits for its turn.
        """
        self._root = local_path(str(location))
        self.location = str(self._root) if self._root else str(location).rstrip("/")
        self._storage_options = dict(storage_options or {})
        self._lock = CatalogLock(self._root, lock_timeout_s) if self._root else None
        self._schemas: dict[str, pa.Schema] = {}
        self._layouts: dict[str, tuple[list[str], list[str]]] = {}

    # -- tables -------------------------------------------------------------------------------------------------------

    def create(self, spec: TableSpec) -> bool:
        """See `Engine.create`."""
        if self._root is not None:
            durability.make_directory(self._root)
        created = False
        with self._turn():
            if not self.exists(spec.name):
                with reading(spec.name):
                    DeltaTable.create(
                        self._uri(spec.name),
                        schema=spec.schema,
                        mode="ignore",
                        partition_by=list(spec.partition_by),
                        description=spec.comment or None,
                        configuration=dict(spec.properties),
                        storage_options=self._storage_options,
                        commit_properties=_commit_properties(stamp((), {"operation": "create"})),
                        # Properties of our own and of Spark's are kept as they are.
                        raise_if_key_not_exists=False,
                    )
                self._make_durable(spec.name, 0)
                created = True
        handle = self._open(spec.name)
        check_same_table(
            spec.name,
            canonical(spec.schema),
            _schema_of(handle),
            spec.partition_by,
            handle.metadata().partition_columns,
        )
        return created

    def exists(self, table: str) -> bool:
        """See `Engine.exists`."""
        with reading(table):
            return bool(DeltaTable.is_deltatable(self._uri(table), self._storage_options))

    def schema(self, table: str) -> pa.Schema:
        """See `Engine.schema`. Remembered: a table's columns never change within a format version."""
        found = self._schemas.get(table)
        if found is None:
            found = self._schemas[table] = _schema_of(self._open(table))
        return found

    def properties(self, table: str) -> Mapping[str, str]:
        """See `Engine.properties`."""
        return dict(self._open(table).metadata().configuration)

    def version(self, table: str) -> int:
        """See `Engine.version`."""
        return int(self._open(table).version())

    # -- writing ------------------------------------------------------------------------------------------------------

    def _append(self, table: str, rows: pa.Table, made: Stamp) -> int:
        with self._turn():
            handle = self._open(table)
            self._check_fences(handle, made.fences)
            if self._root is not None and (made.ahead or payloads.are_payloads(rows)):
                actions = self._write_files(table, rows) if rows.num_rows else []
                ahead = [action for one in made.ahead for action in _actions(one)]
                return self._commit_actions(handle, table, [*ahead, *actions], made)
            with self._committing(table):
                write_deltalake(
                    handle,
                    rows,
                    mode="append",
                    commit_properties=_commit_properties(made),
                    post_commithook_properties=_NO_HOOKS,
                )
            return self._acknowledge(table, int(handle.version()))

    def write_ahead(self, table: str, data: pa.Table) -> Ahead | None:
        """See `Engine.write_ahead`: Parquet files of payloads on a local disk, flushed while the next are being made."""
        if self._root is None or not payloads.are_payloads(data):
            return None
        actions = self._write_files(table, self.conform(table, data))
        with reading(table):
            for action in actions:
                durability.fsync_path(self._root / table / action.path)
        return Ahead(tuple(actions))

    def drop_ahead(self, table: str, ahead: Ahead) -> None:
        """See `Engine.drop_ahead`."""
        assert self._root is not None
        for action in _actions(ahead):
            (self._root / table / action.path).unlink(missing_ok=True)

    def add_files(
        self,
        table: str,
        files: Sequence[AddAction],
        *,
        metadata: Metadata | None = None,
        key: Mapping[str, Literal] | None = None,
    ) -> Commit:
        """Commits files that others wrote below the table's directory, as one append; see `payloads.write_files`."""
        made = stamp((), metadata)

        def commit() -> Settled:
            with self._turn():
                return Settled(self._commit_actions(self._open(table), table, list(files), made))

        settled = self._settlement(table, made, key).run(commit, retry=True)
        return Commit(version=settled.version, commit_id=made.commit_id, replayed=settled.replayed)

    @property
    def storage_options(self) -> dict[str, str]:
        """What opens the same place elsewhere. Holds credentials: for executors, never for logs."""
        return dict(self._storage_options)

    @property
    def root(self) -> Path | None:
        """The directory, where it is one."""
        return self._root

    def _write_files(self, table: str, rows: pa.Table) -> list[AddAction]:
        assert self._root is not None
        found = self._layouts.get(table)
        if found is None:
            # Remembered, as the columns are: a table's partitions and statistics never change within a format version.
            metadata = self._open(table).metadata()
            stats = metadata.configuration.get(_STATS_COLUMNS, "").split(",")
            found = self._layouts[table] = metadata.partition_columns, stats
        with reading(table):
            return payloads.write_files(self._root / table, rows, *found)

    def _commit_fence(self, table: str, made: Stamp) -> int:
        with self._turn():
            handle = self._open(table)
            self._check_fences(handle, made.fences)
            return self._commit_actions(handle, table, [], made)

    def _commit_actions(self, handle: DeltaTable, table: str, actions: list[AddAction], made: Stamp) -> int:
        with self._committing(table):
            handle.create_write_transaction(
                actions=actions,
                mode="append",
                schema=handle.schema(),
                partition_by=handle.metadata().partition_columns,
                commit_properties=_commit_properties(made),
                post_commithook_properties=_NO_HOOKS,
            )
        return self._acknowledge(table, self._find_commit(table, made))

    def _merge(self, table: str, rows: pa.Table, merge: Merge, made: Stamp) -> Settled:
        with self._turn():
            handle = self._open(table)
            before = handle.version()
            self._check_fences(handle, made.fences)
            if merge.guard is not None and not self._holds(table, handle, merge.guard):
                return Settled(None, inserted=0, updated=0, deleted=0)
            with self._committing(table):
                merger = handle.merge(
                    rows,
                    merge_condition(merge),
                    source_alias=Side.SOURCE.value,
                    target_alias=Side.TARGET.value,
                    # Exact pruning by the literals of the scope; a streamed source cannot be looked at twice.
                    streamed_exec=False,
                    commit_properties=_commit_properties(made),
                    post_commithook_properties=_NO_HOOKS,
                )
                counts = add_clauses(merger, merge, rows.column_names).execute()
            changed = handle.version() != before
            return Settled(
                self._acknowledge(table, int(handle.version())) if changed else None,
                inserted=counts["num_target_rows_inserted"],
                updated=counts["num_target_rows_updated"],
                deleted=counts["num_target_rows_deleted"],
            )

    def _delete(self, table: str, where: Predicate, made: Stamp) -> Settled:
        with self._turn():
            handle = self._open(table)
            before = handle.version()
            self._check_fences(handle, made.fences)
            with self._committing(table):
                counts = handle.delete(
                    where.sql(_SQL),
                    commit_properties=_commit_properties(made),
                    post_commithook_properties=_NO_HOOKS,
                )
            changed = handle.version() != before
            return Settled(
                self._acknowledge(table, int(handle.version())) if changed else None,
                deleted=counts["num_deleted_rows"],
            )

    def _holds(self, table: str, handle: DeltaTable, guard: Predicate) -> bool:
        """Whether the version a handle stands at has such a row; if that changes later, a merge on the handle conflicts."""
        with reading(table):
            found = QueryBuilder().register("t", handle).execute(f"SELECT 1 FROM t WHERE {guard.sql(_SQL)} LIMIT 1")
            return any(pa.record_batch(batch).num_rows for batch in found)

    def _check_fences(self, handle: DeltaTable, fences: Sequence[Fence]) -> None:
        """Refuses unless every fence stands below. `handle` must be nobody else's until the commit on it is done."""
        standing: dict[str, int | None] = {}
        for fence in fences:
            found = handle.transaction_version(fence.application_id)
            if found is not None and found >= fence.version:
                standing[fence.application_id] = int(found)
        if standing:
            raise FenceRefused(standing)

    # -- reading ------------------------------------------------------------------------------------------------------

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
        schema = project(_schema_of(handle), columns, table)
        names = ", ".join(quote_name(name, _SQL) for name in schema.names)
        query = f"SELECT {names} FROM t" + (f" WHERE {where.sql(_SQL)}" if where is not None else "")
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

    def sizes(self, table: str) -> list[PartitionSize]:
        """See `Engine.sizes`."""
        handle = self._open(table)
        with reading(table):
            return partition_sizes(handle)

    # -- maintenance --------------------------------------------------------------------------------------------------

    def optimize(self, table: str, *, order_by: Sequence[str] = (), metadata: Metadata | None = None) -> int | None:
        """See `Engine.optimize`."""
        made = stamp((), metadata)
        with self._turn():
            handle = self._open(table)
            before = int(handle.version())
            with self._maintaining(table):
                if order_by:
                    partitioned = bool(handle.metadata().partition_columns)
                    handle.optimize.z_order(
                        # By the first alone: delta-rs looks at 16 bytes of each column and interleaves them, so that numbers
                        # in a second column would scatter names that have their first eight characters in common.
                        list(order_by[:1]),
                        target_size=None if partitioned else ORDERED_FILE_BYTES,
                        commit_properties=_commit_properties(made),
                        post_commithook_properties=_NO_HOOKS,
                    )
                else:
                    handle.optimize.compact(
                        commit_properties=_commit_properties(made), post_commithook_properties=_NO_HOOKS
                    )
            after = self.version(table)
            if after == before:
                return None
            # Compaction of a partitioned table can make several commits.
            for version in range(before + 1, after + 1):
                self._make_durable(table, version)
            return after

    def log_checkpoint(self, table: str) -> None:
        """See `Engine.log_checkpoint`."""
        with self._turn():
            self._write_log_checkpoint(table)

    def clean_log(self, table: str) -> None:
        """See `Engine.clean_log`."""
        with self._turn():
            handle = self._open(table)
            with self._maintaining(table):
                upkeep.clean_log(handle, self._root / table if self._root is not None else None)

    def vacuum(self, table: str, *, older_than_hours: int | None = None, dry_run: bool = True) -> list[str]:
        """See `Engine.vacuum`."""
        with self._turn():
            handle = self._open(table)
            with self._maintaining(table):
                # `full` lists the directory, so that files of writes that never committed go too.
                found = handle.vacuum(
                    retention_hours=older_than_hours,
                    dry_run=dry_run,
                    enforce_retention_duration=False,
                    full=True,
                    commit_properties=_commit_properties(stamp((), {"operation": "vacuum"})),
                    post_commithook_properties=_NO_HOOKS,
                )
            unfinished = upkeep.remove_unfinished(self._root / table, dry_run=dry_run) if self._root is not None else []
            return [*found, *unfinished]

    def restore(self, table: str, version: int, *, metadata: Metadata | None = None) -> int:
        """See `Engine.restore`."""
        made = stamp((), metadata)
        with self._turn():
            self._open(table, version)
            handle = self._open(table)
            with self._maintaining(table):
                handle.restore(
                    version, commit_properties=_commit_properties(made), post_commithook_properties=_NO_HOOKS
                )
            return self._acknowledge(table, self._find_commit(table, made))

    def close(self) -> None:
        """See `Engine.close`: nothing is held between calls."""

    # -- inside -------------------------------------------------------------------------------------------------------

    def _uri(self, table: str) -> str:
        return str(self._root / table) if self._root is not None else f"{self.location}/{table}"

    def _open(self, table: str, version: int | None = None) -> DeltaTable:
        """A fresh handle, never shared."""
        try:
            with reading(table, version):
                if self._root is not None:
                    check_newest_entry(self._root / table)
                return DeltaTable(self._uri(table), version=version, storage_options=self._storage_options)
        except (StorageError, FormatError):
            # delta-rs does not say which entry of the log it could not read.
            if self._root is not None:
                check_all_entries(self._root / table)
            raise

    def _turn(self) -> AbstractContextManager[None]:
        """This writer's turn: the catalog's lock on a local disk; on an object store conditional puts decide instead."""
        return self._lock.held() if self._lock is not None else nullcontext()

    @contextmanager
    def _committing(self, table: str) -> Iterator[None]:
        # A local call that came back has nothing under way; a request to an object store may.
        with committing(table, may_still_land=self._root is None):
            yield

    @contextmanager
    def _maintaining(self, table: str) -> Iterator[None]:
        # Maintenance changes no rows, so an unknown outcome is a plain storage error: it can be repeated.
        with reading(table):
            yield

    def _acknowledge(self, table: str, version: int) -> int:
        """Makes a commit durable, and the log quick to open again where it is time."""
        if self._root is not None:
            durability.acknowledge(table, self._root / table, version)
        if version % LOG_CHECKPOINT_EVERY == 0:
            try:
                self._write_log_checkpoint(table)
            except Exception as error:  # noqa: BLE001  # the commit stands; a missing log checkpoint only costs time
                log_event(
                    _LOG,
                    logging.WARNING,
                    Event.LOG_CHECKPOINT_FAILED,
                    "log checkpoint of table %s at version %d failed: %s",
                    table,
                    version,
                    error,
                    table=table,
                    version=version,
                    error=str(error),
                )
        return version

    def _make_durable(self, table: str, version: int) -> None:
        if self._root is not None:
            with reading(table):
                durability.fsync_commit(self._root / table, version)

    def _write_log_checkpoint(self, table: str) -> None:
        handle = self._open(table)
        with self._maintaining(table):
            upkeep.write_log_checkpoint(handle, self._root / table if self._root is not None else None)

    def _find_commit(self, table: str, made: Stamp) -> int:
        """The version of a commit whose handle does not tell it."""
        for entry in self.history(table, limit=HISTORY_WINDOW):
            if entry.metadata.get(COMMIT_KEY) == made.commit_id:
                return entry.version
        raise OutcomeUnknown(
            "the commit call returned, but the log does not show it", may_still_land=self._root is None
        )


def _schema_of(handle: DeltaTable) -> pa.Schema:
    try:
        arrow: Any = handle.schema().to_arrow()  # an arro3 schema, which Arrow takes through its C interface
        return canonical(pa.schema(arrow))
    except (pa.ArrowException, TypeError) as error:
        raise FormatError(f"the columns of {handle.table_uri} cannot be read as Arrow: {error}") from error


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


def _actions(ahead: Ahead) -> list[AddAction]:
    return [action for action in ahead.files if isinstance(action, AddAction)]


def _commit_properties(made: Stamp) -> CommitProperties:
    return CommitProperties(
        custom_metadata={"userMetadata": made.user_metadata},
        max_commit_retries=_COMMIT_RETRIES,
        app_transactions=[Transaction(fence.application_id, fence.version) for fence in made.fences] or None,
    )
