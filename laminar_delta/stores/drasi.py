"""Drasi's `CheckpointStore` and `SessionControl` on a catalog: positions of sources, committed in sessions, without its traps.

A session is an object, not a mode of the store: nobody else sees what it staged, two of them do not mix, and every write is
part of one. A write on the store itself is a session of one step. What readers of the store see is committed, always.

The store reads without holding anything. It takes the pipeline's generation when its first session begins, which fences off the
writer before, and keeps it until `close`; several processes can share one generation.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING

from laminar_delta.catalog import generations
from laminar_delta.catalog.generations import Generation
from laminar_delta.catalog.names import check_text
from laminar_delta.catalog.pipeline import default_owner
from laminar_delta.catalog.positions import read_position, read_positions
from laminar_delta.catalog.session_commit import SessionCommit, SessionToken
from laminar_delta.catalog.session_log import SessionRecord, session_history
from laminar_delta.catalog.sessions import Session, SessionState
from laminar_delta.catalog.steps import remove_steps, write_steps
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.errors import ConflictError, FencedError, InvalidInputError, SessionStateError
from laminar_delta.model.ids import check_ordering_number, validate_pipeline_name
from laminar_delta.stores.starting import RecoveryPolicy, StartUp, after_gap, start

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.model.source_checkpoint import SourceCheckpoint

_TRIES = 100
"""How often a step by itself is tried: each race lost means that another session committed."""

_begun: ContextVar[tuple[weakref.ref[Session], ...]] = ContextVar("laminar_delta_sessions", default=())
"""The sessions begun in this thread or task; those that ended or were dropped do not count any more."""


class SourceCheckpointStore:
    """The positions of one query's sources as Drasi sees them. Safe to share between threads; sessions are not."""

    def __init__(
        self, catalog: Catalog, pipeline: str, *, owner: str | None = None, generation: int | None = None
    ) -> None:
        """Opens a store; nothing is read or written yet.

        Args:
            catalog: Where.
            pipeline: Whose positions: the query.
            owner: Who, for messages and the audit; user and process by default.
            generation: Shares this generation, taken by a writer or by another store, instead of taking the next.
        """
        self._catalog = catalog
        self._pipeline = validate_pipeline_name(pipeline)
        self._owner = check_text("owner", owner or default_owner())
        self._turn = threading.Lock()
        self._joined = generation is not None
        self._held = (
            None
            if generation is None
            else Generation(
                pipeline=self._pipeline, number=check_ordering_number("generation", generation), owner=self._owner
            )
        )
        self._closed = False
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    def is_persistent(self) -> bool:
        """Whether positions outlive the process."""
        return self._catalog.engine.persistent

    # -- sessions -----------------------------------------------------------------------------------------------------

    def session(self, token: SessionToken | None = None) -> Session:
        """Begins a session: `with store.session() as s: s.stage(...)` commits at the end, and rolls back on an exception.

        Args:
            token: Takes up a session that another process began, to commit what tasks staged for it.

        Raises:
            SessionStateError: One is open in this thread: use its `nested` for a part that may fail.
            FencedError: Another writer took over.
        """
        if token is not None:
            _check_token(token)
        self._check_outside("a session is open here already: use its `nested`")
        session = self._registered(token)
        still_open = [ref for ref in _begun.get() if (one := ref()) is not None and one.state is SessionState.OPEN]
        _begun.set((*still_open, weakref.ref(session)))
        return session

    def take_generation(self) -> int:
        """Takes the pipeline's generation unless this store has it; the number, to share with other processes."""
        return self._hold().number

    def stage_steps(self, token: SessionToken, rows: object) -> int:
        """Stages steps for a session that another process commits: see `catalog/steps.py`. How many rows.

        Needs no generation of its own: the one who began the session has it.
        """
        self._check_writable()
        _check_token(token)
        if token.pipeline != self._pipeline:
            raise InvalidInputError(
                f"session {token.session_id} is another pipeline's: no session of this one would take its steps",
                expected=self._pipeline,
                found=token.pipeline,
                next_step="Open the store of the token's pipeline.",
            )
        return write_steps(self._catalog.engine, token, rows, owner=self._owner)

    def remove_steps(self) -> int:
        """Removes staged steps that no session needs any more: those of earlier generations, and committed ones. How many.

        Takes the generation first, so whatever was staged under an earlier one goes; `Catalog.maintain` takes none.
        """
        self._hold()
        return remove_steps(self._catalog.engine, self._pipeline, owner=self._owner)

    # -- Drasi's methods ----------------------------------------------------------------------------------------------

    def stage_checkpoint(self, source: str, sequence: int, position: bytes | None = None) -> SessionCommit:
        """Commits how far a source was processed. Inside a session use the session's `stage`.

        Raises:
            InvalidInputError: The position is beyond the limit; the stored one stays.
        """
        return self._one_step(lambda session: session.stage(source, sequence, position))

    def read_checkpoint(self, source: str) -> SourceCheckpoint | None:
        """The committed position of a source; None when it has none."""
        return read_position(self._catalog.reading, self._pipeline, source)

    def read_all_checkpoints(self) -> dict[str, SourceCheckpoint]:
        """The committed positions of all sources, by name."""
        return dict(read_positions(self._catalog.reading, self._pipeline).sources)

    def clear_checkpoints(self) -> SessionCommit:
        """Removes everything in one commit: positions, result sequences and the config hash."""
        return self._one_step(lambda session: session.clear())

    def write_config_hash(self, config_hash: int) -> SessionCommit:
        """Commits the hash of the configuration, any u64."""
        return self._one_step(lambda session: session.write_config_hash(config_hash))

    def read_config_hash(self) -> int | None:
        """The committed hash; None when none was written, or it was cleared."""
        return read_positions(self._catalog.reading, self._pipeline).config_hash

    def write_result_sequence(self, query: str, sequence: int) -> SessionCommit:
        """Commits the sequence of a query's last result; `ConflictError` below the stored one."""
        return self._one_step(lambda session: session.write_result_sequence(query, sequence))

    def read_result_sequence(self, query: str) -> int | None:
        """The committed sequence of a query's last result: where its counter goes on."""
        return read_positions(self._catalog.reading, self._pipeline).results.get(check_text("query", query))

    # -- starting -----------------------------------------------------------------------------------------------------

    def start(
        self, config_hash: int, *, sources: Collection[str] | None = None, cannot_replay: Collection[str] = ()
    ) -> StartUp:
        """Decides where the query begins: under the same configuration where it was, otherwise anew.

        With another hash, or with positions and no hash, everything is cleared and the hash written, in one commit. What cannot
        be read is an error, and changes nothing. As long as nothing was committed under a configuration, it begins anew: who
        was to clear what goes with the positions may have ended before that.

        Args:
            config_hash: Of the configuration now.
            sources: Those subscribed; all that have a position by default.
            cannot_replay: Those that cannot be read again from a position: refused by a store that keeps positions.
        """
        return start(
            self.session, config_hash, persistent=self.is_persistent(), sources=sources, cannot_replay=cannot_replay
        )

    def after_gap(
        self,
        started: StartUp,
        gaps: Mapping[str, SourceCheckpoint | None],
        policy: RecoveryPolicy | str = RecoveryPolicy.STRICT,
    ) -> StartUp:
        """What to do after sources said that they cannot resume at their positions.

        Args:
            started: What `start` said.
            gaps: Those sources, and what counts as processed of each from now on: the sequence of the last event that is gone,
                which is the one before the first that can be read, and the position to read from. None: nothing, it can be
                read from its beginning only.
            policy: Fail, clear everything and begin anew, or skip what is missing. Beginning anew happens once.

        Raises:
            NotFoundError: Code `position-unavailable`: the policy does not allow to go on. Nothing was changed.
            SessionStateError: The query was started under another configuration since. Nothing was changed.
            ConflictError: A source whose gap would be skipped has moved since `start`. Nothing was changed.
        """
        return after_gap(self.session, started, gaps, policy, persistent=self.is_persistent())

    # -- history ------------------------------------------------------------------------------------------------------

    def history(self, *, limit: int | None = None) -> list[SessionRecord]:
        """The session commits of this pipeline, newest first, as far as the log tells.

        Args:
            limit: How many commits to look at, those of other pipelines included.
        """
        last = self._catalog.reading.versions.get(SOURCE_CHECKPOINTS.name)
        return session_history(self._catalog.engine, self._pipeline, limit=limit, last=last)

    def close(self) -> None:
        """Lets go of the generation that this store took. Reading goes on working; writing does not.

        Sessions that were not committed are rolled back. One whose outcome is not known can still be asked what became of it.
        """
        with self._turn:
            for session in list(self._sessions):
                session.close()
            if not self._closed and self._held is not None and not self._joined:
                generations.release(self._catalog.engine, self._held)
            self._closed = True

    def __enter__(self) -> SourceCheckpointStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _one_step(self, step: Callable[[Session], None]) -> SessionCommit:
        self._check_outside("a session is open here: write through it, so that it commits or rolls back with the rest")
        for _ in range(_TRIES):
            session = self._registered()
            step(session)
            try:
                return session.commit()
            except FencedError:
                raise
            except ConflictError as conflict:
                # Nothing was read that the step could depend on. What the step itself refuses is no race, and not tried again.
                last = conflict
        raise last

    def _registered(self, token: SessionToken | None = None) -> Session:
        """A session that `close` ends."""
        session = self._begin(token)
        with self._turn:
            # Closed meanwhile by another thread, which would not roll this one back any more.
            self._check_writable()
            self._sessions.add(session)
        return session

    def _begin(self, token: SessionToken | None = None) -> Session:
        held = self._hold()
        if token is not None and (token.pipeline, token.generation) != (held.pipeline, held.number):
            raise InvalidInputError(
                f"session {token.session_id} was begun under another pipeline or generation",
                expected={"pipeline": held.pipeline, "generation": held.number},
                found={"pipeline": token.pipeline, "generation": token.generation},
                next_step="Open the store with the token's generation.",
            )
        return Session(self._catalog.engine, held, token=token)

    def _check_outside(self, why: str) -> None:
        for ref in _begun.get():
            session = ref()
            if session is not None and session.state is SessionState.OPEN and session in self._sessions:
                raise SessionStateError(
                    f"pipeline {self._pipeline!r}: {why}",
                    expected="no open session",
                    found=session.id,
                    next_step="Use the open session, or end it first.",
                )

    def _hold(self) -> Generation:
        self._check_writable()
        with self._turn:
            if self._held is None:
                self._held = generations.take_over(
                    self._catalog.engine,
                    self._pipeline,
                    owner=self._owner,
                    reason="first session of a source checkpoint store",
                    seize=True,
                )
            return self._held

    def _check_writable(self) -> None:
        if self._catalog.versions is not None:
            raise SessionStateError("a catalog as it was cannot be written", next_step="Write to the catalog as it is.")
        if self._closed:
            raise SessionStateError(
                f"the store of pipeline {self._pipeline!r} is closed", next_step="Open a new store."
            )


def _check_token(token: SessionToken) -> None:
    if not isinstance(token, SessionToken):
        raise InvalidInputError(
            "a session is taken up by its token",
            expected="a SessionToken",
            found=f"a {type(token).__name__}",
            next_step="Make one of the plain values: `SessionToken(**values)`.",
        )
