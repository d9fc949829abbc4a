"""What a report tells, read through the catalog's public face: its SQL views, its pipelines' lists and its audit.

Times are text in UTC, to the millisecond, numbers are numbers: everything can be written as JSON as it is.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.checkpoints import CheckpointHead
from laminar_delta.errors import NotFoundError
from laminar_delta.model.ranges import needed
from laminar_delta.report.queries import QUERIES, question
from laminar_delta.report.rows import (
    Row,
    audit_row,
    duration_ms,
    event_rows,
    moment_text,
    outcome,
    recovery_row,
    series_name,
    storage_rows,
)

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog

NEWEST = 500
"""Checkpoints of a pipeline that are shown; the page says when there are more."""
ALTOGETHER = 20_000
"""Checkpoints of all pipelines that are shown, so that a page about thousands of them still opens."""
FEWEST = 20
"""Checkpoints that are shown of each pipeline all the same."""
SERIES = 24
"""Partitions whose offsets are drawn; beyond that nobody could tell the lines apart."""
COMMITS = 4 * NEWEST
"""Commits that the audit shows: about as many as that many checkpoints take, whose durations are told from them."""


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
    total: int = 0
    """How many checkpoints there are, shown or not."""
    newest_delivered: int | None = None
    """The newest of all that all its sinks have: where recovery goes back to."""
    notes: Sequence[str] = field(default_factory=list)
    """What was left out, in words."""

    def summary(self) -> Row:
        """The line of this pipeline in the overview."""
        latest = self.checkpoints[-1] if self.checkpoints else {}
        open_sinks = {
            row["sink"]: row["status"] for row in self.sinks if row["id"] == latest.get("id") and not row["delivered"]
        }
        return {
            "pipeline": self.name,
            "latest": latest.get("id"),
            "epoch": latest.get("epoch"),
            "time": latest.get("time"),
            "outcome": latest.get("outcome", "no checkpoint"),
            "waiting": ", ".join(f"{sink}: {status}" for sink, status in sorted(open_sinks.items())),
            "delivered": self.newest_delivered,
            "checkpoints": self.total,
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
    audit = [audit_row(entry) for entry in catalog.audit(limit=COMMITS)]
    # A catalog as it was takes no room of its own.
    usage = () if catalog.versions else catalog.usage().pipelines
    storage = {found.pipeline: storage_rows(found) for found in usage}
    newest = min(NEWEST, max(FEWEST, ALTOGETHER // max(1, len(names))))
    saved = {row["attempt"]: row["at_ms"] for row in audit if (row["table"], row["operation"]) == ("manifests", "save")}
    return ReportData(
        location=catalog.engine.location,
        made_at=moment_text(dt.datetime.now(dt.timezone.utc)) or "",
        pipelines=[
            _pipeline(
                name, {key: rows.get(name, []) for key, rows in found.items()}, saved, storage.get(name, []), newest
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
                f"pipeline {name!r} has no checkpoint",
                expected=name,
                next_step="See `catalog.pipelines()`, or `laminar-delta ls`, for those there are.",
            )
    return list(dict.fromkeys(pipelines))


def _by_pipeline(table: Any) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in table.to_pylist():
        grouped[row["pipeline"]].append(row)
    return grouped


def _pipeline(
    name: str,
    found: Mapping[str, list[Row]],
    saved: Mapping[str, int],
    storage: Sequence[Row],
    newest: int,
) -> PipelineData:
    heads = {row["checkpoint_id"]: CheckpointHead(**row) for row in found["heads"]}
    shown = {row["checkpoint_id"] for row in found["checkpoints"][-newest:]}
    found = {**found, **{key: found[key][-newest:] for key in ("recoveries", "writers", "decisions")}}
    times = {row["checkpoint_id"]: moment_text(row["created_at"]) for row in found["checkpoints"]}
    all_sinks = [
        {
            "id": row["checkpoint_id"],
            "sink": row["sink"],
            "status": row["status"] or "no status",
            # A sink without a status has nothing to deliver: recovery does not wait for it either.
            "delivered": row["status"] in ("Committed", None),
            "error": row["error"] or "",
        }
        for row in found["sinks"]
    ]
    statuses: dict[int, set[str]] = defaultdict(set)
    for sink in all_sinks:
        statuses[sink["id"]].add(sink["status"])
    inline = {row["checkpoint_id"]: row["bytes"] for row in found["sizes"] if row["form"] == "inline"}
    checkpoints = [
        {
            "id": row["checkpoint_id"],
            "epoch": row["epoch"],
            "time": moment_text(row["created_at"]),
            "generation": row["generation"],
            "owner": row["owner"] or "",
            "pinned": row["is_pinned"],
            "outcome": outcome(row, statuses[row["checkpoint_id"]]),
            "watermark": row["watermark"],
            # What is inline in a manifest is not in the size it says.
            "state_bytes": int(row["size_bytes"]) + inline.get(row["checkpoint_id"], 0),
            "needs": len(needs := heads[row["checkpoint_id"]].needs if row["checkpoint_id"] in heads else ()),
            "needed": needed(needs, name),
            "duration_ms": duration_ms(row["attempt_id"], saved),
            "derived": row["derived_how"] or "",
        }
        for row in found["checkpoints"]
        if row["checkpoint_id"] in shown
    ]
    delivered = [
        row["checkpoint_id"]
        for row in found["checkpoints"]
        if outcome(row, statuses[row["checkpoint_id"]]) == "delivered"
    ]
    series = sorted({series_name(row) for row in found["offsets"]})
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
        sinks=[sink for sink in all_sinks if sink["id"] in shown],
        offsets=[
            {
                "id": row["checkpoint_id"],
                "time": times.get(row["checkpoint_id"]),
                "source": series_name(row),
                "offset": row["offset_number"],
            }
            for row in found["offsets"]
            if row["checkpoint_id"] in shown and row["offset_number"] is not None and series_name(row) in drawn
        ],
        recoveries=[recovery_row(row, found["steps"]) for row in found["recoveries"]],
        events=sorted(
            (event for event in event_rows(checkpoints, found) if event["time"]), key=lambda event: event["time"]
        ),
        storage=storage,
        total=len(found["checkpoints"]),
        newest_delivered=delivered[-1] if delivered else None,
        notes=notes,
    )
