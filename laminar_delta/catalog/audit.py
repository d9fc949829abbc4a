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
    """The commits the logs still tell of, newest first; of one pipeline, if named. `limit` is per table."""
    entries = [
        _entry(spec.name, commit, said)
        for spec in present(engine)
        for commit in engine.history(spec.name, limit=limit)
        for said in members(commit.metadata)
    ]
    chosen = [entry for entry in entries if pipeline is None or entry.pipeline == pipeline]
    return sorted(chosen, key=lambda entry: (entry.timestamp_ms, entry.table, entry.version), reverse=True)


def _entry(table: str, commit: HistoryEntry, said: Metadata) -> AuditEntry:
    return AuditEntry(
        table=table,
        version=commit.version,
        timestamp_ms=commit.timestamp_ms,
        operation=str(said.get("operation", commit.operation)),
        pipeline=_text(said.get("pipeline")),
        checkpoint_id=_number(said.get("checkpoint")),
        attempt_id=_text(said.get("attempt")),
        generation=_number(said.get("generation")),
        owner=_text(said.get("owner")),
        reason=_text(said.get("reason")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
