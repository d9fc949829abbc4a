"""The engine contract: Delta tables spoken to in Arrow.

An engine is bound to one location and knows tables by name. It is thin: it commits, scans and maintains, and says truthfully
what became of a write. What a write may answer is decided once, in `engine/settle.py`, for all engines:

- it returns the table version it made (or, for a retry of a commit that is already there, `replayed=True`);
- `FencedError`: a fence stands at or above the version offered, and the caller's rows are not in the table;
- `ConflictError`: another commit came between reading and writing, and the caller's rows are not in the table;
- `CommitUnknownError`: it may have been committed, and reading back could not tell;
- any other error: nothing was committed.

Every write takes fences: an application id and a version that must be above the one recorded in the table by any earlier
commit under that id. The check and the commit are one step: of several writers offering the same version exactly one wins.

This module imports nothing heavy; Arrow, delta-rs and Spark are known to the engines only.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

from laminar_delta.engine import sql as queries
from laminar_delta.engine.answer import Commit, HistoryEntry, MergeCommit, PartitionSize
from laminar_delta.engine.request import Ahead, Fence, Merge, Stamp, TableSpec, check_fences, check_merge, stamp
from laminar_delta.engine.settle import Settled, Settlement
from laminar_delta.errors import ErrorCode, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar_delta.engine.predicate import Dialect, Literal, Predicate

Metadata = Mapping[str, object]
"""What the caller says about a commit: JSON values, kept in the log as `userMetadata`."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class Engine(ABC):
    """A place with Delta tables. Safe to share between threads; never used across a fork."""

    name: ClassVar[str]
    """How the engine is called in `open_engine`."""
    persistent: ClassVar[bool]
    """Whether tables outlive the process."""
    many_fences: ClassVar[bool]
    """Whether one append can carry several fences."""
    beyond: ClassVar[frozenset[str]] = frozenset()
    """Public methods that this engine alone has, for `distributed`: executors hand over what they wrote."""
    dialect: ClassVar[Dialect]
    """Whose SQL answers queries."""

    location: str
    by_name: bool = False
    """Whether the tables have names in a schema, beside which views can be kept."""

    # -- tables -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def create(self, spec: TableSpec) -> bool:
        """Creates a table unless it is there; safe when many come at once.

        Returns:
            Whether this call created it.

        Raises:
            FormatError: A table of that name has other columns or another partitioning.
        """

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

    # -- writing ------------------------------------------------------------------------------------------------------

    @final
    def append(
        self,
        table: str,
        data: pa.Table,
        *,
        fences: Sequence[Fence] = (),
        metadata: Metadata | None = None,
        key: Mapping[str, Literal] | None = None,
        ahead: Sequence[Ahead] = (),
    ) -> Commit:
        """Appends rows in one commit. Appends do not conflict with each other; a false conflict is retried here.

        Args:
            table: The table's name.
            data: The rows; columns by name, all of the table's, cast without loss or refused.
            fences: All must stand below what is offered, else nothing is committed. More than one needs `many_fences`.
            metadata: What to keep in the log about this commit.
            key: Column values by which the rows are found again after an error. Without it only the log is asked.
            ahead: Rows of this table that `write_ahead` wrote, to be in the same commit.

        Raises:
            InvalidInputError: The rows do not fit the table, or the fences are not possible.
        """
        check_fences(fences, self)
        rows = self.conform(table, data)
        made = stamp(fences, metadata, ahead=ahead)
        if rows.num_rows == 0 and not fences and not ahead:
            # Spark would make no version of it, delta-rs one: the same for all is none.
            return Commit(version=None, commit_id=made.commit_id)
        settled = self._settlement(table, made, key).run(lambda: Settled(self._append(table, rows, made)), retry=True)
        return Commit(version=settled.version, commit_id=made.commit_id, replayed=settled.replayed)

    def write_ahead(self, table: str, data: pa.Table) -> Ahead | None:  # noqa: ARG002  # others have a use for them
        """Writes rows now that one `append` later takes along, so that much can become visible at once and in little memory.

        Returns:
            What to give to `append`. None where the engine cannot do this, or it would be no gain: append the rows themselves.
        """
        return None

    def drop_ahead(self, table: str, ahead: Ahead) -> None:  # noqa: B027  # nothing to do where nothing is written ahead
        """Removes what was written ahead and never given to an append."""

    @final
    def raise_fence(self, table: str, fence: Fence, *, metadata: Metadata | None = None) -> Commit | None:
        """Commits a fence without rows. Repeating it, or raising to what already stands or is passed, changes nothing.

        Returns:
            The commit, or None when the table's fence already stood at or above the version offered.
        """
        check_fences((fence,), self)
        made = stamp((fence,), metadata)
        settled = self._settlement(table, made, None).run(
            lambda: Settled(self._commit_fence(table, made)), retry=True, refused_is_none=True
        )
        if settled.refused:
            return None
        return Commit(version=settled.version, commit_id=made.commit_id, replayed=settled.replayed)

    @final
    def merge(
        self,
        table: str,
        data: pa.Table,
        merge: Merge,
        *,
        fences: Sequence[Fence] = (),
        metadata: Metadata | None = None,
        key: Mapping[str, Literal] | None = None,
    ) -> MergeCommit:
        """Merges rows in one commit: see `Merge` for what it can say. A conflict is the caller's to decide: `ConflictError`.

        A merge without effect makes no version and leaves the fence where it was.
        """
        check_fences(fences, self)
        rows = self.conform(table, data)
        check_merge(merge, rows)
        made = stamp(fences, metadata)
        settled = self._settlement(table, made, key).run(lambda: self._merge(table, rows, merge, made), retry=False)
        return MergeCommit(
            version=settled.version,
            commit_id=made.commit_id,
            replayed=settled.replayed,
            inserted=settled.inserted,
            updated=settled.updated,
            deleted=settled.deleted,
        )

    @final
    def delete(
        self,
        table: str,
        where: Predicate,
        *,
        fences: Sequence[Fence] = (),
        metadata: Metadata | None = None,
    ) -> MergeCommit:
        """Deletes the rows for which `where` is true, in one commit; `ConflictError` when rows came or went meanwhile."""
        check_fences(fences, self)
        made = stamp(fences, metadata)
        settled = self._settlement(table, made, None).run(lambda: self._delete(table, where, made), retry=False)
        return MergeCommit(
            version=settled.version,
            commit_id=made.commit_id,
            replayed=settled.replayed,
            inserted=0,
            updated=0,
            deleted=settled.deleted,
        )

    # -- reading ------------------------------------------------------------------------------------------------------

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

    def create_views(self, views: Mapping[str, str], *, tables: Sequence[str]) -> None:
        """Creates or replaces views beside the tables, for everyone who can read those.

        Args:
            views: Queries by name, as for `query`.
            tables: The tables they use.

        Raises:
            InvalidInputError: Code `unsupported`: this place has no names for views.
        """
        raise InvalidInputError(
            f"{self.location!r} is a place for files: views need a schema that can hold them",
            code=ErrorCode.UNSUPPORTED,
            expected="a catalog opened by the name of a schema, on Spark",
            found=self.location,
            next_step=f"Ask through `catalog.sql`, which has all of them: {', '.join([*views, *tables][:3])}, …",
        )

    @abstractmethod
    def history(self, table: str, *, limit: int | None = None) -> list[HistoryEntry]:
        """The commits that the log still tells of, newest first."""

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

    # -- maintenance --------------------------------------------------------------------------------------------------

    @abstractmethod
    def optimize(self, table: str, *, order_by: Sequence[str] = (), metadata: Metadata | None = None) -> int | None:
        """Rewrites small files into few, near each other by `order_by`; rows stay the same. The version made, if any."""

    @abstractmethod
    def log_checkpoint(self, table: str) -> None:
        """Writes a checkpoint of the log at the newest version, so that opening the table stays quick."""

    @abstractmethod
    def clean_log(self, table: str) -> None:
        """Removes log entries older than `delta.logRetentionDuration` that a log checkpoint covers."""

    @abstractmethod
    def vacuum(
        self,
        table: str,
        *,
        older_than_hours: int | None = None,
        dry_run: bool = True,
        metadata: Metadata | None = None,
    ) -> list[str]:
        """Removes data files no version within the retention uses; their names. None: `delta.deletedFileRetentionDuration`."""

    @abstractmethod
    def restore(self, table: str, version: int, *, metadata: Metadata | None = None) -> int:
        """Makes the rows those of an earlier version, in a new version. Fences stay: only rows go back."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of what the engine holds. Tables stay."""

    @abstractmethod
    def _query(
        self, sql: str, tables: Mapping[str, int | None], views: Mapping[str, str], known: Sequence[str]
    ) -> pa.Table:
        """See `query`; `known` is for messages."""

    # -- what an engine supplies for writing --------------------------------------------------------------------------
    # Each returns the version made, or raises one of `settle`'s three signals, or an error before anything was written.

    @abstractmethod
    def _append(self, table: str, rows: pa.Table, made: Stamp) -> int: ...

    @abstractmethod
    def _commit_fence(self, table: str, made: Stamp) -> int: ...

    @abstractmethod
    def _merge(self, table: str, rows: pa.Table, merge: Merge, made: Stamp) -> Settled: ...

    @abstractmethod
    def _delete(self, table: str, where: Predicate, made: Stamp) -> Settled: ...

    @property
    def storage_options(self) -> dict[str, str]:
        """What opens the same place elsewhere. Holds credentials: for executors and other processes, never for logs."""
        return {}

    @final
    def conform(self, table: str, data: pa.Table) -> pa.Table:
        """The rows in the table's columns and types, or `InvalidInputError`: nothing is lost by casting."""
        # Here, because Arrow takes a tenth of a second to import and the contract is imported by everyone.
        from laminar_delta.engine.arrow import conform

        return conform(data, self.schema(table), table)

    def _settlement(self, table: str, made: Stamp, key: Mapping[str, Literal] | None) -> Settlement:
        return Settlement(engine=self, table=table, made=made, key=key)
