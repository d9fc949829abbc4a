"""The commit of a session: one merge, kept out unless the head row is the one the session began with, and what became of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.names import check_name, check_text
from laminar_delta.catalog.positions import Positions, compare_and_set, read_positions
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.session_log import OPERATION, find_commit
from laminar_delta.catalog.session_steps import check_same_steps
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.errors import CommitUnknownError, ConflictError, FencedError
from laminar_delta.model.ids import check_ordering_number, validate_pipeline_name

if TYPE_CHECKING:
    from laminar_delta.catalog.buffer import Buffer
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.engine.base import Engine

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

    def __post_init__(self) -> None:
        # It comes from another process, as plain values: rows under a wrong one would belong to nobody.
        validate_pipeline_name(self.pipeline)
        check_name("a session", self.session_id)
        check_ordering_number("generation", self.generation)
        check_ordering_number("ordinal", self.ordinal)
        check_text("owner", self.owner)

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

    def take_up(self, ordinal: int) -> tuple[Positions, SessionCommit | None]:
        """What is committed by now and, for a session that others have the token of, its commit if it is there.

        Raises:
            FencedError: It is not, and another writer took over.
        """
        now, landed = self._read(), None
        if (now.generation, now.ordinal) != (self.held.number, ordinal):
            # Where nobody can tell, its own commit will ask again.
            with suppress(CommitUnknownError):
                landed = self._landed(now, ordinal, sent=False)
        if landed is None:
            self._check_standing(now)
        return now, landed

    def confirm(self, buffer: Buffer, landed: SessionCommit) -> SessionCommit:
        """The commit that was there when the session was taken up, unless other steps are staged now than it has.

        None are where tasks staged them, and they were removed once they were committed.

        Raises:
            ConflictError: Other steps are. They were not written.
        """
        if not buffer.empty:
            check_same_steps(
                self.engine, self.held.pipeline, self.session_id, buffer, version=landed.version, sent=False
            )
        return landed

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
                metadata=self._metadata(buffer, ordinal + 1),
                key={"pipeline": pipeline, "session_id": self.session_id},
            )
        except ConflictError as refusal:
            return self._kept_out(buffer, ordinal, refusal)
        if made.version is None or (made.updated == 0 and not made.replayed):
            # It writes the head row, if anything.
            return self._kept_out(buffer, ordinal, None)
        if made.replayed:
            # Found by the session's id, which whoever has its token commits under too.
            check_same_steps(self.engine, self.held.pipeline, self.session_id, buffer, version=made.version, sent=True)
        return SessionCommit(session_id=self.session_id, version=made.version, replayed=made.replayed)

    def look(self, buffer: Buffer, ordinal: int, *, sent: bool) -> SessionCommit | Positions:
        """This session's commit, if it is there by now; otherwise what is committed, to try again over.

        Args:
            buffer: What is staged: a commit of other steps under the same token is not this one's.
            ordinal: Of the last commit that certainly was not this session's.
            sent: Whether a try may have been committed.

        Raises:
            ConflictError: The session was committed with other steps, by whoever has its token too.
            FencedError: It is not there, and another writer took over.
            CommitUnknownError: Nobody can tell any more.
        """
        # One read decides both: a try that arrives after it finds another head row than its own, or keeps out the next.
        now = self._read()
        landed = self._landed(now, ordinal, sent=sent)
        if landed is not None:
            check_same_steps(self.engine, now.pipeline, self.session_id, buffer, version=landed.version, sent=sent)
            return landed
        self._check_standing(now)
        return now

    def _kept_out(self, buffer: Buffer, ordinal: int, refusal: ConflictError | None) -> SessionCommit:
        now = self.look(buffer, ordinal, sent=False)
        if isinstance(now, SessionCommit):
            return now
        if now.ordinal == ordinal and isinstance(refusal, FencedError):
            # The fence is past what the rows say.
            raise self._restored(now) from refusal
        if now.ordinal == ordinal:
            raise ConflictError(
                f"session {self.session_id} on pipeline {now.pipeline!r} was kept out by another commit on the table, and no "
                f"session came before it{'' if refusal is None else f': {refusal.message}'}",
                next_step="Call `retry`: its steps still stand upon what it read.",
                details={"session": self.session_id},
            ) from refusal
        raise ConflictError(
            f"session {self.session_id} on pipeline {now.pipeline!r} began after commit {ordinal} of generation "
            f"{now.generation}, and commit {now.ordinal} came first",
            expected=ordinal,
            found=now.ordinal,
            next_step="Begin a new session, or `retry` this one if its steps do not depend on what it read.",
            details={"session": self.session_id, "winner": now.session_id},
        ) from refusal

    def _landed(self, now: Positions, ordinal: int, *, sent: bool) -> SessionCommit | None:
        version = find_commit(
            self.engine, now, self.session_id, generation=self.held.number, ordinal=ordinal, sent=sent
        )
        if version is None:
            return None
        # Whoever made it may have ended before it was flushed, or been told that it could not be.
        self.engine.flush(SOURCE_CHECKPOINTS.name, version)
        return SessionCommit(session_id=self.session_id, version=version, replayed=True)

    def _check_standing(self, now: Positions) -> None:
        if now.generation > self.held.number:
            raise FencedError(
                f"session {self.session_id} on pipeline {now.pipeline!r}: generation {self.held.number} of "
                f"{self.held.owner!r} was taken over by generation {now.generation}",
                expected=self.held.number,
                found=now.generation,
            )
        if now.generation < self.held.number:
            raise self._restored(now) if now.generation else self._never_taken(now)

    def _restored(self, now: Positions) -> FencedError:
        return FencedError(
            f"{SOURCE_CHECKPOINTS.name!r} has gone back to commit {now.ordinal} of generation {now.generation} of pipeline "
            f"{now.pipeline!r}: somebody restored or changed it, and generation {self.held.number} is not in step with it",
            expected=self.held.number,
            found=now.generation,
            next_step="Open a new store: it takes a new generation and goes on from what is there.",
        )

    def _never_taken(self, now: Positions) -> FencedError:
        return FencedError(
            f"pipeline {now.pipeline!r} has no generation in this catalog, so not {self.held.number} either: nobody took "
            "one, or its positions were given up since",
            expected=self.held.number,
            found=None,
            next_step="Check the catalog, the pipeline's name and the token or generation. To begin here, open a store without "
            "a generation: it takes one.",
        )

    def _read(self) -> Positions:
        return read_positions(Reading(self.engine), self.held.pipeline)

    def _metadata(self, buffer: Buffer, ordinal: int) -> dict[str, object]:
        touched = sorted(buffer.sources)
        return {
            "operation": OPERATION,
            "pipeline": self.held.pipeline,
            "session": self.session_id,
            "generation": self.held.number,
            "ordinal": ordinal,
            "owner": self.held.owner,
            "sources": len(touched),
            **({"names": touched} if len(touched) <= FEW_NAMES else {}),
            **({"cleared": True} if buffer.cleared else {}),
        }
