"""Manifests as rows and back: both directions side by side, so that one cannot change without the other.

A manifest becomes one row of `manifests` and one row of `source_offsets` per source and reference table. Binary state is stored
as bytes; text that claims to be base64 and is not (other systems never check) is kept as it is beside it, so that a manifest
always comes back equal to what was saved.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from laminar_delta.catalog.tables import MANIFESTS, SOURCE_OFFSETS
from laminar_delta.model.base64text import decode_base64, encode_base64
from laminar_delta.model.ids import check_ordering_number, validate_pipeline_name
from laminar_delta.model.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
)
from laminar_delta.model.status import SinkCommitKind, SinkCommitStatus

Row = dict[str, Any]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_LAST_MS = int((dt.datetime(9999, 12, 31, tzinfo=dt.timezone.utc) - _EPOCH).total_seconds() * 1000)

SOURCE = "source"
TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What a derived checkpoint says of where it comes from."""

    how: str
    from_pipeline: str
    from_id: int
    over_id: int | None
    """The newest checkpoint of its pipeline when it was derived: what undoing goes back to."""
    reason: str
    state: tuple[str, int, str] | None = None
    """Pipeline, checkpoint and attempt whose state rows it uses; None when it has none, or its own."""
    vnode_count: int | None = None
    """Into how many virtual nodes the state it uses is divided."""
    children: tuple[Mapping[str, object], ...] = ()
    """The `children` entries of those rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveContext:
    """What a saved manifest carries beyond its own fields: who saved it, as which attempt, with which children."""

    pipeline: str
    attempt_id: str
    generation: int = 0
    ordinal: int = 0
    external_id: str | None = None
    vnode_count: int | None = None
    lineage: Lineage | None = None
    state_needs: tuple[int, ...] = ()
    children: tuple[Mapping[str, object], ...] = ()
    content_digest: str | None = None


def created_at(timestamp_ms: int) -> dt.datetime | None:
    """The moment of a timestamp, or None past the year 9999, which no engine's timestamps reach."""
    return _EPOCH + dt.timedelta(milliseconds=timestamp_ms) if timestamp_ms <= _LAST_MS else None


def manifest_table(rows: Iterable[tuple[CheckpointManifest, SaveContext]]) -> pa.Table:
    """The rows of `manifests`."""
    return pa.Table.from_pylist([_manifest_row(m, context) for m, context in rows], schema=MANIFESTS.schema)


def check_numbers(manifest: CheckpointManifest) -> None:
    """Raises `InvalidInputError` when a number that identifies or orders is larger than its column holds."""
    check_ordering_number("checkpoint_id", manifest.checkpoint_id)
    check_ordering_number("epoch", manifest.epoch)
    check_ordering_number("timestamp_ms", manifest.timestamp_ms)
    if manifest.parent_id is not None:
        check_ordering_number("parent_id", manifest.parent_id)
    for name, epoch in manifest.sink_epochs.items():
        check_ordering_number(f"epoch of sink {name!r}", epoch)
    for kind, checkpoints in ((SOURCE, manifest.source_offsets), (TABLE, manifest.table_offsets)):
        for name, found in checkpoints.items():
            check_ordering_number(f"epoch of {kind} {name!r}", found.epoch)


def offsets_table(manifest: CheckpointManifest, context: SaveContext) -> pa.Table:
    """The rows of `source_offsets` for one manifest; staging says under which part."""
    check_numbers(manifest)
    fixed = {
        "pipeline": context.pipeline,
        "checkpoint_id": manifest.checkpoint_id,
        "attempt_id": context.attempt_id,
        "generation": context.generation,
        "part_id": None,
    }
    rows = [
        {
            **fixed,
            "kind": kind,
            "name": name,
            "epoch": found.epoch,
            "watermark": manifest.source_watermarks.get(name) if kind == SOURCE else None,
            "offsets": list(found.offsets.items()),
            "metadata": list(found.metadata.items()),
        }
        for kind, checkpoints in ((SOURCE, manifest.source_offsets), (TABLE, manifest.table_offsets))
        for name, found in checkpoints.items()
    ]
    return pa.Table.from_pylist(rows, schema=SOURCE_OFFSETS.schema)


def manifest_from_rows(row: Row, offsets: Iterable[Row]) -> CheckpointManifest:
    """The manifest of one row of `manifests` and its rows of `source_offsets`, with the statuses as saved."""
    connectors: dict[str, dict[str, ConnectorCheckpoint]] = {SOURCE: {}, TABLE: {}}
    for found in offsets:
        connectors[found["kind"]][found["name"]] = ConnectorCheckpoint(
            offsets=dict(found["offsets"]), epoch=found["epoch"], metadata=dict(found["metadata"])
        )
    sinks = row["sinks"]
    inflight: dict[str, list[InFlightRecord]] = {}
    for record in row["inflight"]:
        records = inflight.setdefault(record["operator"], [])
        if record["input_id"] is not None:
            records.append(InFlightRecord(input_id=int(record["input_id"]), data_b64=_text_of(record, "data")))
    return CheckpointManifest(
        version=row["manifest_version"],
        checkpoint_id=row["checkpoint_id"],
        epoch=row["epoch"],
        timestamp_ms=row["timestamp_ms"],
        source_offsets=connectors[SOURCE],
        sink_epochs={sink["name"]: sink["epoch"] for sink in sinks if sink["epoch"] is not None},
        sink_commit_statuses={
            sink["name"]: SinkCommitStatus(kind=SinkCommitKind(sink["status"]), message=sink["error"])
            for sink in sinks
            if sink["status"] is not None
        },
        table_offsets=connectors[TABLE],
        operator_states={entry["operator"]: _operator(entry) for entry in row["operators"]},
        table_store_checkpoint_path=row["table_store_checkpoint_path"],
        wal_position=int(row["wal_position"]),
        per_core_wal_positions=tuple(int(position) for position in row["per_core_wal_positions"]),
        watermark=row["watermark"],
        source_watermarks=dict(row["source_watermarks"]),
        source_names=tuple(row["source_names"]),
        sink_names=tuple(row["sink_names"]),
        pipeline_hash=None if row["pipeline_hash"] is None else int(row["pipeline_hash"]),
        inflight_data={operator: tuple(records) for operator, records in inflight.items()},
        size_bytes=int(row["size_bytes"]),
        is_incremental=row["is_incremental"],
        parent_id=row["parent_id"],
        state_checksum=row["state_checksum"],
    )


