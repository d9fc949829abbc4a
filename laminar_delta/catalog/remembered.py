"""Decisions that were read and found sound, kept so that the next look reads only what came since.

A pipeline has as many decisions as it ever made, and every save asks for them. They are kept beside the engine they were read
with and never beyond it. What is kept tells the commit it is as of, and is good only as long as the log goes on from that very
commit: not in a table that was made anew at the same place, or brought back from a copy, nor after a commit that may have taken
rows out.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from laminar_delta.catalog.losses import losses
from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.tables import RETENTION
from laminar_delta.engine.request import COMMIT_KEY
from laminar_delta.engine.settle import HISTORY_WINDOW
from laminar_delta.errors import CorruptionError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.standing import Standing
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.base import Engine

MOST_DECISIONS = 1_000_000
"""How many are kept beside one engine, of all pipelines: some hundred bytes each."""

_AT_ONCE = 2
"""How many entries of the log are asked for first: as a rule nobody decided since the last look."""
_SLACK = 8
"""How many more are asked for than were missing: others may commit in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A pipeline's decisions as of some commit."""

    seen: Standing
    at: HistoryEntry
    """The newest commit when they were read; they may have some that came right after it."""
    searched: bool
    """Whether the log was searched for decisions whose end was taken out; see `standing`."""


class Memory:
    """What is kept beside one engine, the least recently used given up first. Safe between threads."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._kept: OrderedDict[str, Remembered] = OrderedDict()

    def recall(self, pipeline: str) -> Remembered | None:
        """What is kept of a pipeline."""
        with self._turn:
            found = self._kept.get(pipeline)
            if found is not None:
                self._kept.move_to_end(pipeline)
            return found

    def keep(self, pipeline: str, found: Remembered) -> None:
        """Keeps it in place of what was kept before."""
        with self._turn:
            self._kept[pipeline] = found
            self._kept.move_to_end(pipeline)
            while len(self._kept) > 1 and sum(kept.seen.last + 1 for kept in self._kept.values()) > MOST_DECISIONS:
                self._kept.popitem(last=False)

    def forget(self, pipeline: str) -> None:
        """Keeps nothing of a pipeline."""
        with self._turn:
            self._kept.pop(pipeline, None)


_MEMORIES: WeakKeyDictionary[Engine, Memory] = WeakKeyDictionary()
_MEMORIES_TURN = threading.Lock()


def memory_of(engine: Engine) -> Memory:
    """What is kept beside an engine; it goes with it."""
    with _MEMORIES_TURN:
        found = _MEMORIES.get(engine)
        if found is None:
            found = _MEMORIES[engine] = Memory()
        return found


def newest_commits(reading: Reading, limit: int = _AT_ONCE) -> list[HistoryEntry]:
    """The newest commits to `retention`, as far as they can be read; none is no reason to fail: everything is read then."""
    try:
        return reading.history(RETENTION, limit=limit).entries
    except (StorageError, CorruptionError) as error:
        raise_unless_damage(error)
        return []


def commits_since(reading: Reading, known: Remembered, newest: list[HistoryEntry]) -> list[HistoryEntry] | None:
    """The commits after those that are remembered, newest first; None when what is remembered must not be relied on.

    Args:
        reading: Where.
        known: What is remembered.
        newest: The newest commits there are.
    """
    behind = newest[0].version - known.at.version if newest else -1
    if not 0 <= behind <= HISTORY_WINDOW:
        return None
    if newest[-1].version > known.at.version:
        newest = newest_commits(reading, behind + 1 + _SLACK)
    since = [entry for entry in newest if entry.version > known.at.version]
    same = [entry for entry in newest if entry.version == known.at.version]
    if [_mark(entry) for entry in same] != [_mark(known.at)] or any(losses(since)):
        return None
    return since


def _mark(entry: HistoryEntry) -> tuple[int, object]:
    """What tells a commit from any other under the same number."""
    return entry.version, entry.metadata.get(COMMIT_KEY) or entry.timestamp_ms
