"""The tables of a catalog: columns, layout, properties. `docs/format.md` says the same for people; a test compares the two.

Numbers that identify or order are BIGINT, because engines filter by them and statistics on them are exact. Any other u64 is
DECIMAL(20,0): it keeps its full range, is never filtered on, and is left out of statistics, which delta-rs would round.
Hot tables are append-only and unpartitioned, so that pipelines never disturb one another and can share a commit; tables that
are merged or deleted from are partitioned by pipeline, because a partition literal is what narrows a conflict.
"""

from __future__ import annotations

import pyarrow as pa

from laminar_delta.engine.request import TableSpec

FORMAT_VERSION = 1
"""Raised whenever a reader of the earlier version would misread a catalog."""

PAYLOADS = ("data",)
"""Columns of child tables that hold state: left out of digests over rows, because chunks carry a checksum of their own."""

FORMAT_PROPERTY = "laminar.format"
"""The table property that holds `FORMAT_VERSION`, on every table."""

ENGINE_PROPERTY = "laminar.engine"
"""The table property that names the one engine that commits to a catalog, on every table."""

TEXT = pa.string()
NUMBER = pa.int64()
WHOLE = pa.decimal128(20, 0)
BYTES = pa.binary()
FLAG = pa.bool_()
RATE = pa.float64()
MOMENT = pa.timestamp("us", tz="UTC")
TEXTS = pa.list_(TEXT)
TEXT_MAP = pa.map_(TEXT, TEXT)
NUMBER_MAP = pa.map_(TEXT, NUMBER)

HEALING_WINDOW = "interval 7 days"
"""How long removed files and log entries are kept: as far back as healing and `as_of` reach."""

_PROPERTIES = {
    FORMAT_PROPERTY: str(FORMAT_VERSION),
    # Off explicitly: a platform's defaults may turn on what one of the engines cannot read or write.
    "delta.enableDeletionVectors": "false",
    "delta.enableRowTracking": "false",
    "delta.checkpointPolicy": "classic",
    # Databricks defaults to less, where a merge does not conflict with an append.
    "delta.isolationLevel": "Serializable",
    "delta.logRetentionDuration": HEALING_WINDOW,
    "delta.deletedFileRetentionDuration": HEALING_WINDOW,
    # Maintenance cleans the log after it has flushed the log checkpoint that replaces it; nothing else does.
    "delta.enableExpiredLogCleanup": "false",
    # Replaying 50 small entries costs less than a log checkpoint every 10 commits.
    "delta.checkpointInterval": "50",
}

_SINK = pa.struct([("name", TEXT), ("epoch", NUMBER), ("status", TEXT), ("error", TEXT)])
_OPERATOR = pa.struct(
    [
        ("operator", TEXT),
        ("state", BYTES),
        ("undecoded", TEXT),
        ("external", FLAG),
        ("external_offset", WHOLE),
        ("external_length", WHOLE),
    ]
)
_INFLIGHT = pa.struct([("operator", TEXT), ("input_id", WHOLE), ("data", BYTES), ("undecoded", TEXT)])
_CHILDREN = pa.struct([("table", TEXT), ("version", NUMBER), ("parts", TEXTS), ("rows", NUMBER), ("digest", TEXT)])
_STORE = pa.struct([("table", TEXT), ("checkpoint_id", NUMBER), ("attempt_id", TEXT), ("raw_bytes", NUMBER)])
_ORIGIN = pa.struct([("table", TEXT), ("checkpoint_id", NUMBER), ("attempt_id", TEXT)])
_SKIPPED = pa.struct([("checkpoint_id", NUMBER), ("reason", TEXT)])
_HEALED = pa.struct([("checkpoint_id", NUMBER), ("table", TEXT), ("version", NUMBER), ("reason", TEXT)])
_PROGRESS_SOURCE = pa.struct(
    [
        ("description", TEXT),
        ("start_offset", TEXT),
        ("end_offset", TEXT),
        ("latest_offset", TEXT),
        ("input_rows", NUMBER),
        ("input_rows_per_second", RATE),
        ("processed_rows_per_second", RATE),
        ("metrics", TEXT_MAP),
    ]
)
_PROGRESS_STATE = pa.struct(
    [
        ("operator", TEXT),
        ("rows_total", NUMBER),
        ("rows_updated", NUMBER),
        ("rows_removed", NUMBER),
        ("rows_dropped", NUMBER),
        ("memory_bytes", NUMBER),
        ("partitions", NUMBER),
        ("commit_ms", NUMBER),
        ("metrics", NUMBER_MAP),
    ]
)


