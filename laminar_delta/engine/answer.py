"""What an engine answers: to a write, and to questions about a table's log and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The answer to a write."""

    version: int | None
    """A table version that holds this write: the one it made; for a replay, one in which its rows were found. None where
    nothing had to change (an append of no rows, a delete or merge without effect: no version, and no fence moves)."""
    commit_id: str
    """The id the write carries in its `userMetadata` under `commit`."""
    replayed: bool = False
    """The rows were there already: an earlier try of the same write had been committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCommit(Commit):
    """The answer to a merge; the counts tell who won an insert-only one. They are None for a replay."""

    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One commit as the table's log tells it."""

    version: int
    timestamp_ms: int
    operation: str
    metadata: Mapping[str, object] = field(default_factory=dict)
    """The parsed `userMetadata`; empty where there is none or it is not a JSON object."""
    engine_info: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a log tells, as far back as it can be read."""

    entries: list[HistoryEntry] = field(default_factory=list)
    """The newest first."""
    damage: str | None = None
    """What keeps the rest from being read, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSize:
    """How much the files of one partition take, in the newest version."""

    partition: Mapping[str, object]
    """Column to value; empty for a table without partitions."""
    files: int
    size_bytes: int
