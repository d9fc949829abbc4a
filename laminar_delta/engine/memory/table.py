"""A Delta table in miniature: immutable fragments, numbered versions, and optimistic commits.

A fragment is what a data file is to Delta. A version is the set of live fragments, the fences, and a history entry. A commit is
prepared on a snapshot without any lock and then checked, in one short critical section, against whatever was committed since:
exactly the way Delta does it, so that conflicts and races are real here too.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laminar_delta.engine.answer import HistoryEntry
from laminar_delta.engine.request import Fence, TableSpec, parse_user_metadata
from laminar_delta.engine.settle import FenceRefused, WriteConflict
from laminar_delta.errors import ErrorCode, NotFoundError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar_delta.engine.request import Stamp


@dataclass(frozen=True, slots=True)
class Version:
    """One version: which fragments are live, where the fences stand, and what the log says."""

    entry: HistoryEntry
    fragments: frozenset[int]
    fences: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a commit wants to do, prepared on a snapshot."""

    operation: str
    added: pa.Table | None = None
    removed: frozenset[int] = frozenset()
    read: Callable[[pa.Table], bool] | None = None
    """Whether rows that came meanwhile would have changed this commit; None for a blind append."""
    live: frozenset[int] | None = None
    """The live fragments afterwards, where they do not follow from `added` and `removed`."""


@dataclass(slots=True)
class MemoryTable:
    """A table's versions and fragments."""

    spec: TableSpec
    schema: pa.Schema
    clock_ms: Callable[[], int]
    versions: dict[int, Version] = field(default_factory=dict)
    fragments: dict[int, pa.Table] = field(default_factory=dict)
    removed_at_ms: dict[int, int] = field(default_factory=dict)
    log_checkpoints: set[int] = field(default_factory=set)
    _commit: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def newest(self) -> Version:
        """The current version."""
        return self.versions[max(self.versions)]

    def at(self, version: int | None) -> Version:
        """A version, the newest by default; `NotFoundError` (code `version-gone`) once the log does not have it."""
        if version is None:
            return self.newest
        if version not in self.versions:
            raise NotFoundError(
                f"table {self.spec.name!r} has no version {version} (any more)",
                code=ErrorCode.VERSION_GONE,
                expected=version,
                found=sorted(self.versions),
            )
        return self.versions[version]

    def rows(self, fragment: int) -> pa.Table:
        """A fragment's rows; `StorageError` (code `file-missing`) once vacuumed away."""
        if fragment not in self.fragments:
            raise StorageError(
                f"a data file of table {self.spec.name!r} is missing: fragment {fragment}",
                code=ErrorCode.FILE_MISSING,
                found=fragment,
            )
        return self.fragments[fragment]

    def commit(self, snapshot: Version, change: Change, made: Stamp) -> int:
        """Commits a change prepared on `snapshot`, or raises one of `settle`'s signals."""
        with self._commit:
            current = self.newest
            self._check_fences(snapshot, current, made.fences)
            self._check_conflicts(snapshot, current, change)
            live = set(current.fragments - change.removed if change.live is None else change.live)
            if change.added is not None and change.added.num_rows:
                number = next(self._numbers)
                self.fragments[number] = change.added
                live.add(number)
            now = max(self.clock_ms(), current.entry.timestamp_ms)
            self.removed_at_ms.update(dict.fromkeys(current.fragments - live, now))
            entry = HistoryEntry(
                version=current.entry.version + 1,
                timestamp_ms=now,
                operation=change.operation,
                metadata=parse_user_metadata(made.user_metadata),
                engine_info="laminar_delta:memory",
            )
            fences = {**current.fences, **{fence.application_id: fence.version for fence in made.fences}}
            self.versions[entry.version] = Version(entry, frozenset(live), fences)
            return entry.version

    def _check_fences(self, snapshot: Version, current: Version, fences: tuple[Fence, ...]) -> None:
        standing: dict[str, int | None] = {
            fence.application_id: current.fences[fence.application_id]
            for fence in fences
            if current.fences.get(fence.application_id, -1) >= fence.version
        }
        if standing:
            raise FenceRefused(standing)
        for fence in fences:
            name = fence.application_id
            if current.fences.get(name) != snapshot.fences.get(name):
                raise WriteConflict(f"another commit under {name!r} came first")

    def _check_conflicts(self, snapshot: Version, current: Version, change: Change) -> None:
        if change.removed - current.fragments:
            raise WriteConflict("a concurrent commit removed rows this one rewrites")
        if change.read is None:
            return
        for fragment in current.fragments - snapshot.fragments:
            if change.read(self.fragments[fragment]):
                raise WriteConflict("a concurrent commit added rows this one would have read")

    def restore(self, version: Version, made: Stamp) -> int:
        """Makes the live fragments those of `version`, in a new version; fences stay."""
        for fragment in version.fragments:
            self.rows(fragment)
        return self.commit(self.newest, Change(operation="RESTORE", live=version.fragments), made)
