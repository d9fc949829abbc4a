"""What became of a statement that returned: the version it made, or the fence that kept it out.

Spark skips a write whose fence does not rise, and says nothing. So every write carries an id in its metadata and is looked for
in the log: in the files where they are on this machine's disk, in milliseconds, and by DESCRIBE HISTORY elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from laminar_delta.engine.local import durability
from laminar_delta.engine.request import COMMIT_KEY, Stamp
from laminar_delta.engine.settle import HISTORY_WINDOW, FenceRefused, OutcomeUnknown
from laminar_delta.engine.spark import files
from laminar_delta.errors import LaminarDeltaError

if TYPE_CHECKING:
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.spark.places import Places

_STEPS = (20, HISTORY_WINDOW)
"""How many commits back a commit just made is looked for: it is among the newest unless many write at once."""


class Commits:
    """The commits of one engine. `before` is always the newest version before the statement, None for tables elsewhere."""

    def __init__(self, places: Places, history: Callable[[str, int], list[HistoryEntry]]) -> None:
        self._places = places
        self._history = history

    def made(self, table: str, stamp: Stamp, before: int | None) -> int | None:
        """The version a stamped statement made, flushed where it is local; None when it made none."""
        try:
            version = self.find(table, stamp, before)
        except (LaminarDeltaError, OSError) as error:
            # Not being able to look is no failure of the commit: `settle` looks again.
            raise OutcomeUnknown(f"it returned, but the log cannot be read: {error}", may_still_land=False) from error
        directory = self._places.directory(table)
        if version is not None and before is not None and directory is not None:
            for number in range(before + 1, version + 1):
                durability.acknowledge(table, directory, number)
            files.flush_log_checkpoint(directory, version)
        return version

    def find(self, table: str, stamp: Stamp, before: int | None) -> int | None:
        """The version of a stamped statement."""
        directory = self._places.directory(table)
        if directory is not None and before is not None:
            return files.find_commit(directory, stamp, before)
        for limit in _STEPS:
            for entry in self._history(table, limit):
                if entry.metadata.get(COMMIT_KEY) == stamp.commit_id:
                    return entry.version
        return None

    def skipped(self, table: str, stamp: Stamp, before: int | None) -> Exception:
        """The signal for a statement that returned and made no version where it should have."""
        if not stamp.fences:
            return OutcomeUnknown("it returned, but the log does not show it", may_still_land=before is None)
        names = [fence.application_id for fence in stamp.fences]
        directory = self._places.directory(table)
        if directory is not None:
            return FenceRefused(files.standing_fences(directory, names))
        try:
            return FenceRefused(files.fences_told(self._history(table, HISTORY_WINDOW), names))
        except LaminarDeltaError:
            return FenceRefused(dict.fromkeys(names))