def _spec(
    name: str, comment: str, columns: dict[str, pa.DataType], *, stats: str, partition_by: tuple[str, ...] = ()
) -> TableSpec:
    return TableSpec(
        name=name,
        schema=pa.schema(list(columns.items())),
        partition_by=partition_by,
        properties={**_PROPERTIES, "delta.dataSkippingStatsColumns": stats},
        comment=comment,
    )


MANIFESTS = _spec(
    "manifests",
    "One row is one committed checkpoint; nothing else makes one",
    {
        "pipeline": TEXT,
        "checkpoint_id": NUMBER,
        "epoch": NUMBER,
        "timestamp_ms": NUMBER,
        "created_at": MOMENT,
        "attempt_id": TEXT,
        "generation": NUMBER,
        "ordinal": NUMBER,
        "external_id": TEXT,
        "parent_id": NUMBER,
        "manifest_version": NUMBER,
        "watermark": NUMBER,
        "is_incremental": FLAG,
        "vnode_count": pa.int32(),
        "pipeline_hash": WHOLE,
        "size_bytes": WHOLE,
        "wal_position": WHOLE,
        "per_core_wal_positions": pa.list_(WHOLE),
        "table_store_checkpoint_path": TEXT,
        "source_names": TEXTS,
        "sink_names": TEXTS,
        "source_watermarks": pa.map_(TEXT, NUMBER),
        "sinks": pa.list_(_SINK),
        "operators": pa.list_(_OPERATOR),
        "inflight": pa.list_(_INFLIGHT),
        "state_checksum": TEXT,
        "state_needs": pa.list_(NUMBER),
        "state_pipeline": TEXT,
        "state_checkpoint_id": NUMBER,
        "state_attempt_id": TEXT,
        "derived_how": TEXT,
        "derived_from_pipeline": TEXT,
        "derived_from_id": NUMBER,
        "derived_over_id": NUMBER,
        "derived_reason": TEXT,
        "children": pa.list_(_CHILDREN),
        "content_digest": TEXT,
    },
    stats="pipeline,checkpoint_id,epoch,timestamp_ms,attempt_id,generation,state_pipeline",
)

SOURCE_OFFSETS = _spec(
    "source_offsets",
    "One row is one source, or reference table, of one checkpoint",
    {
        "pipeline": TEXT,
        "checkpoint_id": NUMBER,
        "attempt_id": TEXT,
        "generation": NUMBER,
        "part_id": TEXT,
        "kind": TEXT,
        "name": TEXT,
        "epoch": NUMBER,
        "watermark": NUMBER,
        "offsets": TEXT_MAP,
        "metadata": TEXT_MAP,
    },
    stats="pipeline,checkpoint_id,attempt_id",
)

SINK_STATUSES = _spec(
    "sink_statuses",
    "One row is one status change of one sink of one checkpoint",
    {
        "pipeline": TEXT,
        "checkpoint_id": NUMBER,
        "attempt_id": TEXT,
        "sink": TEXT,
        "epoch": NUMBER,
        "status": TEXT,
        "error": TEXT,
        "generation": NUMBER,
        "ordinal": NUMBER,
        "changed_at": MOMENT,
        "changed_by": TEXT,
        "digest": TEXT,
    },
    stats="pipeline,checkpoint_id,attempt_id",
)

_STATE_COLUMNS: dict[str, pa.DataType] = {
    "pipeline": TEXT,
    "checkpoint_id": NUMBER,
    "attempt_id": TEXT,
    "generation": NUMBER,
    "part_id": TEXT,
    "operator": TEXT,
    "partition": NUMBER,
    "chunk": NUMBER,
    "raw_length": NUMBER,
    "xxh3": WHOLE,
    "names": BYTES,
    "block_bytes": NUMBER,
    "checksum": TEXT,
    "stores": pa.list_(_STORE),
    "apply": TEXT,
    "upon": pa.list_(_ORIGIN),
    "data": BYTES,
}

OPERATOR_SNAPSHOTS = _spec(
    "operator_snapshots",
    "One row is one chunk of the full state of one operator partition, or its layout",
    _STATE_COLUMNS,
    stats="attempt_id,operator,partition,chunk",
    partition_by=("pipeline", "checkpoint_id"),
)

OPERATOR_DELTAS = _spec(
    "operator_deltas",
    "One row is blocks of one operator partition that the checkpoints before do not have, or its layout",
    _STATE_COLUMNS,
    stats="attempt_id,operator,partition,chunk",
    partition_by=("pipeline", "checkpoint_id"),
)

