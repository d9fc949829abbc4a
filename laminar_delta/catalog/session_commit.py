"""The commit of a session: one merge, kept out unless the head row is the one the session began with, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.positions import Positions, compare_and_set, read_positions
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.settle import HISTORY_WINDOW
from laminar_delta.errors import ConflictError, FencedError

if TYPE_CHECKING:
    from laminar_delta.catalog.buffer import Buffer
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.base import Engine

OPERATION = "session"
"""What a session commit calls itself in the log."""

FEW_NAMES = 20
"""Up to how many sources a commit names in the log; beyond, it only counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionToken:
    """A session as other processes know it: enough to stage for it, or to commit it."""

    pipeline: str
    session_id: str
    generation: int
    ordinal: int
    """Of the last commit it saw: a later one means that it lost."""
    owner: str

    def to_dict(self) -> dict[str, object]:
        """The token as plain values, to pass on to another process."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCommit:
    """The answer to a session's commit."""

    session_id: str
    version: int | None
    """A version of `source_checkpoints` that holds it; None when nothing was staged."""
    replayed: bool = False
    """It was there already: an earlier try had been committed, and its answer was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One session commit as the log tells it."""

    version: int
    timestamp_ms: int
    session_id: str
    generation: int
    owner: str
    sources: int
    """How many sources it wrote."""
    names: tuple[str, ...] | None
    """Which, when they were few."""
    cleared: bool
    """Whether it removed everything that was there."""


def session_history(engine: Engine, pipeline: str, *, limit: int | None = None) -> list[SessionRecord]:
    """The session commits of a pipeline, newest first, as far as the log tells."""
    return [
        _record(entry)
        for entry in engine.history(SOURCE_CHECKPOINTS.name, limit=limit)
        if entry.metadata.get("operation") == OPERATION and entry.metadata.get("pipeline") == pipeline
    ]


@dataclass(frozen=True, slots=True)
class SessionCommitter:
    """Commits for one session, under the generation it began with."""

    engine: Engine
    held: Generation
    session_id: str

    def read(self) -> Positions:
        """What is committed by now.

        Raises:
            FencedError: Under another generation than the session's.
        """
        now = self._read()
        self._check_standing(now)
        return now

    def commit(self, buffer: Buffer, base: Positions, ordinal: int) -> SessionCommit:
        """Commits what is staged, if the commit numbered `ordinal` is still the last one.

        Raises:
            ConflictError: It is not; nothing was written.
            FencedError: Another writer took over; nothing was written.
            CommitUnknownError: It may have been committed.
        """
        pipeline = self.held.pipeline
        try:
            made = self.engine.merge(
                SOURCE_CHECKPOINTS.name,
                buffer.rows(base, self.session_id, self.held.owner),
                compare_and_set(pipeline, self.held.number, ordinal),
                # The head row decides. The fence is for what rows cannot tell: it stays when the table is restored.
                fences=[self.held.fence(ordinal + 1)],
                metadata=self._metadata(buffer),
                key={"pipeline": pipeline, "session_id": self.session_id},
            )
        except ConflictError as refusal:
            return self._kept_out(ordinal, refusal)
        if made.version is None:
            return self._kept_out(ordinal, None)
        return SessionCommit(session_id=self.session_id, version=made.version, replayed=made.replayed)

    def landed(self) -> SessionCommit | None:
        """This session's commit, if an earlier try of it is there."""
        return self._landed(self._read())

    def _kept_out(self, ordinal: int, refusal: ConflictError | None) -> SessionCommit:
        now = self._read()
        landed = self._landed(now)
        if landed is not None:
            return landed
        self._check_standing(now)
        if now.ordinal == ordinal and isinstance(refusal, FencedError):
            # The fence is past what the rows say.
            raise self._restored(now) from refusal
        raise ConflictError(
            f"session {self.session_id} on pipeline {now.pipeline!r} began after commit {ordinal} of generation "
            f"{now.generation}, and commit {now.ordinal} came first",
            expected=ordinal,
            found=now.ordinal,
            next_step="Begin a new session, or `retry` this one if its steps do not depend on what it read.",
            details={"session": self.session_id, "winner": now.session_id},
        ) from refusal

    def _landed(self, now: Positions) -> SessionCommit | None:
        history = self.engine.history(SOURCE_CHECKPOINTS.name, limit=HISTORY_WINDOW)
        for entry in history:
            if entry.metadata.get("session") == self.session_id:
                return SessionCommit(session_id=self.session_id, version=entry.version, replayed=True)
        # Committed by a statement that said nothing about itself.
        if now.session_id == self.session_id:
            return SessionCommit(session_id=self.session_id, version=history[0].version, replayed=True)
        return None

    def _check_standing(self, now: Positions) -> None:
        if now.generation > self.held.number:
            raise FencedError(
                f"session {self.session_id} on pipeline {now.pipeline!r}: generation {self.held.number} of "
                f"{self.held.owner!r} was taken over by generation {now.generation}",
                expected=self.held.number,
                found=now.generation,
            )
        if now.generation < self.held.number:
            raise self._restored(now)

    def _restored(self, now: Positions) -> FencedError:
        return FencedError(
            f"{SOURCE_CHECKPOINTS.name!r} has gone back to commit {now.ordinal} of generation {now.generation} of pipeline "
            f"{now.pipeline!r}: somebody restored or changed it, and generation {self.held.number} is not in step with it",
            expected=self.held.number,
            found=now.generation,
            next_step="Open a new store: it takes a new generation and goes on from what is there.",
        )

    def _read(self) -> Positions:
        return read_positions(Reading(self.engine), self.held.pipeline)

    def _metadata(self, buffer: Buffer) -> dict[str, object]:
        touched = sorted(buffer.sources)
        return {
            "operation": OPERATION,
            "pipeline": self.held.pipeline,
            "session": self.session_id,
            "generation": self.held.number,
            "owner": self.held.owner,
            "sources": len(touched),
            **({"names": touched} if len(touched) <= FEW_NAMES else {}),
            **({"cleared": True} if buffer.cleared else {}),
        }


def _record(entry: HistoryEntry) -> SessionRecord:
    said: Mapping[str, Any] = entry.metadata
    names = said.get("names")
    return SessionRecord(
        version=entry.version,
        timestamp_ms=entry.timestamp_ms,
        session_id=said["session"],
        generation=said["generation"],
        owner=said["owner"],
        sources=said["sources"],
        names=None if names is None else tuple(names),
        cleared=said.get("cleared", False),
    )
