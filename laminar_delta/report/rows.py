"""Single rows of a report, from rows of the views, commits of the audit and the usage of storage."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laminar_delta.catalog.audit import AuditEntry
    from laminar_delta.catalog.usage import PipelineUsage

Row = dict[str, Any]


def outcome(row: Row, statuses: set[str]) -> str:
    """What a checkpoint is worth to recovery, as far as its sinks and decisions tell."""
    if row["is_abandoned"]:
        return "abandoned"
    if "Failed" in statuses:
        return "failed"
    return "pending" if "Pending" in statuses else "delivered"


def event_rows(checkpoints: Iterable[Row], found: Mapping[str, list[Row]]) -> Iterable[Row]:
    """What happened, each in its lane of the timeline."""
    for row in checkpoints:
        what = f"checkpoint {row['id']}, {row['outcome']}" + (", pinned" if row["pinned"] else "")
        yield {"time": row["time"], "lane": "checkpoints", "kind": row["outcome"], "what": what, "id": row["id"]}
    for row in found["recoveries"]:
        chosen = row["chosen_id"]
        what = f"recovery by {row['owner']}: " + ("nothing chosen" if chosen is None else f"chose {chosen}")
        yield {
            "time": moment_text(row["started_at"]),
            "lane": "recoveries",
            "kind": "recovery",
            "what": what,
            "id": chosen,
        }
    for row in found["writers"]:
        what = f"generation {row['generation']} taken by {row['owner']}"
        yield {"time": moment_text(row["taken_at"]), "lane": "writers", "kind": "takeover", "what": what, "id": None}
    for row in found["decisions"]:
        what = f"checkpoint {row['checkpoint_id']} {row['decision']} by {row['decided_by']}: {row['reason'] or ''}"
        time = moment_text(row["decided_at"])
        yield {"time": time, "lane": "decisions", "kind": "decision", "what": what, "id": row["checkpoint_id"]}


def recovery_row(row: Row, steps: Iterable[Row]) -> Row:
    """One recovery, with what it passed over and why."""
    reasons = [
        f"{step['checkpoint_id']} {step['outcome']}: {step['reason']}"
        for step in steps
        if step["recovery_id"] == row["recovery_id"] and step["outcome"] != "chosen"
    ]
    return {
        "time": moment_text(row["started_at"]),
        "elapsed_ms": row["elapsed_ms"],
        "chosen": row["chosen_id"],
        "examined": row["examined"],
        "skipped": row["skipped"],
        "healed": row["healed"],
        "owner": row["owner"] or "",
        "why": "; ".join(reasons),
    }


def storage_rows(usage: PipelineUsage) -> list[Row]:
    """What is live without being pinned, what is pinned, what can be given back, what is being saved or was left behind."""
    sizes = {
        "live": usage.live_bytes - usage.pinned_bytes,
        "pinned": usage.pinned_bytes,
        "reclaimable": usage.reclaimable_bytes,
        "staged": usage.staged_bytes,
    }
    return [{"standing": standing, "bytes": size} for standing, size in sizes.items() if size]


def audit_row(entry: AuditEntry) -> Row:
    """One commit."""
    return {
        "time": moment_text(dt.datetime.fromtimestamp(entry.timestamp_ms / 1000, dt.timezone.utc)),
        "at_ms": entry.timestamp_ms,
        "table": entry.table,
        "version": entry.version,
        "operation": entry.operation,
        "pipeline": entry.pipeline or "",
        "id": entry.checkpoint_id,
        "attempt": entry.attempt_id or "",
        "generation": entry.generation,
        "owner": entry.owner or "",
        "reason": entry.reason or "",
    }


def duration_ms(attempt_id: str, saved: Mapping[str, int]) -> int | None:
    """Milliseconds from the beginning of an attempt, which its UUIDv7 tells, to its commit; None beyond the audit."""
    committed = saved.get(attempt_id)
    return None if committed is None else max(0, committed - int(attempt_id.replace("-", "")[:12], 16))


def series_name(row: Row) -> str:
    """What a line of the offsets is called: the source, and its partition where it has some."""
    return str(row["name"]) if row["partition_key"] is None else f"{row['name']} {row['partition_key']}"


def moment_text(value: dt.datetime | None) -> str | None:
    """A time as the page and Vega read it."""
    if value is None:
        return None
    return value.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
