"""Rows that somebody took out of a table of ours, looked for in the versions before the commits that may have done it.

We only append to `manifests` and `retention`, and delete what was decided to be removed. Any other commit may have taken rows
away (DELETE, UPDATE, MERGE, RESTORE, an overwrite), and the version before it still has them as long as log and files are kept.
It needs no entry of the log from when they were written: those may have been cleaned away long before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laminar_delta.catalog.reading import COMPACTION, REMOVAL, raise_unless_damage
from laminar_delta.engine.request import COMMIT_KEY, FENCES_KEY
from laminar_delta.errors import CorruptionError, NotFoundError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.request import TableSpec

_WRITE = "WRITE"
_KEEP_ROWS = (COMPACTION, "VACUUM", "CREATE TABLE", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES")
"""How the operations begin, in Delta's words, that leave all rows as they are."""


@dataclass(slots=True)
class Taken:
    """What the versions before losses have."""

    rows: list[tuple[int, Row]] = field(default_factory=list)
    """With the version they were found in, the newest first."""
    unread: list[str] = field(default_factory=list)
    """The losses behind which nobody can look any more, in words."""
    unread_until_ms: int = 0
    """When the newest of those was; what was written later is not missing because of it."""


def fences_told(entries: Iterable[HistoryEntry], application_id: str) -> list[int]:
    """The versions at which commits raised the fence of an application, as they told in the log."""
    carried = (entry.metadata.get(FENCES_KEY) for entry in entries)
    found = (fences.get(application_id) for fences in carried if isinstance(fences, dict))
    return [version for version in found if isinstance(version, int)]


def taken_rows(
    reading: Reading, spec: TableSpec, entries: Iterable[HistoryEntry], read: Callable[[Reading], Iterable[Row]]
) -> Taken:
    """What `read` finds in the version before each commit that may have taken rows away."""
    taken = Taken()
    for entry in losses(entries):
        before = entry.version - 1
        try:
            found = list(read(reading.with_version(spec.name, before)))
        except (StorageError, CorruptionError, NotFoundError) as error:
            raise_unless_damage(error)
            taken.unread.append(
                f"version {entry.version} of {spec.name} ({entry.operation}) may have taken rows out, "
                f"and the version before it cannot be read: {error.message}"
            )
            taken.unread_until_ms = max(taken.unread_until_ms, entry.timestamp_ms)
            continue
        taken.rows.extend((before, row) for row in found)
    return taken


def losses(entries: Iterable[HistoryEntry]) -> Iterator[HistoryEntry]:
    """The commits among some that may have taken rows away."""
    for entry in entries:
        ours = COMMIT_KEY in entry.metadata
        if entry.version == 0 or entry.operation.startswith(_KEEP_ROWS):
            continue
        # An engine of ours never overwrites; what others call a write may replace the table.
        if ours and (entry.operation == _WRITE or entry.metadata.get("operation") == REMOVAL):
            continue
        yield entry
