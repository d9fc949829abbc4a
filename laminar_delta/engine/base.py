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

What can be asked of the tables is in `asking.py`. This module imports nothing heavy; Arrow, delta-rs and Spark are known to the
engines only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, final

from laminar_delta.engine.answer import Commit, MergeCommit
from laminar_delta.engine.asking import Asking
from laminar_delta.engine.request import Ahead, Fence, Merge, Stamp, TableSpec, check_fences, check_merge, stamp
from laminar_delta.engine.settle import Settled, Settlement
from laminar_delta.errors import ErrorCode, InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar_delta.engine.predicate import Literal, Predicate

Metadata = Mapping[str, object]
"""What the caller says about a commit: JSON values, kept in the log as `userMetadata`."""


class Engine(Asking):
    """A place with Delta tables. Safe to share between threads; never used across a fork."""

    name: ClassVar[str]
    """How the engine is called in `open_engine`."""
    persistent: ClassVar[bool]
    """Whether tables outlive the process."""
    many_fences: ClassVar[bool]
    """Whether one append can carry several fences."""
    holds_uploads: bool = False
    """Whether what is written ahead is in memory until all of it is uploaded."""
    beyond: ClassVar[frozenset[str]] = frozenset()
    """Public methods that this engine alone has, for `distributed`: executors hand over what they wrote."""

    # -- tables -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def create(self, spec: TableSpec) -> bool:
        """Creates a table unless it is there; safe when many come at once.

        Returns:
            Whether this call created it.

        Raises:
            FormatError: A table of that name has other columns or another partitioning.
        """

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

    def drop_ahead(self, table: str, ahead: Ahead) -> None:  # nothing to do where nothing is written ahead
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

    def flush(self, table: str, version: int) -> None:  # nothing to do where the storage sees to it
        """Makes a version durable that was found and not made here: its maker may have ended before it did.

        Raises:
            CommitUnknownError: The disk did not take it: a power loss may take the commit back.
        """

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
