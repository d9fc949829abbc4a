"""What became of a write: the one place that turns an engine's signals into an answer.

An error is no proof of failure: a commit can land and its answer be lost, and both engines have been seen to report "conflict"
for a row that is in the table. So after any signal other than success the table is read back before anything is said:

    signal                  rows found      rows absent
    FenceRefused            replayed        FencedError
    WriteConflict           replayed        retry (append) or ConflictError (merge, delete)
    OutcomeUnknown          replayed        StorageError when nothing can land any more, FencedError when a later commit
                                            under the same fence makes the absence final, else CommitUnknownError
    read-back itself fails  CommitUnknownError

What is found is flushed before it is answered, as what is made is. A damaged log entry is read up to: what is found above it
counts, and that nothing is there only where the engine refused before it wrote.

Rows are looked for by the commit id in the log first (exact, and the only way for a commit without rows), then by the
caller's key (for a retry by another process, whose commit id is another).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.engine.predicate import equals
from laminar_delta.engine.request import COMMIT_KEY, FENCES_KEY
from laminar_delta.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorCode,
    FencedError,
    LaminarDeltaError,
    StorageError,
)

if TYPE_CHECKING:
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.predicate import Literal
    from laminar_delta.engine.request import Stamp

HISTORY_WINDOW = 200
"""How many commits back a commit id is looked for: far more than can come between a write and its read-back."""

CONFLICT_RETRIES = 50
"""How often an append is tried again after a conflict. Appends conflict only with maintenance and, on delta-rs, with deletes
that rewrite files, so this is a guard against an endless loop rather than a budget."""


class FenceRefused(Exception):  # noqa: N818  # a signal inside the engines, never an answer
    """Signal: a fence stands at or above what was offered. Carries application id to the standing version (None: not told)."""

    def __init__(self, standing: Mapping[str, int | None]) -> None:
        super().__init__(str(dict(standing)))
        self.standing = dict(standing)


class WriteConflict(Exception):  # noqa: N818  # a signal inside the engines, never an answer
    """Signal: the engine reports that another commit came between. Its own words, the foreign error chained."""


class OutcomeUnknown(Exception):  # noqa: N818  # a signal inside the engines, never an answer
    """Signal: the commit call failed without saying whether it had committed."""

    def __init__(self, message: str, *, may_still_land: bool) -> None:
        super().__init__(message)
        self.may_still_land = may_still_land
        """Whether a request could be under way that commits later: true across a network, false once a local call returned."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What a write came to."""

    version: int | None
    replayed: bool = False
    refused: bool = False
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """One write being settled."""

    engine: Engine
    table: str
    made: Stamp
    key: Mapping[str, Literal] | None

    def run(self, write: Callable[[], Settled], *, retry: bool, refused_is_none: bool = False) -> Settled:
        """Runs `write` until it can be answered.

        Args:
            write: One try. It checks the fences anew each time.
            retry: Whether a conflict is retried here; otherwise it is the caller's to decide.
            refused_is_none: A fence that already stands is an answer, not an error.
        """
        for _ in range(CONFLICT_RETRIES):
            try:
                return write()
            except FenceRefused as signal:
                # The engine refused before it wrote, so a log that tells less than all of it hides nothing of this write.
                landed = self._landed(signal, sent=False)
                if landed is not None:
                    return landed
                if refused_is_none:
                    return Settled(None, refused=True)
                raise self._fenced(signal.standing) from signal.__cause__
            except WriteConflict as signal:
                landed = self._landed(signal)
                if landed is not None:
                    return landed
                if not retry:
                    raise self._conflict(signal) from signal
                last = signal
            except OutcomeUnknown as signal:
                landed = self._landed(signal)
                if landed is not None:
                    return landed
                if not signal.may_still_land:
                    raise self._failed(signal) from signal.__cause__
                standing = self._standing_above(signal)
                if standing:
                    raise self._fenced(standing) from signal.__cause__
                raise self._unknown(signal) from signal.__cause__
        raise self._conflict(last) from last

    def _landed(self, signal: Exception, *, sent: bool = True) -> Settled | None:
        """The write as found in the table, or None when it is not there. Not being able to look is not the same."""
        try:
            found = self._look(sent=sent)
        except (LaminarDeltaError, OSError) as error:
            raise self._unknown(signal, error) from error
        if found is not None and found.version is not None:
            # Whoever made it may have ended before it was flushed.
            self.engine.flush(self.table, found.version)
        return found

    def _look(self, *, sent: bool) -> Settled | None:
        told = self.engine.told_history(self.table, limit=HISTORY_WINDOW)
        for entry in told.entries:
            if entry.metadata.get(COMMIT_KEY) == self.made.commit_id:
                return Settled(entry.version, replayed=True)
        where = equals(self.key) if self.key else None
        if where is not None:
            version = self.engine.version(self.table)
            found = self.engine.read(self.table, columns=list(self.key or ()), where=where, version=version)
            if found.num_rows:
                return Settled(self._version_under_same_fences(told.entries) or version, replayed=True)
        if sent and told.damage is not None:
            # The entry that cannot be read may be this one.
            raise StorageError(told.damage, code=ErrorCode.LOG_DAMAGED)
        return None

    def _version_under_same_fences(self, history: list[HistoryEntry]) -> int | None:
        """The version an equal commit made earlier: each fence version is committed once, so its fences name it."""
        fences = {fence.application_id: fence.version for fence in self.made.fences}
        if not fences:
            return None
        return next((entry.version for entry in history if entry.metadata.get(FENCES_KEY) == fences), None)

    def _standing_above(self, signal: Exception) -> dict[str, int | None]:
        """Fences of this write that a later commit holds, as far as the log tells."""
        offered = {fence.application_id: fence.version for fence in self.made.fences}
        standing: dict[str, int | None] = {}
        try:
            entries = self.engine.told_history(self.table, limit=HISTORY_WINDOW).entries
        except (LaminarDeltaError, OSError) as error:
            # Told as it is, this would pass for the answer to the write, which may still land.
            raise self._unknown(signal, error) from error
        for entry in entries:
            carried = entry.metadata.get(FENCES_KEY)
            if not isinstance(carried, dict):
                continue
            for name, version in carried.items():
                if name in offered and name not in standing and isinstance(version, int) and version >= offered[name]:
                    standing[name] = version
        return standing

    def _details(self) -> dict[str, object]:
        return {"table": self.table, "commit": self.made.commit_id, "key": dict(self.key or {})}

    def _fenced(self, standing: Mapping[str, int | None]) -> FencedError:
        offered = {fence.application_id: fence.version for fence in self.made.fences}
        told = ", ".join(
            f"{name!r} offers {offered[name]}, {'a version at or above it' if found is None else found} stands"
            for name, found in standing.items()
        )
        return FencedError(
            f"fenced on table {self.table!r}: {told}",
            expected={name: offered[name] for name in standing},
            found=dict(standing),
            details=self._details(),
        )

    def _conflict(self, signal: Exception) -> ConflictError:
        return ConflictError(f"table {self.table!r} changed meanwhile: {signal}", details=self._details())

    def _failed(self, signal: OutcomeUnknown) -> StorageError:
        return StorageError(
            f"write to table {self.table!r} failed, nothing was committed: {signal}", details=self._details()
        )

    def _unknown(self, signal: Exception, unread: Exception | None = None) -> CommitUnknownError:
        why = f"{signal}; reading back: {unread}" if unread is not None else str(signal)
        return CommitUnknownError(
            f"whether the write to table {self.table!r} was committed is not known: {why}", details=self._details()
        )
