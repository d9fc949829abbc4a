"""What the log and the rows tell of session commits: which there were, and whether one of them was a given session's.

A session must not be committed twice, and the table is shared by all pipelines: any number of commits can lie between a
session's and the moment somebody asks for it. So "not committed" is said only with proof: every commit of the pipeline since
the session began is known to be another one's. They are numbered, so none can be missing unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.audit import said_number, said_text
from laminar_delta.catalog.position_rows import HEAD
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col
from laminar_delta.engine.settle import HISTORY_WINDOW
from laminar_delta.errors import CommitUnknownError, LaminarDeltaError
from laminar_delta.model.ids import check_ordering_number

if TYPE_CHECKING:
    from laminar_delta.catalog.positions import Positions
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.base import Engine

OPERATION = "session"
"""What a session commit calls itself in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One session commit as the log tells it."""

    version: int
    timestamp_ms: int
    session_id: str
    # A commit by a statement says what its author had it say. None: nothing.
    generation: int | None
    ordinal: int | None
    """The how-manieth commit of its generation it was."""
    owner: str | None
    sources: int | None
    """How many sources it wrote."""
    names: tuple[str, ...] | None
    """Which, when they were few."""
    cleared: bool
    """Whether it removed everything that was there."""


def session_history(
    engine: Engine, pipeline: str, *, limit: int | None = None, last: int | None = None
) -> list[SessionRecord]:
    """The session commits of a pipeline, newest first, as far as the log tells.

    Args:
        engine: Where.
        pipeline: Whose.
        limit: How many commits to look at, those of other pipelines included.
        last: The version the table is read at; what came later is not told.
    """
    if limit is not None:
        check_ordering_number("limit", limit)
    told = engine.told_history(SOURCE_CHECKPOINTS.name, limit=limit if last is None else None)
    seen = [entry for entry in told.entries if last is None or entry.version <= last]
    return _records(seen[:limit], pipeline)


def find_commit(
    engine: Engine, now: Positions, session_id: str, *, generation: int, ordinal: int, sent: bool
) -> int | None:
    """A version that holds a session's commit; None when it was not committed by the time `now` was read.

    Args:
        engine: Where.
        now: What is committed; read before this is asked, so that no commit can slip in between unseen.
        session_id: Which session.
        generation: Under which it commits.
        ordinal: Of the last commit that certainly was not its own.
        sent: Whether a try may have been committed. Under a generation that was taken over, one that was not is not looked for
            further than the log tells: it never will be committed.

    Raises:
        CommitUnknownError: Neither the log nor earlier versions tell any more who made some commit since.
    """
    if now.session_id == session_id or _left_rows(engine, now.pipeline, session_id):
        return next(iter(versions_made(engine, now.pipeline, session_id)), engine.version(SOURCE_CHECKPOINTS.name))
    # Of the generation's last commit the head row tells the number; once it was taken over, the version before that.
    last = now.ordinal if now.generation == generation else None if sent else ordinal
    # One that was taken over and not sent from here may have been committed by who has its token too: the numbers are no proof
    # of that, so all of the log is asked.
    is_proof = now.generation == generation or sent
    known: set[int] = set()
    history: list[HistoryEntry] = []
    for limit in (HISTORY_WINDOW, None):
        history = engine.told_history(SOURCE_CHECKPOINTS.name, limit=limit).entries
        for record in _records(history, now.pipeline):
            if record.session_id == session_id:
                if _head_at(engine, now.pipeline, record.version)["session_id"] in (session_id, None):
                    return record.version
                # Whatever it says, it wrote nothing: every session commit writes the head row.
                continue
            if record.generation == generation and record.ordinal is not None:
                known.add(record.ordinal)
        if last is None:
            last = _last_before_takeover(engine, now.pipeline, history, generation, ordinal)
        if last is not None and not set(range(ordinal + 1, last)) - known and (is_proof or limit is None):
            return None
    # Who made the last one the head row tells where nobody took over; otherwise it is looked at like the others.
    unknown = set(range(ordinal + 1, ordinal + 2 if last is None else last)) - known
    # Statements that did not say who they were: the head row they left says it.
    for entry in history:
        if not unknown:
            break
        if entry.metadata.get("pipeline", now.pipeline) == now.pipeline:
            head = _head_at(engine, now.pipeline, entry.version)
            if head["session_id"] == session_id:
                return entry.version
            if head["generation"] is not None and (head["generation"], head["ordinal"]) <= (generation, ordinal):
                break  # from before the session began
            if head["generation"] == generation:
                unknown.discard(head["ordinal"])
    if unknown:
        raise CommitUnknownError(
            f"whether session {session_id} on pipeline {now.pipeline!r} was committed is not known: who made commit "
            f"{min(unknown)} of generation {generation} neither the log nor an earlier version tells any more",
            expected=session_id,
            found=None,
            next_step="Begin a new session: it sees what is committed.",
            details={"table": SOURCE_CHECKPOINTS.name, "session": session_id, "commits": sorted(unknown)},
        )
    return None


def _last_before_takeover(
    engine: Engine, pipeline: str, history: Iterable[HistoryEntry], generation: int, ordinal: int
) -> int | None:
    """One past the number of the last commit of a generation that was taken over since; None when nobody can tell any more."""
    for entry in history:
        said = entry.metadata
        if said.get("pipeline", pipeline) != pipeline or (said_number(said.get("generation")) or 0) > generation:
            continue
        head = _head_at(engine, pipeline, entry.version)
        if head["generation"] is None:
            return None
        if head["generation"] <= generation:
            # Of an earlier one: then this one has none that stands.
            return head["ordinal"] + 1 if head["generation"] == generation else ordinal
    return None


def versions_made(engine: Engine, pipeline: str, session_id: str) -> list[int]:
    """The version a session made, where the log says which it was; a log that does not answer says nothing."""
    try:
        history = session_history(engine, pipeline)
    except LaminarDeltaError:
        return []
    return [record.version for record in history if record.session_id == session_id]


def _left_rows(engine: Engine, pipeline: str, session_id: str) -> bool:
    where = col("pipeline").eq(pipeline) & col("session_id").eq(session_id)
    return engine.read(SOURCE_CHECKPOINTS.name, columns=["session_id"], where=where).num_rows > 0


def _head_at(engine: Engine, pipeline: str, version: int) -> Row:
    columns = ["session_id", "generation", "ordinal"]
    where = col("pipeline").eq(pipeline) & col("kind").eq(HEAD)
    try:
        found = engine.read(SOURCE_CHECKPOINTS.name, columns=columns, where=where, version=version).to_pylist()
    except LaminarDeltaError:
        found = []  # vacuumed: nobody can tell any more
    return found[0] if found else dict.fromkeys(columns)


def _records(history: Iterable[HistoryEntry], pipeline: str) -> list[SessionRecord]:
    return [record for entry in history if (record := _record(entry, pipeline)) is not None]


def _record(entry: HistoryEntry, pipeline: str) -> SessionRecord | None:
    """What a commit says, if it says that it is a session's, and of this pipeline."""
    said = entry.metadata
    session_id = said_text(said.get("session"))
    # The label of a statement may have stayed for others of its notebook: a session commits by a merge.
    if session_id is None or entry.operation != "MERGE":
        return None
    if said.get("operation") != OPERATION or said.get("pipeline") != pipeline:
        return None
    names = said.get("names")
    return SessionRecord(
        version=entry.version,
        timestamp_ms=entry.timestamp_ms,
        session_id=session_id,
        generation=said_number(said.get("generation")),
        ordinal=said_number(said.get("ordinal")),
        owner=said_text(said.get("owner")),
        sources=said_number(said.get("sources")),
        names=tuple(str(name) for name in names) if isinstance(names, list) else None,
        cleared=said.get("cleared") is True,
    )
