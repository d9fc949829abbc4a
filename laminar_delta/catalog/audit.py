"""The audit: everything that was committed to any table, from the tables' own logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.attempt import members
from laminar_delta.catalog.later import present
from laminar_delta.model.ids import check_ordering_number

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.base import Metadata


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


def audit(reading: Reading, *, pipeline: str | None = None, limit: int | None = None) -> list[AuditEntry]:
    """The commits the logs still tell of, newest first; of one pipeline, if named; `limit` at most, of all tables together.

    In a catalog as it was, those up to then.
    """
    if limit is not None:
        check_ordering_number("limit", limit)
    # No table gives more than the limit; but how far back those of one pipeline, or of the past, are, only its whole log tells.
    most = limit if pipeline is None and not reading.versions else None
    entries = [
        _entry(spec.name, commit, said)
        for spec in present(reading.engine)
        for commit in reading.engine.history(spec.name, limit=most)
        if spec.name not in reading.versions or commit.version <= reading.versions[spec.name]
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
