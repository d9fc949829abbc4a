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

Key = tuple[str, str]
"""Kind and source."""


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
    own = _written(engine, pipeline, session_id, version)
    head = own.pop((HEAD, ""), None)
    # Then nobody has written over any of it yet.
    is_exact = head is not None
    differs = [key for key, row in own.items() if not _is_alike(staged.get(key), row, buffer)]
    if head is not None and buffer.config_hash is not None and head["config_hash"] != buffer.config_hash:
        differs.append((HEAD, ""))
    missing = staged.keys() - own.keys()
    if differs or (missing and is_exact):
        raise ConflictError(
            f"session {session_id} on pipeline {pipeline!r} was committed with other steps, by another who has its token; "
            "those staged here were not written",
            expected=sorted(staged),
            found=sorted(own),
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


def _written(engine: Engine, pipeline: str, session_id: str, version: int | None) -> dict[Key, Row]:
    """What a session wrote: in the version it made or, where nobody can tell which or read it, what is left of it."""
    where = col("pipeline").eq(pipeline) & col("session_id").eq(session_id)
    for tried in (*versions_made(engine, pipeline, session_id), version):
        try:
            rows = engine.read(SOURCE_CHECKPOINTS.name, where=where, version=tried).to_pylist()
        except LaminarDeltaError:
            continue
        return {(row["kind"], row["source"]): row for row in rows}
    return {}
