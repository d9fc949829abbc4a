"""Delta through delta-rs: what writes.

Each write checks its fences and commits on one handle that is nobody else's (`tables.py` says why). On a local disk writes
take turns under the catalog's lock and are flushed before they are answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.transaction import AddAction

from laminar_delta.engine.answer import Commit
from laminar_delta.engine.base import Metadata
from laminar_delta.engine.deltars.faults import reading
from laminar_delta.engine.embedded import payloads
from laminar_delta.engine.embedded.merging import add_clauses, merge_condition
from laminar_delta.engine.embedded.reading import SQL
from laminar_delta.engine.embedded.tables import NO_HOOKS, commit_properties
from laminar_delta.engine.embedded.upkeep import EmbeddedUpkeep
from laminar_delta.engine.local import durability
from laminar_delta.engine.predicate import Dialect, Literal, Predicate, Side
from laminar_delta.engine.request import Ahead, Fence, Merge, Stamp, stamp
from laminar_delta.engine.settle import FenceRefused, Settled

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_STATS_COLUMNS = "delta.dataSkippingStatsColumns"


class EmbeddedEngine(EmbeddedUpkeep):
    """Delta tables below a directory or an object-store URI.

    Here is what writes; below it `EmbeddedUpkeep`, `EmbeddedReader` and `EmbeddedTables`.
    """

    name: ClassVar[str] = "embedded"
    persistent: ClassVar[bool] = True
    many_fences: ClassVar[bool] = True
    beyond = frozenset({"add_files"})
    dialect: ClassVar[Dialect] = SQL

    def _append(self, table: str, rows: pa.Table, made: Stamp) -> int:
        with self._turn():
            handle = self._open(table)
            self._check_fences(handle, made.fences)
            if made.ahead or payloads.are_payloads(rows):
                actions = self._write_files(table, rows) if rows.num_rows else []
                ahead = [action for one in made.ahead for action in _actions(one)]
                # Those of this process: `add_files` commits what others wrote, and nobody says that it was flushed.
                return self._commit_actions(handle, table, [*ahead, *actions], made, {one.path for one in ahead})
            with self._committing(table):
                write_deltalake(
                    handle,
                    rows,
                    mode="append",
                    commit_properties=commit_properties(made),
                    post_commithook_properties=NO_HOOKS,
                )
            return self._acknowledge(table, int(handle.version()))

    def write_ahead(self, table: str, data: pa.Table) -> Ahead | None:
        """See `Engine.write_ahead`: Parquet files of payloads, on a local disk flushed while the next are being made."""
        if not payloads.are_payloads(data):
            return None
        actions = self._write_files(table, self.conform(table, data))
        if self._root is not None:
            with reading(table):
                for action in actions:
                    durability.fsync_path(self._root / table / action.path)
        return Ahead(tuple(actions))

    def drop_ahead(self, table: str, ahead: Ahead) -> None:
        """See `Engine.drop_ahead`."""
        for action in _actions(ahead):
            if self._root is not None:
                (self._root / table / action.path).unlink(missing_ok=True)
                continue
            # What the save failed with is to be told, and the store may be out of reach: VACUUM removes what is left.
            with suppress(Exception):
                self._files(table).delete_file(action.path)

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

    def _write_files(self, table: str, rows: pa.Table) -> list[AddAction]:
        found = self._layouts.get(table)
        if found is None:
            # Remembered, as the columns are: a table's partitions and statistics never change within a format version.
            metadata = self._open(table).metadata()
            stats = metadata.configuration.get(_STATS_COLUMNS, "").split(",")
            found = self._layouts[table] = metadata.partition_columns, stats
        with reading(table):
            return payloads.write_files(self._files(table), rows, *found)

    def _files(self, table: str) -> FileSystem:
        return payloads.files_of(self.location, table, self._storage_options)

    def _commit_fence(self, table: str, made: Stamp) -> int:
        with self._turn():
            handle = self._open(table)
            self._check_fences(handle, made.fences)
            return self._commit_actions(handle, table, [], made)

    def _commit_actions(
        self, handle: DeltaTable, table: str, actions: list[AddAction], made: Stamp, flushed: Iterable[str] = ()
    ) -> int:
        with self._committing(table):
            handle.create_write_transaction(
                actions=actions,
                mode="append",
                schema=handle.schema(),
                partition_by=handle.metadata().partition_columns,
                commit_properties=commit_properties(made),
                post_commithook_properties=NO_HOOKS,
            )
        return self._acknowledge(table, self._find_commit(table, made), flushed)

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
                    commit_properties=commit_properties(made),
                    post_commithook_properties=NO_HOOKS,
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
                    where.sql(SQL),
                    commit_properties=commit_properties(made),
                    post_commithook_properties=NO_HOOKS,
                )
            changed = handle.version() != before
            return Settled(
                self._acknowledge(table, int(handle.version())) if changed else None,
                deleted=counts["num_deleted_rows"],
            )

    def _holds(self, table: str, handle: DeltaTable, guard: Predicate) -> bool:
        """Whether the version a handle stands at has such a row; if that changes later, a merge on the handle conflicts."""
        with reading(table):
            found = QueryBuilder().register("t", handle).execute(f"SELECT 1 FROM t WHERE {guard.sql(SQL)} LIMIT 1")
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


def _actions(ahead: Ahead) -> list[AddAction]:
    return [action for action in ahead.files if isinstance(action, AddAction)]
