"""What a streaming query says of itself, as rows of `query_progress`: Spark's JSON, kept whole and taken apart for SQL."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from laminar_delta.catalog.clock import now

Row = dict[str, Any]

STARTED, PROGRESS, IDLE, TERMINATED = "started", "progress", "idle", "terminated"
"""The events there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event, as it came: taking it apart is left to whoever writes it, off the thread that brought it."""

    event: str
    query_id: str
    run_id: str
    query_name: str | None = None
    timestamp: str | None = None
    """When, as Spark writes it; by default when it came."""
    error: str | None = None
    progress: str | None = None
    """The progress as JSON."""

    def row(self, pipeline: str | None, *, recorded_by: str) -> Row:
        """The row of `query_progress`, all but the attempt that writes it."""
        said: Mapping[str, Any] = json.loads(self.progress) if self.progress else {}
        told_at = _moment(said.get("timestamp") or self.timestamp) or now()
        states = [_state(one) for one in said.get("stateOperators", ())]
        sink = said.get("sink") or {}
        output = _number(sink.get("numOutputRows"))
        return {
            "pipeline": pipeline,
            "query_id": self.query_id,
            "run_id": self.run_id,
            "query_name": self.query_name,
            "event": self.event,
            "batch_id": _number(said.get("batchId")),
            "timestamp_ms": _millis(told_at),
            "told_at": told_at,
            "watermark": _watermark(said.get("eventTime") or {}),
            "batch_ms": _number(said.get("batchDuration")),
            "input_rows": _number(said.get("numInputRows")),
            "input_rows_per_second": _rate(said.get("inputRowsPerSecond")),
            "processed_rows_per_second": _rate(said.get("processedRowsPerSecond")),
            # A sink that does not count says -1.
            "output_rows": None if output is None or output < 0 else output,
            "state_rows": _sum(states, "rows_total"),
            "state_bytes": _sum(states, "memory_bytes"),
            "durations": _numbers(said.get("durationMs")),
            "sources": [_source(one) for one in said.get("sources", ())],
            "state_operators": states,
            "sink": _text(sink.get("description")),
            "error": self.error,
            "recorded_by": recorded_by,
            "progress": self.progress,
        }


def _source(said: Mapping[str, Any]) -> Row:
    return {
        "description": _text(said.get("description")),
        "start_offset": _text(said.get("startOffset")),
        "end_offset": _text(said.get("endOffset")),
        "latest_offset": _text(said.get("latestOffset")),
        "input_rows": _number(said.get("numInputRows")),
        "input_rows_per_second": _rate(said.get("inputRowsPerSecond")),
        "processed_rows_per_second": _rate(said.get("processedRowsPerSecond")),
        "metrics": [(str(name), str(value)) for name, value in (said.get("metrics") or {}).items()],
    }


def _state(said: Mapping[str, Any]) -> Row:
    return {
        "operator": _text(said.get("operatorName")),
        "rows_total": _number(said.get("numRowsTotal")),
        "rows_updated": _number(said.get("numRowsUpdated")),
        "rows_removed": _number(said.get("numRowsRemoved")),
        "rows_dropped": _number(said.get("numRowsDroppedByWatermark")),
        "memory_bytes": _number(said.get("memoryUsedBytes")),
        "partitions": _number(said.get("numShufflePartitions")),
        "commit_ms": _number(said.get("commitTimeMs")),
        "metrics": _numbers(said.get("customMetrics")),
    }


def _numbers(said: Mapping[str, Any] | None) -> list[tuple[str, int]]:
    found = {str(name): _number(value) for name, value in (said or {}).items()}
    return [(name, value) for name, value in found.items() if value is not None]


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    return None


def _rate(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _sum(states: list[Row], column: str) -> int | None:
    found = [state[column] for state in states if state[column] is not None]
    return sum(found) if found else None


def _watermark(said: Mapping[str, Any]) -> int | None:
    moment = _moment(said.get("watermark"))
    # Spark's word for none yet.
    return None if moment is None else _millis(moment) or None


def _moment(text: object) -> dt.datetime | None:
    if not isinstance(text, str):
        return None
    try:
        found = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.timezone.utc)


def _millis(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(milliseconds=1)