def _manifest_row(manifest: CheckpointManifest, context: SaveContext) -> Row:
    check_numbers(manifest)
    sink_names = [*manifest.sink_epochs, *(n for n in manifest.sink_commit_statuses if n not in manifest.sink_epochs)]
    return {
        "pipeline": validate_pipeline_name(context.pipeline),
        "checkpoint_id": manifest.checkpoint_id,
        "epoch": manifest.epoch,
        "timestamp_ms": manifest.timestamp_ms,
        "created_at": created_at(manifest.timestamp_ms),
        "attempt_id": context.attempt_id,
        "generation": check_ordering_number("generation", context.generation),
        "ordinal": context.ordinal,
        "external_id": context.external_id,
        "parent_id": manifest.parent_id,
        "manifest_version": manifest.version,
        "watermark": manifest.watermark,
        "is_incremental": manifest.is_incremental,
        "vnode_count": context.vnode_count,
        "pipeline_hash": None if manifest.pipeline_hash is None else Decimal(manifest.pipeline_hash),
        "size_bytes": Decimal(manifest.size_bytes),
        "wal_position": Decimal(manifest.wal_position),
        "per_core_wal_positions": [Decimal(position) for position in manifest.per_core_wal_positions],
        "table_store_checkpoint_path": manifest.table_store_checkpoint_path,
        "source_names": list(manifest.source_names),
        "sink_names": list(manifest.sink_names),
        "source_watermarks": list(manifest.source_watermarks.items()),
        "sinks": [_sink(manifest, name) for name in sink_names],
        "operators": [_operator_entry(name, state) for name, state in manifest.operator_states.items()],
        "inflight": [
            entry for name, records in manifest.inflight_data.items() for entry in _inflight_entries(name, records)
        ],
        "state_checksum": manifest.state_checksum,
        "state_needs": list(context.state_needs),
        **_lineage(context.lineage),
        "children": [dict(child) for child in context.children],
        "content_digest": context.content_digest,
    }


def _lineage(lineage: Lineage | None) -> Row:
    pipeline, number, attempt = (lineage.state if lineage is not None else None) or (None, None, None)
    return {
        "state_pipeline": pipeline,
        "state_checkpoint_id": number,
        "state_attempt_id": attempt,
        "derived_how": lineage.how if lineage is not None else None,
        "derived_from_pipeline": lineage.from_pipeline if lineage is not None else None,
        "derived_from_id": lineage.from_id if lineage is not None else None,
        "derived_over_id": lineage.over_id if lineage is not None else None,
        "derived_reason": lineage.reason if lineage is not None else None,
    }


def _sink(manifest: CheckpointManifest, name: str) -> Row:
    status = manifest.sink_commit_statuses.get(name)
    return {
        "name": name,
        "epoch": manifest.sink_epochs.get(name),
        "status": None if status is None else status.kind.value,
        "error": None if status is None else status.message,
    }


def _operator_entry(name: str, state: OperatorCheckpoint) -> Row:
    return {
        "operator": name,
        **_bytes_of(state.state_b64, "state"),
        "external": state.external,
        "external_offset": Decimal(state.external_offset),
        "external_length": Decimal(state.external_length),
    }


def _operator(entry: Row) -> OperatorCheckpoint:
    return OperatorCheckpoint(
        state_b64=_text_of(entry, "state") if entry["state"] is not None or entry["undecoded"] is not None else None,
        external=entry["external"],
        external_offset=int(entry["external_offset"]),
        external_length=int(entry["external_length"]),
    )


def _inflight_entries(name: str, records: Iterable[InFlightRecord]) -> list[Row]:
    entries = [
        {"operator": name, "input_id": Decimal(record.input_id), **_bytes_of(record.data_b64, "data")}
        for record in records
    ]
    # An operator without records is still named in the manifest: an entry without an input stands for it.
    return entries or [{"operator": name, "input_id": None, "data": None, "undecoded": None}]


def _bytes_of(text: str | None, column: str) -> Row:
    """Base64 text as bytes; what is not canonical base64 stays text, under `undecoded`."""
    if text is None:
        return {column: None, "undecoded": None}
    try:
        return {column: decode_base64(text), "undecoded": None}
    except ValueError:
        return {column: None, "undecoded": text}


def _text_of(entry: Row, column: str) -> str:
    return encode_base64(entry[column]) if entry[column] is not None else str(entry["undecoded"])
