"""What a report tells, read through the catalog's public face: its SQL views, its pipelines' lists and its audit.

Times are text in UTC, to the millisecond, numbers are numbers: everything can be written as JSON as it is.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laminar_delta.errors import NotFoundError
from laminar_delta.report.queries import QUERIES, question

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.usage import PipelineUsage

Row = dict[str, Any]

NEWEST = 500
"""Checkpoints of a pipeline that are shown; the page says when there are more."""
SERIES = 24
"""Partitions whose offsets are drawn; beyond that nobody could tell the lines apart."""
COMMITS = 500
"""Commits of each table that the audit shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineData:
    """What is told of one pipeline. Rows of `checkpoints` ascend by id, all others by time."""

    name: str
    checkpoints: Sequence[Row] = ()
    sizes: Sequence[Row] = ()
    sinks: Sequence[Row] = ()
    offsets: Sequence[Row] = ()
    recoveries: Sequence[Row] = ()
    events: Sequence[Row] = ()
    storage: Sequence[Row] = ()
    notes: Sequence[str] = field(default_factory=list)
    """What was left out, in words."""

    def summary(self) -> Row:
        """The line of this pipeline in the overview."""
        latest = self.checkpoints[-1] if self.checkpoints else {}
        open_sinks = {
            row["sink"]: row["status"] for row in self.sinks if row["id"] == latest.get("id") and not row["delivered"]
        }
        resumable = [row["id"] for row in self.checkpoints if row["outcome"] == "delivered"]
        return {
            "pipeline": self.name,
            "latest": latest.get("id"),
            "epoch": latest.get("epoch"),
            "time": latest.get("time"),
            "outcome": latest.get("outcome", "no checkpoint"),
            "waiting": ", ".join(f"{sink}: {status}" for sink, status in sorted(open_sinks.items())),
            "delivered": resumable[-1] if resumable else None,
            "checkpoints": len(self.checkpoints),
            "pinned": sum(row["pinned"] for row in self.checkpoints),
            "bytes": sum(row["bytes"] for row in self.storage),
            "recoveries": len(self.recoveries),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """What a report tells."""

    location: str
    made_at: str
    pipelines: Sequence[PipelineData]
    audit: Sequence[Row]


def gather(catalog: Catalog, pipelines: Sequence[str] | None = None) -> ReportData:
    """Reads everything for some pipelines, or for all that have checkpoints.

    Raises:
        NotFoundError: A pipeline that was asked for has no checkpoint.
    """
    names = _chosen(catalog, pipelines)
    found = {key: _by_pipeline(catalog.sql(question(text, pipelines))) for key, text in QUERIES.items()}
    audit = [_audit_row(entry) for entry in catalog.audit(limit=COMMITS)]
    # A catalog as it was takes no room of its own.
    usage = () if catalog.versions else catalog.usage().pipelines
    storage = {found.pipeline: _storage(found) for found in usage}
    saved = {row["attempt"]: row["at_ms"] for row in audit if (row["table"], row["operation"]) == ("manifests", "save")}
    return ReportData(
        location=catalog.engine.location,
        made_at=_moment(dt.datetime.now(dt.timezone.utc)) or "",
        pipelines=[
            _pipeline(
                catalog, name, {key: rows.get(name, []) for key, rows in found.items()}, saved, storage.get(name, [])
            )
            for name in names
        ],
        audit=[row for row in audit if pipelines is None or row["pipeline"] in names],
    )


def _chosen(catalog: Catalog, pipelines: Sequence[str] | None) -> list[str]:
    known = catalog.pipelines()
    if pipelines is None:
        return known
    for name in pipelines:
        if name not in known:
            raise NotFoundError(
                f"pipeline {name!r} has no checkpoint", expected=name, next_step="See `catalog.pipelines()`."
            )
    return list(dict.fromkeys(pipelines))


def _by_pipeline(table: Any) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in table.to_pylist():
        grouped[row["pipeline"]].append(row)
    return grouped


def _pipeline(
    catalog: Catalog,
    name: str,
    found: Mapping[str, list[Row]],
    saved: Mapping[str, int],
    storage: Sequence[Row],
) -> PipelineData:
    heads = {head.checkpoint_id: head for head in catalog.pipeline(name).list()}
    shown = {row["checkpoint_id"] for row in found["checkpoints"][-NEWEST:]}
    times = {row["checkpoint_id"]: _moment(row["created_at"]) for row in found["checkpoints"]}
    sinks = [
        {
            "id": row["checkpoint_id"],
            "sink": row["sink"],
            "status": row["status"] or "no status",
            # A sink without a status has nothing to deliver: recovery does not wait for it either.
            "delivered": row["status"] in ("Committed", None),
            "error": row["error"] or "",
        }
        for row in found["sinks"]
        if row["checkpoint_id"] in shown
    ]
    statuses: dict[int, set[str]] = defaultdict(set)
    for sink in sinks:
        statuses[sink["id"]].add(sink["status"])
    checkpoints = [
        {
            "id": row["checkpoint_id"],
            "epoch": row["epoch"],
            "time": _moment(row["created_at"]),
            "generation": row["generation"],
            "owner": row["owner"] or "",
            "pinned": row["is_pinned"],
            "outcome": _outcome(row, statuses[row["checkpoint_id"]]),
            "watermark": row["watermark"],
            "state_bytes": int(row["size_bytes"]),
            "needs": len(needs := (heads[row["checkpoint_id"]].needs if row["checkpoint_id"] in heads else [])),
            "needed": ", ".join(f"{number}" if whose == name else f"{whose} {number}" for whose, number in needs),
            "duration_ms": _duration(row["attempt_id"], saved),
            "derived": row["derived_how"] or "",
        }
        for row in found["checkpoints"]
        if row["checkpoint_id"] in shown
    ]
    series = sorted({_series(row) for row in found["offsets"]})
    notes = []
    if len(found["checkpoints"]) > len(shown):
        notes.append(f"The newest {len(shown)} of {len(found['checkpoints'])} checkpoints are shown.")
    if len(series) > SERIES:
        notes.append(f"Offsets of {SERIES} of {len(series)} partitions are drawn.")
    drawn = set(series[:SERIES])
    return PipelineData(
        name=name,
        checkpoints=checkpoints,
        sizes=[
            {"id": row["checkpoint_id"], "form": row["form"], "bytes": row["bytes"]}
            for row in found["sizes"]
            if row["checkpoint_id"] in shown
        ],
        sinks=sinks,
        offsets=[
            {
                "id": row["checkpoint_id"],
                "time": times.get(row["checkpoint_id"]),
                "source": _series(row),
                "offset": row["offset_number"],
            }
            for row in found["offsets"]
            if row["checkpoint_id"] in shown and row["offset_number"] is not None and _series(row) in drawn
        ],
        recoveries=[_recovery(row, found["steps"]) for row in found["recoveries"]],
        events=sorted(
            (event for event in _events(checkpoints, found) if event["time"]), key=lambda event: event["time"]
        ),
        storage=storage,
        notes=notes,
    )


def _outcome(row: Row, statuses: set[str]) -> str:
    """What a checkpoint is worth to recovery, as far as its sinks and decisions tell."""
    if row["is_abandoned"]:
        return "abandoned"
    if "Failed" in statuses:
        return "failed"
    return "pending" if "Pending" in statuses else "delivered"


def _events(checkpoints: Iterable[Row], found: Mapping[str, list[Row]]) -> Iterable[Row]:
    for row in checkpoints:
        what = f"checkpoint {row['id']}, {row['outcome']}" + (", pinned" if row["pinned"] else "")
        yield {"time": row["time"], "lane": "checkpoints", "kind": row["outcome"], "what": what, "id": row["id"]}
    for row in found["recoveries"]:
        chosen = row["chosen_id"]
        what = f"recovery by {row['owner']}: " + ("nothing chosen" if chosen is None else f"chose {chosen}")
        yield {"time": _moment(row["started_at"]), "lane": "recoveries", "kind": "recovery", "what": what, "id": chosen}
    for row in found["writers"]:
        what = f"generation {row['generation']} taken by {row['owner']}"
        yield {"time": _moment(row["taken_at"]), "lane": "writers", "kind": "takeover", "what": what, "id": None}
    for row in found["decisions"]:
        what = f"checkpoint {row['checkpoint_id']} {row['decision']} by {row['decided_by']}: {row['reason'] or ''}"
        time = _moment(row["decided_at"])
        yield {"time": time, "lane": "decisions", "kind": "decision", "what": what, "id": row["checkpoint_id"]}


def _recovery(row: Row, steps: Iterable[Row]) -> Row:
    reasons = [
        f"{step['checkpoint_id']} {step['outcome']}: {step['reason']}"
        for step in steps
        if step["recovery_id"] == row["recovery_id"] and step["outcome"] != "chosen"
    ]
    return {
        "time": _moment(row["started_at"]),
        "elapsed_ms": row["elapsed_ms"],
        "chosen": row["chosen_id"],
        "examined": row["examined"],
        "skipped": row["skipped"],
        "healed": row["healed"],
        "owner": row["owner"] or "",
        "why": "; ".join(reasons),
    }


def _storage(usage: PipelineUsage) -> list[Row]:
    """What is live without being pinned, what is pinned, what can be given back, what is being saved or was left behind."""
    sizes = {
        "live": usage.live_bytes - usage.pinned_bytes,
        "pinned": usage.pinned_bytes,
        "reclaimable": usage.reclaimable_bytes,
        "staged": usage.staged_bytes,
    }
    return [{"standing": standing, "bytes": size} for standing, size in sizes.items() if size]


def _audit_row(entry: Any) -> Row:
    return {
        "time": _moment(dt.datetime.fromtimestamp(entry.timestamp_ms / 1000, dt.timezone.utc)),
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


def _duration(attempt_id: str, saved: Mapping[str, int]) -> int | None:
    """Milliseconds from the beginning of an attempt, which its UUIDv7 tells, to its commit; None beyond the audit."""
    committed = saved.get(attempt_id)
    return None if committed is None else max(0, committed - int(attempt_id.replace("-", "")[:12], 16))


def _series(row: Row) -> str:
    return row["name"] if row["partition_key"] is None else f"{row['name']} {row['partition_key']}"


def _moment(value: dt.datetime | None) -> str | None:
    if value is None:
        return None
    return value.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
