"""The questions a report asks of the views: one text for every engine, and none that reads the state itself."""

from __future__ import annotations

from collections.abc import Sequence

QUERIES = {
    "checkpoints": """
        SELECT
          c.pipeline, c.checkpoint_id, c.epoch, c.created_at, c.generation, c.attempt_id, c.watermark, c.size_bytes,
          c.is_pinned, c.is_abandoned, c.derived_how, w.owner
        FROM checkpoints AS c
        LEFT JOIN writers AS w ON w.pipeline = c.pipeline AND w.generation = c.generation
        WHERE TRUE {chosen}
        ORDER BY c.pipeline, c.checkpoint_id""",
    "heads": """
        SELECT
          c.pipeline, c.checkpoint_id, c.epoch, c.timestamp_ms, c.attempt_id, c.generation, c.parent_id,
          c.state_checkpoint_id, c.state_pipeline, c.state_needs
        FROM manifests AS c
        WHERE TRUE {chosen}""",
    # Before compression: that is told by a column beside the state, which is not read.
    "sizes": """
        SELECT c.pipeline, c.checkpoint_id, 'full' AS form, SUM(c.raw_length) AS bytes
        FROM operator_snapshots AS c
        JOIN manifest_parts AS p
          ON p.pipeline = c.pipeline AND p.checkpoint_id = c.checkpoint_id AND p.attempt_id = c.attempt_id
          AND p.part_id = c.part_id
        WHERE p.table_name = 'operator_snapshots' AND c.chunk >= 0 {chosen}
        GROUP BY c.pipeline, c.checkpoint_id
        UNION ALL
        SELECT c.pipeline, c.checkpoint_id, 'delta' AS form, SUM(c.raw_length) AS bytes
        FROM operator_deltas AS c
        JOIN manifest_parts AS p
          ON p.pipeline = c.pipeline AND p.checkpoint_id = c.checkpoint_id AND p.attempt_id = c.attempt_id
          AND p.part_id = c.part_id
        WHERE p.table_name = 'operator_deltas' AND c.chunk >= 0 {chosen}
        GROUP BY c.pipeline, c.checkpoint_id
        UNION ALL
        SELECT c.pipeline, c.checkpoint_id, 'inline' AS form, SUM(c.raw_bytes) AS bytes
        FROM state_usage AS c
        WHERE c.storage = 'inline' {chosen}
        GROUP BY c.pipeline, c.checkpoint_id
        ORDER BY 1, 2, 3""",
    "sinks": """
        SELECT c.pipeline, c.checkpoint_id, c.sink, c.status, c.error
        FROM sink_history AS c
        WHERE c.is_current {chosen}
        ORDER BY c.pipeline, c.checkpoint_id, c.sink""",
    "offsets": """
        SELECT c.pipeline, c.checkpoint_id, c.name, c.partition_key, c.offset_number
        FROM offsets_history AS c
        WHERE TRUE {chosen}
        ORDER BY c.pipeline, c.checkpoint_id, c.name, c.partition_key""",
    "recoveries": """
        SELECT
          c.pipeline, c.recovery_id, c.started_at, c.elapsed_ms, c.chosen_id, c.examined, c.skipped, c.healed, c.owner
        FROM recovery_history AS c
        WHERE TRUE {chosen}
        ORDER BY c.started_at""",
    "steps": """
        SELECT c.pipeline, c.recovery_id, c.checkpoint_id, c.outcome, c.reason
        FROM recovery_steps AS c
        WHERE TRUE {chosen}
        ORDER BY c.started_at, c.checkpoint_id DESC""",
    "writers": """
        SELECT c.pipeline, c.generation, c.owner, c.taken_at
        FROM writers AS c
        WHERE TRUE {chosen}
        ORDER BY c.pipeline, c.generation""",
    "decisions": """
        SELECT c.pipeline, c.checkpoint_id, c.decision, c.decided_at, c.decided_by, c.reason
        FROM retention AS c
        WHERE TRUE {chosen}
        ORDER BY c.pipeline, c.ordinal""",
}
"""By the name of what they bring. `{chosen}` is where the pipelines are narrowed down."""


def question(text: str, pipelines: Sequence[str] | None) -> str:
    """A query for some pipelines, or for all."""
    if pipelines is None:
        return text.replace("{chosen}", "")
    quoted = ", ".join("'" + name.replace("'", "''") + "'" for name in pipelines) or "NULL"
    return text.replace("{chosen}", f"AND c.pipeline IN ({quoted})")
