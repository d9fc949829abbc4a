"""Whether a session was committed with the steps that one of those who have its token staged, or with another's.

A token can be taken up by several: a task that is repeated finds its commit, and is told so. One that staged something else has
written nothing, and must not be told that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.position_rows import HEAD, RESULT, SOURCE
from laminar_delta.catalog.session_log import versions_made
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CommitUnknownError, ConflictError, LaminarDeltaError

if TYPE_CHECKING:
    from laminar_delta.catalog.buffer import Buffer
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.base import Engine


def check_same_steps(
    engine: Engine, pipeline: str, session_id: str, buffer: Buffer, *, version: int | None, sent: bool
) -> None:
    """Raises unless what a session was committed with is what is staged here.

    Args:
        engine: Where.
        pipeline: Whose.
        session_id: Which session; it is committed.
        buffer: What is staged.
        version: One that holds the commit.
        sent: Whether what is staged may have been committed: then it was, unless something speaks against it.

    Raises:
        ConflictError: It was committed with other steps. What is staged here was not written.
        CommitUnknownError: Others wrote over them, and no version is left that tells.
    """
    staged = {(row["kind"], row["source"]): row for row in buffer.changes()}
    rows = _rows_of(engine, pipeline, session_id, version)
    own = {(row["kind"], row["source"]): row for row in rows if row["session_id"] == session_id}
    head = own.pop((HEAD, ""), None)
    # Then nobody has written over any of it yet.
    is_exact = head is not None
    differs = [key for key, row in own.items() if not _is_alike(staged.get(key), row, buffer)]
    if head is not None and _sets_hash(buffer) and head["config_hash"] != buffer.config_hash:
        differs.append((HEAD, ""))
    if is_exact and buffer.cleared:
        # What it would have removed was there after it.
        differs += [(row["kind"], row["source"]) for row in rows if row["session_id"] != session_id]
    missing = staged.keys() - own.keys()
    if _sets_hash(buffer) and not is_exact:
        # Only the head row could tell of a hash, and what came right after it of a clear.
        missing = {*missing, (HEAD, "")}
    if differs or (missing and is_exact):
        raise ConflictError(
            f"session {session_id} on pipeline {pipeline!r} was committed with other steps, by another who has its token; "
            "those staged here were not written",
            expected=sorted(staged),
            found=sorted({*own, *differs}),
            next_step="Begin a new session for them.",
            details={"session": session_id},
        )
    if missing and not sent:
        raise CommitUnknownError(
            f"session {session_id} on pipeline {pipeline!r} is committed; whether with the steps staged here, neither the log "
            "nor the rows that others wrote since tell any more",
            expected=sorted(staged),
            found=sorted(own),
            next_step="Read what is committed, and begin a new session for what is missing.",
            details={"session": session_id},
        )


def _sets_hash(buffer: Buffer) -> bool:
    """Whether the config hash after the steps is theirs: a clear removes the one before."""
    return buffer.cleared or buffer.config_hash is not None


def _is_alike(staged: Row | None, written: Row, buffer: Buffer) -> bool:
    if staged is None:
        return False
    if written["kind"] == RESULT and written["source"] in buffer.raised:
        # Staged as a row, the highest counts: what that was depends on what was committed then.
        return True
    if written["kind"] == SOURCE and written["source"] in buffer.kept:
        # Only the sequence was staged: the position is whichever was committed then.
        return bool(staged["sequence"] == written["sequence"])
    return bool((staged["sequence"], staged.get("position")) == (written["sequence"], written["position"]))


def _rows_of(engine: Engine, pipeline: str, session_id: str, version: int | None) -> list[Row]:
    """The pipeline's rows in the version a session made or, where nobody can tell which or read it, in one that holds it."""
    where = col("pipeline").eq(pipeline)
    for tried in (*versions_made(engine, pipeline, session_id), version):
        try:
            rows: list[Row] = engine.read(SOURCE_CHECKPOINTS.name, where=where, version=tried).to_pylist()
        except LaminarDeltaError:
            continue
        return rows
    return []
