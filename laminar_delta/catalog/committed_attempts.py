"""Which attempts of a pipeline became checkpoints: what they staged is nobody's orphan.

That one has a manifest row proves it, or that the log tells of its commit. But rows are deleted by careless statements, and the
log is cleaned; so whatever a checkpoint refers to counts as well, of this pipeline or another: those that store some of its
state, whose state it uses, against which its deltas are. Without them it could not be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.committed import known_elsewhere, told_by_log
from laminar_delta.catalog.reading import STATE_TABLES
from laminar_delta.catalog.state.layout import LAYOUT_CHUNK
from laminar_delta.catalog.tables import BY_NAME, MANIFESTS
from laminar_delta.engine.predicate import col

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row

_REFERRING = ["checkpoint_id", "attempt_id", "parent_id", "state_needs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedAttempts:
    """The attempts of a pipeline that became checkpoints."""

    attempts: frozenset[object]
    """Those that have a manifest row, had one as far as it can be told, or that a checkpoint refers to."""
    lost: frozenset[int]
    """Checkpoints whose attempt cannot be told: of those, any may be it."""
    all_told: bool
    """Whether there cannot be others."""


def committed_attempts(reading: Reading, pipeline: str) -> CommittedAttempts:
    """The attempts that were committed: a lost row makes nobody an orphan."""
    rows = reading.rows(MANIFESTS, where=col("pipeline").eq(pipeline), columns=_REFERRING)
    told = told_by_log(reading, pipeline)
    known = {row["checkpoint_id"] for row in rows} | told.ids
    attempts = {row["attempt_id"] for row in rows} | told.attempts | _used(reading, pipeline)
    referring = [*rows, *(row for _, row in told.taken.values())]
    return CommittedAttempts(
        attempts=frozenset(_with_stores(reading, pipeline, attempts)),
        lost=frozenset(known_elsewhere(reading, pipeline, told, known) | (_named(referring) - known)),
        all_told=not told.unread,
    )


def _used(reading: Reading, pipeline: str) -> set[object]:
    """The attempts of this pipeline whose state checkpoints, of whatever pipeline, use as it is."""
    rows = reading.rows(MANIFESTS, where=col("state_pipeline").eq(pipeline), columns=["state_attempt_id"])
    return {row["state_attempt_id"] for row in rows}


def _named(rows: Iterable[Row]) -> set[int]:
    """The checkpoints that manifest rows say they need, by id."""
    found: set[int] = set()
    for row in rows:
        found.update(row["state_needs"] or ())
        if row["parent_id"] is not None:
            found.add(row["parent_id"])
    return found


def _with_stores(reading: Reading, pipeline: str, attempts: set[object]) -> set[object]:
    """Attempts, and those that store some of their state or that it stands upon, however long the line."""
    # As the layouts tell: a checkpoint that uses another's state does not say itself who stores that.
    needs: dict[object, set[object]] = {}
    where = col("pipeline").eq(pipeline) & col("chunk").eq(LAYOUT_CHUNK)
    for table in STATE_TABLES:
        for row in reading.rows(BY_NAME[table], where=where, columns=["attempt_id", "stores", "upon"]):
            origins = [*(row["stores"] or ()), *(row["upon"] or ())]
            needs.setdefault(row["attempt_id"], set()).update(origin["attempt_id"] for origin in origins)
    found, todo = set(attempts), list(attempts)
    while todo:
        more = needs.get(todo.pop(), set()) - found
        found |= more
        todo.extend(more)
    return found
