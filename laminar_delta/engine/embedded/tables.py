"""Where the tables are and how they are reached: handles, turns on a local disk, commits made durable.

Every operation opens a handle of its own (4 ms) and drops it. A shared handle was measured to let a fenced writer through:
one thread checks the fence on it, another refreshes it, and the first thread's commit is then judged against the newer state.
With a private handle delta-rs itself refuses a commit whose transaction identifier moved since the handle was opened, so check
and commit are one step also on an object store, where there is no file lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction

from laminar_delta.engine.arrow import canonical, check_same_table
from laminar_delta.engine.base import Engine
from laminar_delta.engine.deltars import rot, upkeep
from laminar_delta.engine.deltars.around import Around
from laminar_delta.engine.deltars.faults import committing, reading
from laminar_delta.engine.deltars.process import check_not_forked
from laminar_delta.engine.deltars.scanning import schema_of
from laminar_delta.engine.local import durability
from laminar_delta.engine.local.lock import DEFAULT_TIMEOUT_S, CatalogLock
from laminar_delta.engine.local.log import check_entries
from laminar_delta.engine.local.place import check_usable, local_path
from laminar_delta.engine.request import Stamp, TableSpec, stamp
from laminar_delta.errors import FormatError, StorageError
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from laminar_delta.engine.predicate import Predicate

_LOG = logging.getLogger(__name__)

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
LOG_CHECKPOINT_EVERY = 10
"""How many commits apart the log is checkpointed, whatever `delta.checkpointInterval` says: that one is for Spark, where a log
checkpoint takes a second. Here it takes milliseconds, and opening a table grows by 0.3 ms with every entry since the last."""
_COMMIT_RETRIES = 50
"""How often delta-rs itself tries the next version number after losing it to a commit that does not conflict."""


class EmbeddedTables(Engine):
    """The tables themselves: made, found, described."""

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
        root = local_path(str(location))
        self._root = None if root is None else check_usable(root)
        self.location = str(self._root) if self._root else str(location).rstrip("/")
        self._storage_options = dict(storage_options or {})
        self.holds_uploads = self._root is None
        self._lock = CatalogLock(self._root, lock_timeout_s) if self._root else None
        self._schemas: dict[str, pa.Schema] = {}
        self._layouts: dict[str, tuple[list[str], list[str]]] = {}
        self._looked = rot.Looked()
        self._around = Around()

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
                        commit_properties=commit_properties(stamp((), {"operation": "create"})),
                        # Properties of our own and of Spark's are kept as they are.
                        raise_if_key_not_exists=False,
                    )
                self._make_durable(spec.name, 0)
                created = True
        handle = self._open(spec.name)
        check_same_table(
            spec.name,
            canonical(spec.schema),
            schema_of(handle),
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
            found = self._schemas[table] = schema_of(self._open_to_read(table))
        return found

    def properties(self, table: str) -> Mapping[str, str]:
        """See `Engine.properties`."""
        return dict(self._open_to_read(table).metadata().configuration)

    def version(self, table: str) -> int:
        """See `Engine.version`."""
        return int(self._open_to_read(table).version())

    @property
    def storage_options(self) -> dict[str, str]:
        """See `Engine.storage_options`."""
        return dict(self._storage_options)

    @property
    def root(self) -> Path | None:
        """The directory, where it is one."""
        return self._root

    def flush(self, table: str, version: int) -> None:
        """See `Engine.flush`."""
        if self._root is not None:
            durability.acknowledge_found(table, self._root / table, version)

    def close(self) -> None:
        """See `Engine.close`: nothing is held between calls."""

    # -- for the classes above ----------------------------------------------------------------------------------------------

    def _uri(self, table: str) -> str:
        return str(self._root / table) if self._root is not None else f"{self.location}/{table}"

    def _open(self, table: str, version: int | None = None) -> DeltaTable:
        """A fresh handle, never shared."""
        with self._reading(table, version):
            if self._root is not None:
                check_entries(self._root / table, version=version)
            return DeltaTable(self._uri(table), version=version, storage_options=self._storage_options)

    def _open_to_read(self, table: str, version: int | None = None) -> DeltaTable:
        """The same for nothing but reading: also where a log checkpoint is damaged, by the entries that it covers."""
        if self._root is None:
            return self._open(table, version)
        return self._around.opened(self._root / table, version, lambda: self._open(table, version))

    @contextmanager
    def _reading(
        self, table: str, version: int | None = None, where: Predicate | None = None, *, history: bool = False
    ) -> Iterator[None]:
        """Translates what goes wrong, and names the file: delta-rs does not always say which it could not read."""
        try:
            with reading(table, version):
                yield
        except (StorageError, FormatError) as error:
            if self._root is None:
                raise
            found = rot.named(error, self._root / table, self._looked, version=version, where=where, history=history)
            if found is error:
                raise
            raise found from error

    def _turn(self) -> AbstractContextManager[None]:
        """This writer's turn: the catalog's lock on a local disk; on an object store conditional puts decide instead."""
        # Before the lock: the process this one was forked from may hold it.
        check_not_forked()
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

    def _acknowledge(self, table: str, version: int, flushed: Iterable[str] = ()) -> int:
        """Makes a commit durable, and the log quick to open again where it is time. `flushed` are files written ahead of it."""
        if self._root is not None:
            directory = self._root / table
            durability.acknowledge(table, directory, version, {directory / name for name in flushed})
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


def commit_properties(made: Stamp) -> CommitProperties:
    """What a commit carries: its metadata and its fences."""
    return CommitProperties(
        custom_metadata={"userMetadata": made.user_metadata},
        max_commit_retries=_COMMIT_RETRIES,
        app_transactions=[Transaction(fence.application_id, fence.version) for fence in made.fences] or None,
    )
