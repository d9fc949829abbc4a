"""The catalog as SQL users see it: views that reach children only the way readers must. `docs/sql.md` describes them.

Each is defined once, for DataFusion and Spark (`engine/sql.py` spells `EACH` and `BYTES`). A view may use those before it.
All but the recoveries show what readers see: checkpoints that are not retired. The tables themselves can be asked too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from laminar_delta.catalog.tables import MANIFESTS, QUERY_PROGRESS

_COLUMNS = ",\n  ".join(f"m.{field.name}" for field in MANIFESTS.schema if not pa.types.is_nested(field.type))

CHECKPOINTS = f"""
-- Decisions are replayed in their order: of retired and restored the last one stands, and what is removed stays so. A writer
-- that was taken over cannot abandon what its successor, of a higher generation, resumed from.
SELECT
  {_COLUMNS},
  m.source_names,
  m.sink_names,
  d.pinned IS NOT NULL AND (d.released IS NULL OR d.released < d.pinned) AS is_pinned,
  d.abandoned IS NOT NULL AS is_abandoned
FROM manifests AS m
LEFT JOIN (
  SELECT
    pipeline,
    checkpoint_id,
    MAX(CASE WHEN decision = 'retired' THEN ordinal END) AS retired,
    MAX(CASE WHEN decision = 'restored' THEN ordinal END) AS restored,
    MAX(CASE WHEN decision = 'removed' THEN ordinal END) AS removed,
    MAX(CASE WHEN decision = 'pinned' THEN ordinal END) AS pinned,
    MAX(CASE WHEN decision = 'released' THEN ordinal END) AS released,
    MAX(CASE WHEN decision = 'abandoned' AND generation >= COALESCE(resumed_by, 0) THEN ordinal END) AS abandoned
  FROM (
    SELECT
      pipeline, checkpoint_id, ordinal, decision, generation,
      MAX(CASE WHEN decision = 'resumed' THEN generation END)
        OVER (PARTITION BY pipeline ORDER BY ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS resumed_by
    FROM retention
  ) AS decided
  GROUP BY pipeline, checkpoint_id
) AS d ON d.pipeline = m.pipeline AND d.checkpoint_id = m.checkpoint_id
WHERE d.removed IS NULL AND (d.retired IS NULL OR d.restored > d.retired)
"""

LATEST_CHECKPOINTS = """
SELECT c.*
FROM checkpoints AS c
JOIN (
  SELECT pipeline, MAX(checkpoint_id) AS checkpoint_id FROM checkpoints GROUP BY pipeline
) AS newest ON newest.pipeline = c.pipeline AND newest.checkpoint_id = c.checkpoint_id
"""

MANIFEST_PARTS = """
-- Rows of a child table are a checkpoint's own where attempt and part are these.
SELECT pipeline, checkpoint_id, attempt_id, child['table'] AS table_name, EACH(child['parts']) AS part_id
FROM (SELECT pipeline, checkpoint_id, attempt_id, EACH(children) AS child FROM manifests) AS entries
"""

OFFSETS_HISTORY = """
WITH flat AS (
  SELECT
    pipeline, checkpoint_id, attempt_id, part_id, kind, name, epoch, watermark,
    entry['key'] AS partition_key,
    entry['value'] AS offset_text
  FROM (
    SELECT
      pipeline, checkpoint_id, attempt_id, part_id, kind, name, epoch, watermark, EACH(map_entries(offsets)) AS entry
    FROM source_offsets
  ) AS entries
  UNION ALL
  SELECT
    pipeline, checkpoint_id, attempt_id, part_id, kind, name, epoch, watermark,
    CAST(NULL AS STRING) AS partition_key,
    CAST(NULL AS STRING) AS offset_text
  FROM source_offsets
  WHERE cardinality(map_keys(offsets)) = 0
)
SELECT
  c.pipeline,
  c.checkpoint_id,
  c.epoch,
  c.created_at,
  f.kind,
  f.name,
  f.epoch AS source_epoch,
  f.watermark,
  f.partition_key,
  f.offset_text,
  -- Digits and a sign only: what else counts as a number is not the same everywhere.
  CASE WHEN translate(f.offset_text, '0123456789', '') IN ('', '-') THEN TRY_CAST(f.offset_text AS BIGINT) END
    AS offset_number
FROM flat AS f
JOIN manifest_parts AS p
  ON p.pipeline = f.pipeline AND p.checkpoint_id = f.checkpoint_id AND p.attempt_id = f.attempt_id
  AND p.part_id = f.part_id
JOIN checkpoints AS c
  ON c.pipeline = f.pipeline AND c.checkpoint_id = f.checkpoint_id AND c.attempt_id = f.attempt_id
WHERE p.table_name = 'source_offsets'
"""

SINK_HISTORY = """
-- Committed wins for good. Else a change since the save beats the status as saved, and among changes the highest (generation,
-- ordinal); never the clock.
WITH told AS (
  SELECT
    pipeline, checkpoint_id, attempt_id,
    entry['name'] AS sink, entry['epoch'] AS sink_epoch, entry['status'] AS status, entry['error'] AS error,
    TRUE AS is_saved, generation, CAST(NULL AS BIGINT) AS ordinal, created_at AS changed_at,
    CAST(NULL AS STRING) AS changed_by
  FROM (
    SELECT pipeline, checkpoint_id, attempt_id, generation, created_at, EACH(sinks) AS entry FROM manifests
  ) AS entries
  UNION ALL
  SELECT
    pipeline, checkpoint_id, attempt_id, sink, epoch AS sink_epoch, status, error, FALSE AS is_saved,
    generation, ordinal, changed_at, changed_by
  FROM sink_statuses
),
ranked AS (
  SELECT
    told.*,
    ROW_NUMBER() OVER (
      PARTITION BY pipeline, checkpoint_id, attempt_id, sink
      ORDER BY
        CASE WHEN status = 'Committed' THEN 0 ELSE 1 END,
        CASE WHEN is_saved THEN 1 ELSE 0 END,
        generation DESC,
        ordinal DESC
    ) AS place
  FROM told
)
SELECT
  -- Those the windows are divided by, so that a condition on them is applied before anything is ranked.
  r.pipeline,
  r.checkpoint_id,
  c.epoch,
  r.sink,
  r.sink_epoch,
  r.status,
  r.error,
  r.is_saved,
  r.generation,
  r.ordinal,
  r.changed_at,
  r.changed_by,
  r.place = 1 AS is_current,
  MAX(CASE WHEN r.place = 1 THEN r.status END)
    OVER (PARTITION BY r.pipeline, r.checkpoint_id, r.attempt_id, r.sink) AS current_status
FROM ranked AS r
JOIN checkpoints AS c
  ON c.pipeline = r.pipeline AND c.checkpoint_id = r.checkpoint_id AND c.attempt_id = r.attempt_id
"""

STATE_USAGE = """
-- A derived checkpoint lists the parts of its state like any other, but the rows are those of the checkpoint that brought them.
WITH accepted AS (
  SELECT
    c.pipeline, c.checkpoint_id, c.epoch, c.created_at, p.table_name, p.part_id,
    COALESCE(c.state_pipeline, c.pipeline) AS rows_pipeline,
    COALESCE(c.state_checkpoint_id, c.checkpoint_id) AS rows_checkpoint_id,
    COALESCE(c.state_attempt_id, c.attempt_id) AS rows_attempt_id
  FROM checkpoints AS c
  JOIN manifest_parts AS p
    ON p.pipeline = c.pipeline AND p.checkpoint_id = c.checkpoint_id AND p.attempt_id = c.attempt_id
),
inlined AS (
  SELECT
    pipeline, checkpoint_id, attempt_id,
    entry['operator'] AS operator, entry['state'] AS state
  FROM (SELECT pipeline, checkpoint_id, attempt_id, EACH(operators) AS entry FROM manifests) AS entries
),
stored AS (
  SELECT
    'full' AS form, 'operator_snapshots' AS table_name,
    pipeline, checkpoint_id, attempt_id, part_id, operator, partition, chunk, raw_length, data
  FROM operator_snapshots
  UNION ALL
  SELECT
    'delta' AS form, 'operator_deltas' AS table_name,
    pipeline, checkpoint_id, attempt_id, part_id, operator, partition, chunk, raw_length, data
  FROM operator_deltas
)
SELECT
  c.pipeline,
  c.checkpoint_id,
  c.epoch,
  c.created_at,
  i.operator,
  CAST(0 AS BIGINT) AS partition,
  'inline' AS storage,
  'full' AS form,
  CAST(1 AS BIGINT) AS chunks,
  BYTES(state) AS raw_bytes,
  BYTES(state) AS stored_bytes
FROM inlined AS i
JOIN checkpoints AS c
  ON c.pipeline = i.pipeline AND c.checkpoint_id = i.checkpoint_id AND c.attempt_id = i.attempt_id
WHERE i.state IS NOT NULL
UNION ALL
SELECT
  a.pipeline,
  a.checkpoint_id,
  a.epoch,
  a.created_at,
  s.operator,
  s.partition,
  'table' AS storage,
  s.form,
  SUM(CASE WHEN s.chunk < 0 THEN CAST(0 AS BIGINT) ELSE CAST(1 AS BIGINT) END) AS chunks,
  MAX(CASE WHEN s.chunk < 0 THEN s.raw_length ELSE CAST(0 AS BIGINT) END) AS raw_bytes,
  SUM(BYTES(data)) AS stored_bytes
FROM stored AS s
JOIN accepted AS a
  ON a.rows_pipeline = s.pipeline AND a.rows_checkpoint_id = s.checkpoint_id AND a.rows_attempt_id = s.attempt_id
  AND a.part_id = s.part_id AND a.table_name = s.table_name
GROUP BY a.pipeline, a.checkpoint_id, a.epoch, a.created_at, s.operator, s.partition, s.form
"""

RECOVERY_HISTORY = """
SELECT
  pipeline,
  recovery_id,
  started_at,
  elapsed_ms,
  chosen_id,
  examined,
  CAST(cardinality(skipped) AS BIGINT) AS skipped,
  CAST(cardinality(healed) AS BIGINT) AS healed,
  generation,
  owner
FROM recoveries
"""

RECOVERY_STEPS = """
SELECT
  pipeline, recovery_id, started_at, chosen_id AS checkpoint_id, 'chosen' AS outcome, CAST(NULL AS STRING) AS reason,
  CAST(NULL AS STRING) AS table_name, CAST(NULL AS BIGINT) AS table_version
FROM recoveries
WHERE chosen_id IS NOT NULL
UNION ALL
SELECT
  pipeline, recovery_id, started_at, entry['checkpoint_id'] AS checkpoint_id, 'skipped' AS outcome,
  entry['reason'] AS reason, CAST(NULL AS STRING) AS table_name, CAST(NULL AS BIGINT) AS table_version
FROM (SELECT pipeline, recovery_id, started_at, EACH(skipped) AS entry FROM recoveries) AS passed_over
UNION ALL
SELECT
  pipeline, recovery_id, started_at, entry['checkpoint_id'] AS checkpoint_id, 'healed' AS outcome,
  entry['reason'] AS reason, entry['table'] AS table_name, entry['version'] AS table_version
FROM (SELECT pipeline, recovery_id, started_at, EACH(healed) AS entry FROM recoveries) AS mended
"""

PROGRESS_HISTORY = """
SELECT
  pipeline, query_id, run_id, query_name, event, batch_id, told_at, watermark, batch_ms, input_rows, input_rows_per_second,
  processed_rows_per_second, output_rows, CAST(cardinality(sources) AS BIGINT) AS sources, state_rows, state_bytes, sink, error
FROM query_progress
"""

PROGRESS_DURATIONS = """
SELECT
  pipeline, query_id, run_id, batch_id, told_at, entry['key'] AS phase, entry['value'] AS elapsed_ms
FROM (
  SELECT pipeline, query_id, run_id, batch_id, told_at, EACH(map_entries(durations)) AS entry FROM query_progress
) AS entries
"""

PROGRESS_SOURCES = """
SELECT
  pipeline, query_id, run_id, batch_id, told_at,
  entry['description'] AS description,
  entry['start_offset'] AS start_offset,
  entry['end_offset'] AS end_offset,
  entry['latest_offset'] AS latest_offset,
  entry['input_rows'] AS input_rows,
  entry['input_rows_per_second'] AS input_rows_per_second,
  entry['processed_rows_per_second'] AS processed_rows_per_second
FROM (
  SELECT pipeline, query_id, run_id, batch_id, told_at, EACH(sources) AS entry FROM query_progress
) AS entries
"""

PROGRESS_STATE = """
SELECT
  pipeline, query_id, run_id, batch_id, told_at,
  entry['operator'] AS operator,
  entry['rows_total'] AS rows_total,
  entry['rows_updated'] AS rows_updated,
  entry['rows_removed'] AS rows_removed,
  entry['rows_dropped'] AS rows_dropped,
  entry['memory_bytes'] AS memory_bytes,
  entry['partitions'] AS partitions,
  entry['commit_ms'] AS commit_ms
FROM (
  SELECT pipeline, query_id, run_id, batch_id, told_at, EACH(state_operators) AS entry FROM query_progress
) AS entries
"""

VIEWS: Mapping[str, str] = {
    "checkpoints": CHECKPOINTS,
    "latest_checkpoints": LATEST_CHECKPOINTS,
    "manifest_parts": MANIFEST_PARTS,
    "offsets_history": OFFSETS_HISTORY,
    "sink_history": SINK_HISTORY,
    "state_usage": STATE_USAGE,
    "recovery_history": RECOVERY_HISTORY,
    "recovery_steps": RECOVERY_STEPS,
    "progress_history": PROGRESS_HISTORY,
    "progress_durations": PROGRESS_DURATIONS,
    "progress_sources": PROGRESS_SOURCES,
    "progress_state": PROGRESS_STATE,
}
"""All views by name, each after those it uses."""

_OF_A_BATCH = {
    "pipeline": "STRING",
    "query_id": "STRING",
    "run_id": "STRING",
    "batch_id": "BIGINT",
    "told_at": "TIMESTAMP",
}
_RATES = {"input_rows": "BIGINT", "input_rows_per_second": "DOUBLE", "processed_rows_per_second": "DOUBLE"}
_STATE_NUMBERS = (
    "rows_total",
    "rows_updated",
    "rows_removed",
    "rows_dropped",
    "memory_bytes",
    "partitions",
    "commit_ms",
)

_OF_LATER_TABLES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    QUERY_PROGRESS.name: {
        "progress_history": {
            **dict.fromkeys(("pipeline", "query_id", "run_id", "query_name", "event"), "STRING"),
            "batch_id": "BIGINT",
            "told_at": "TIMESTAMP",
            **dict.fromkeys(("watermark", "batch_ms"), "BIGINT"),
            **_RATES,
            **dict.fromkeys(("output_rows", "sources", "state_rows", "state_bytes"), "BIGINT"),
            **dict.fromkeys(("sink", "error"), "STRING"),
        },
        "progress_durations": {**_OF_A_BATCH, "phase": "STRING", "elapsed_ms": "BIGINT"},
        "progress_sources": {
            **_OF_A_BATCH,
            **dict.fromkeys(("description", "start_offset", "end_offset", "latest_offset"), "STRING"),
            **_RATES,
        },
        "progress_state": {**_OF_A_BATCH, "operator": "STRING", **dict.fromkeys(_STATE_NUMBERS, "BIGINT")},
    }
}
"""Per table that a catalog may be without, the views over it and the columns they have."""


def views_without(missing: Collection[str]) -> Mapping[str, str]:
    """The views of a catalog that is without some later tables: those over them have the same columns, and no rows."""
    views = dict(VIEWS)
    for table in missing:
        for name, columns in _OF_LATER_TABLES[table].items():
            selected = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in columns.items())
            views[name] = f"SELECT {selected} WHERE FALSE"
    return views
