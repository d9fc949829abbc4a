"""The audit: everything that was committed to any table, from the tables' own logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.attempt import members
from laminar_delta.catalog.later import present

if TYPE_CHECKING:
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.base import Engine, Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One commit, as far as it was for one pipeline: a commit shared by several has an entry for each."""

    table: str
    version: int
    timestamp_ms: int
    operation: str
    """What it was for; Delta's own word where the commit does not say."""
    pipeline: str | None
    checkpoint_id: int | None
    attempt_id: str | None
    generation: int | None
    owner: str | None
    reason: str | None


def audit(engine: Engine, *, pipeline: str | None = None, limit: int | None = None) -> list[AuditEntry]:
    """The commits the logs still tell of, newest first; of one pipeline, if named; `limit` at most, of all tables together."""
    # No table gives more than the limit; but how far back those of one pipeline are, only its whole log tells.
    most = limit if pipeline is None else None
    entries = [
        _entry(spec.name, commit, said)
        for spec in present(engine)
        for commit in engine.history(spec.name, limit=most)
        for said in members(commit.metadata)
    ]
    chosen = [entry for entry in entries if pipeline is None or entry.pipeline == pipeline]
    return sorted(chosen, key=lambda entry: (entry.timestamp_ms, entry.table, entry.version), reverse=True)[:limit]


def _entry(table: str, commit: HistoryEntry, said: Metadata) -> AuditEntry:
    return AuditEntry(
        table=table,
        version=commit.version,
        timestamp_ms=commit.timestamp_ms,
        operation=str(said.get("operation", commit.operation)),
        pipeline=said_text(said.get("pipeline")),
        checkpoint_id=said_number(said.get("checkpoint")),
        attempt_id=said_text(said.get("attempt")),
        generation=said_number(said.get("generation")),
        owner=said_text(said.get("owner")),
        reason=said_text(said.get("reason")),
    )


def said_text(value: object) -> str | None:
    """A text that a commit says of itself; None where it says none, or something else: anybody can write there."""
    return value if isinstance(value, str) else None


def said_number(value: object) -> int | None:
    """A number, likewise."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