SOURCE_CHECKPOINTS = _spec(
    "source_checkpoints",
    "One row is the current position of one source; one head row per pipeline holds what fences and describes them",
    {
        "pipeline": TEXT,
        "kind": TEXT,
        "source": TEXT,
        "sequence": NUMBER,
        "position": BYTES,
        "config_hash": WHOLE,
        "checksum": NUMBER,
        "generation": NUMBER,
        "ordinal": NUMBER,
        "session_id": TEXT,
        "changed_at": MOMENT,
        "changed_by": TEXT,
    },
    stats="kind,source,generation",
    partition_by=("pipeline",),
)

SESSION_STEPS = _spec(
    "session_steps",
    "One row is one step that a task staged for a session; it changes nothing until the session's commit",
    {
        "pipeline": TEXT,
        "session_id": TEXT,
        "generation": NUMBER,
        "kind": TEXT,
        "source": TEXT,
        "sequence": NUMBER,
        "position": BYTES,
        "config_hash": WHOLE,
        "staged_at": MOMENT,
        "staged_by": TEXT,
    },
    stats="session_id,generation",
    partition_by=("pipeline",),
)

WRITERS = _spec(
    "writers",
    "One row is one generation of one pipeline's writer",
    {
        "pipeline": TEXT,
        "generation": NUMBER,
        "owner": TEXT,
        "host": TEXT,
        "pid": NUMBER,
        "taken_at": MOMENT,
        "released_at": MOMENT,
        "reason": TEXT,
    },
    stats="generation",
    partition_by=("pipeline",),
)

RETENTION = _spec(
    "retention",
    "One row is one decision: pinned, released, retired, restored, removed, abandoned, resumed, burned",
    {
        "pipeline": TEXT,
        "checkpoint_id": NUMBER,
        "ordinal": NUMBER,
        "decision": TEXT,
        "decision_id": TEXT,
        "reason": TEXT,
        "generation": NUMBER,
        "decided_at": MOMENT,
        "decided_by": TEXT,
        "digest": TEXT,
    },
    stats="pipeline,checkpoint_id,ordinal,decision_id",
)

RECOVERIES = _spec(
    "recoveries",
    "One row is one recovery report",
    {
        "pipeline": TEXT,
        "recovery_id": TEXT,
        "chosen_id": NUMBER,
        "examined": NUMBER,
        "skipped": pa.list_(_SKIPPED),
        "healed": pa.list_(_HEALED),
        "notes": TEXTS,
        "generation": NUMBER,
        "owner": TEXT,
        "started_at": MOMENT,
        "elapsed_ms": NUMBER,
        "report": TEXT,
    },
    stats="pipeline,recovery_id",
)

STATE_BATCHES = _spec(
    "state_batches",
    "One row is one LCB1 batch",
    {
        "pipeline": TEXT,
        "epoch": NUMBER,
        "ordinal": NUMBER,
        "attempt_id": TEXT,
        "entries": NUMBER,
        "raw_length": NUMBER,
        "payload": BYTES,
    },
    stats="epoch,ordinal,attempt_id",
    partition_by=("pipeline",),
)

TABLES = (
    SOURCE_OFFSETS,
    SINK_STATUSES,
    OPERATOR_SNAPSHOTS,
    OPERATOR_DELTAS,
    SOURCE_CHECKPOINTS,
    SESSION_STEPS,
    WRITERS,
    RETENTION,
    RECOVERIES,
    STATE_BATCHES,
    MANIFESTS,
)
"""The tables of every catalog, in the order they are created: `manifests` last, so that where it is, the others are."""

QUERY_PROGRESS = _spec(
    "query_progress",
    "One row is what a streaming query said of itself at one moment",
    {
        "attempt_id": TEXT,
        "pipeline": TEXT,
        "query_id": TEXT,
        "run_id": TEXT,
        "query_name": TEXT,
        "event": TEXT,
        "batch_id": NUMBER,
        "timestamp_ms": NUMBER,
        "told_at": MOMENT,
        "watermark": NUMBER,
        "batch_ms": NUMBER,
        "input_rows": NUMBER,
        "input_rows_per_second": RATE,
        "processed_rows_per_second": RATE,
        "output_rows": NUMBER,
        "state_rows": NUMBER,
        "state_bytes": NUMBER,
        "durations": NUMBER_MAP,
        "sources": pa.list_(_PROGRESS_SOURCE),
        "state_operators": pa.list_(_PROGRESS_STATE),
        "sink": TEXT,
        "error": TEXT,
        "recorded_by": TEXT,
        "progress": TEXT,
    },
    stats="attempt_id,pipeline,query_id,timestamp_ms",
)

LATER = (QUERY_PROGRESS,)
"""Tables that came after a format was released, made when first needed (`catalog/later.py`): a catalog may be without."""

BY_NAME = {spec.name: spec for spec in (*TABLES, *LATER)}
