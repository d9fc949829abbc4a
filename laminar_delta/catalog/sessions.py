"""Sessions: begin, stage, then commit everything at once or nothing.

A session sees the pipeline as it was when it began, with its own steps laid over. What it stages stays in memory until the
commit, one merge on one table; that merge happens only if nobody committed to the pipeline since the session began, and only
under the generation that holds it. So sessions that overlap come out as if one had run after the other: the first commits, the
other is told and keeps what it staged, to be tried again over what is committed by then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING

from laminar_delta.catalog.buffer import Buffer
from laminar_delta.catalog.names import check_text
from laminar_delta.catalog.positions import Positions
from laminar_delta.catalog.session_commit import SessionCommit, SessionCommitter, SessionToken
from laminar_delta.catalog.steps import fold_steps, read_steps
from laminar_delta.errors import CommitUnknownError, ConflictError, FencedError, SessionStateError, is_certain
from laminar_delta.model.ids import new_attempt_id

if TYPE_CHECKING:
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.source_checkpoint import SourceCheckpoint


class SessionState(Enum):
    """Where a session is in its life."""

    OPEN = "open"
    LOST = "behind another that committed first"
    UNCOMMITTED = "not committed: storage failed at the end of its block"
    IN_DOUBT = "in doubt"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    FENCED = "fenced"


_AGAIN = frozenset({SessionState.LOST, SessionState.UNCOMMITTED, SessionState.IN_DOUBT})
"""Those in which what was staged is kept, to be tried again."""


class Session:
    """One unit of work on a pipeline's positions. For one thread at a time; leaving its `with` block commits."""

    def __init__(self, engine: Engine, held: Generation, *, token: SessionToken | None = None) -> None:
        """Begins a session behind the fence of a generation.

        Args:
            engine: Where.
            held: Under which generation it commits.
            token: Takes up a session that another process began.

        Raises:
            FencedError: Another writer took over.
        """
        self._engine = engine
        self._held = held
        self._id = new_attempt_id() if token is None else token.session_id
        self._committer = SessionCommitter(engine, held, self._id)
        self._taken_up: SessionCommit | None = None
        if token is None:
            self._base = self._committer.read()
            self._ordinal = self._base.ordinal
        else:
            self._base, self._taken_up = self._committer.take_up(token.ordinal)
            self._ordinal = token.ordinal
        self._buffer = Buffer()
        self._state = SessionState.OPEN
        self._entered = False
        self._depth = 0
        # For its ends alone: the store may be closed in another thread.
        self._turn = threading.RLock()
        self._closed = False
        self._cut_off = False
        """Whether its store was closed while something was staged, so that its block does not end as if that were committed."""

    @property
    def id(self) -> str:
        """Names the session in rows, in the log and for tasks that stage for it."""
        return self._id

    @property
    def state(self) -> SessionState:
        """Where it is in its life."""
        return self._state

    @property
    def token(self) -> SessionToken:
        """What other processes need to stage for this session."""
        return SessionToken(
            pipeline=self._held.pipeline,
            session_id=self._id,
            generation=self._held.number,
            ordinal=self._ordinal,
            owner=self._held.owner,
        )

    # -- staging ------------------------------------------------------------------------------------------------------

    def stage(self, source: str, sequence: int, position: bytes | None = None, *, after: int | None = None) -> None:
        """Stages how far a source was processed. The last of several counts; the sequence may go backwards.

        Args:
            source: Which.
            sequence: Of the last event processed.
            position: Where the source resumes. None removes a stored one; no bytes at all are a position.
            after: The sequence the source must stand at (0: none yet), so that an event that failed is not passed over.

        Raises:
            InvalidInputError: The position is beyond the limit. What was staged or stored before stands.
            ConflictError: The source does not stand at `after`.
        """
        self._check_open()
        self._expect(source, after)
        self._buffer.stage(source, sequence, position)

    def advance(self, source: str, sequence: int, *, after: int | None = None) -> None:
        """Stages a sequence and leaves the position as it is: for an event whose position is missing or too long."""
        self._check_open()
        self._expect(source, after)
        self._buffer.advance(self._stands, source, sequence)

    def write_config_hash(self, config_hash: int) -> None:
        """Stages the hash of the configuration that the positions belong to."""
        self._check_open()
        self._buffer.stage_config_hash(config_hash)

    def write_result_sequence(self, query: str, sequence: int) -> None:
        """Stages the sequence of a query's last result.

        Raises:
            ConflictError: It is below the stored one. Only a clear starts it anew.
        """
        self._check_open()
        self._buffer.stage_result(self._stands, query, sequence)

    def clear(self) -> None:
        """Stages that everything goes: positions, result sequences, config hash. What is staged afterwards comes anew."""
        self._check_open()
        self._buffer.clear()

    def stage_table(self, rows: object) -> int:
        """Stages many steps at once: an Arrow table, a Spark DataFrame, or anything Arrow takes. How many rows it had.

        See `catalog/steps.py` for the columns, and for which of several rows for one source counts.

        Raises:
            InvalidInputError: A row is no step. None was staged.
        """
        self._check_open()
        folded = fold_steps(rows)
        # On a copy: all of them, or none.
        fresh = self._buffer.copy()
        folded.stage(fresh, self._stands)
        self._buffer = fresh
        return folded.rows

    def take_steps(self) -> int:
        """Stages what tasks have staged under this session's token so far. How many rows that were.

        Raises:
            FencedError: Another writer took over, and may have removed them.
        """
        self._check_open()
        steps = read_steps(self._engine, self.token)
        if self._taken_up is None:
            with self._ending():
                self._committer.read()
        return self.stage_table(steps)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """A part of the session that is undone by itself when it fails; it commits with the whole, never before."""
        self._check_open()
        outer = self._buffer.copy()
        self._depth += 1
        try:
            yield
        except BaseException:
            self._buffer = outer
            raise
        finally:
            self._depth -= 1

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, source: str) -> SourceCheckpoint | None:
        """A source as this session sees it: its own steps over what was committed when it began."""
        self._check_open()
        return self._buffer.source(self._base, check_text("source", source))

    def read_all(self) -> dict[str, SourceCheckpoint]:
        """All sources as this session sees them."""
        self._check_open()
        return self._buffer.sources_over(self._base)

    def read_config_hash(self) -> int | None:
        """The config hash as this session sees it."""
        self._check_open()
        return self._buffer.hash_over(self._base)

    def read_result_sequence(self, query: str) -> int | None:
        """A query's result sequence as this session sees it."""
        self._check_open()
        return self._buffer.result(self._base, check_text("query", query))

    def is_empty(self) -> bool:
        """Whether this session sees no position and no result sequence at all."""
        self._check_open()
        return self._buffer.is_empty_over(self._base)

    # -- ending -------------------------------------------------------------------------------------------------------

    def commit(self) -> SessionCommit:
        """Makes everything staged visible at once, and ends the session.

        Raises:
            ConflictError: Another session committed since this one began, or this one was committed with other steps by
                whoever has its token too. Nothing was written; after the first `retry` tries again.
            FencedError: Another writer took over. Nothing was written, and nothing will be.
            CommitUnknownError: It may have been committed; `retry` finds out.
        """
        with self._turn:
            self._check_open()
            return self._commit()

    def retry(self) -> SessionCommit:
        """Commits the same steps again, over what is committed by now; after a lost race, an unknown outcome, or a block that
        storage did not let commit.

        For steps that do not depend on what this session read. Where they do, begin a new session.

        Raises:
            ConflictError: Lost again, or a step's own condition does not hold any more.
        """
        with self._turn:
            if self._state not in _AGAIN:
                raise self._unusable("only a session that lost, is in doubt, or was left uncommitted, is tried again")
            with self._ending():
                # Also one that lost: whoever has the same token may have committed it since.
                found = self._committer.look(self._buffer, self._ordinal, sent=self._state is SessionState.IN_DOUBT)
                if isinstance(found, SessionCommit):
                    self._state = SessionState.COMMITTED
                    return found
                if self._closed:
                    raise self._given_up(found)
                self._buffer.lay_over(found)
                self._base, self._ordinal = found, found.ordinal
            return self._commit()

    def rollback(self) -> None:
        """Forgets everything staged, and ends the session. Doing so twice changes nothing."""
        with self._turn:
            if self._state in (SessionState.COMMITTED, SessionState.IN_DOUBT):
                raise self._unusable("what may be committed cannot be undone")
            if self._state is not SessionState.FENCED:
                self._state = SessionState.ROLLED_BACK
            self._buffer = Buffer()

    def close(self) -> None:
        """Ends it with its store: rolled back unless it may be committed; then `retry` still looks, and commits nothing."""
        with self._turn:
            self._closed = True
            self._cut_off = self._state is SessionState.OPEN and not self._buffer.empty
            if self._state not in (SessionState.COMMITTED, SessionState.IN_DOUBT):
                self.rollback()

    def __enter__(self) -> Session:
        self._check_open()
        if self._entered:
            raise SessionStateError(
                f"session {self._id} is in use already", next_step="Use `nested` for a part of it that may fail."
            )
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and self._cut_off:
            raise self._unusable(
                "its store was closed before the end of its block, and nothing that it staged is committed"
            )
        if self._state is not SessionState.OPEN:
            return
        if kind is not None:
            self.rollback()
            return
        try:
            self.commit()
        except BaseException:
            if self._state is SessionState.OPEN:
                # Nobody can use it as an open one any more, and as such it would keep others out of its thread.
                self._state = SessionState.UNCOMMITTED
            raise

    # -- inside -------------------------------------------------------------------------------------------------------

    def _commit(self) -> SessionCommit:
        if self._depth:
            raise SessionStateError(
                f"session {self._id} has a nested part open", next_step="Leave it first: it commits with the whole."
            )
        if self._taken_up is not None:
            with self._ending():
                made = self._committer.confirm(self._buffer, self._taken_up)
                self._state = SessionState.COMMITTED
            return made
        if self._buffer.empty:
            self._state = SessionState.COMMITTED
            return SessionCommit(session_id=self._id, version=None)
        with self._ending():
            try:
                made = self._committer.commit(self._buffer, self._base, self._ordinal)
                self._state = SessionState.COMMITTED
            except BaseException as error:
                if not is_certain(error):
                    # Interrupted between the commit and its answer: nobody is to take what is visible for rolled back.
                    self._state = SessionState.IN_DOUBT
                raise
        return made

    @property
    def _stands(self) -> Positions:
        """What steps go by. Those of a session that is committed already went by what was there then: by nothing now."""
        return self._base if self._taken_up is None else Positions(pipeline=self._base.pipeline)

    def _expect(self, source: str, after: int | None) -> None:
        if self._taken_up is None:
            self._buffer.expect(self._base, source, after)

    def _given_up(self, now: Positions) -> SessionStateError:
        """What `retry` says of a session that is not there, and whose store is closed."""
        if now.ordinal != self._ordinal:
            # Nothing that is under way still can land upon another head row.
            self._state, self._buffer = SessionState.ROLLED_BACK, Buffer()
        return SessionStateError(
            f"session {self._id} is not committed by now, and its store is closed: it is not tried again",
            expected="an open store",
            found=self._state.value,
            next_step="Begin a new session on a store that is open.",
        )

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Within: what is raised decides what the session is from then on. Any other error leaves it as it was."""
        try:
            yield
        except FencedError:
            self._state = SessionState.FENCED
            raise
        except ConflictError:
            self._state = SessionState.LOST
            raise
        except CommitUnknownError:
            self._state = SessionState.IN_DOUBT
            raise

    def _check_open(self) -> None:
        if self._state is not SessionState.OPEN:
            raise self._unusable("it cannot be used any more")

    def _unusable(self, why: str) -> SessionStateError:
        return SessionStateError(
            f"session {self._id} is {self._state.value}: {why}",
            expected=SessionState.OPEN.value,
            found=self._state.value,
            next_step="Call `retry`, or begin a new session." if self._state in _AGAIN else "Begin a new session.",
        )
