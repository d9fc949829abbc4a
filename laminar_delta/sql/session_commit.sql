-- Commits the session: everything staged for it, in one MERGE. The counts tell: no row affected means that it was kept out,
-- by another session that committed first or by a writer that took over. session_outcome.sql says which.
MERGE INTO source_checkpoints AS target
USING (
  WITH
  -- The fence: no row, unless the head row is the one the session began with.
  head AS (
    SELECT config_hash
    FROM source_checkpoints
    WHERE pipeline = laminar_pipeline
      AND kind = 'head'
      AND generation = laminar_generation
      AND ordinal = laminar_ordinal
  ),
  -- Of several rows for one source the highest sequence counts, then the highest position.
  ranked AS (
    SELECT
      kind, source, sequence, position, config_hash,
      row_number() OVER (
        PARTITION BY kind, source
        ORDER BY sequence DESC NULLS LAST, position DESC NULLS LAST, config_hash DESC NULLS LAST
      ) AS place
    FROM session_steps
    WHERE pipeline = laminar_pipeline AND session_id = laminar_session
  ),
  staged AS (
    SELECT kind, source, sequence, position, config_hash FROM ranked WHERE place = 1
  ),
  asked AS (
    SELECT
      count(*) AS steps,
      coalesce(bool_or(kind = 'clear'), FALSE) AS cleared,
      max(config_hash) AS config_hash
    FROM staged
  )
  SELECT
    staged.kind, staged.source, staged.sequence, staged.position,
    CAST(NULL AS DECIMAL(20, 0)) AS config_hash,
    asked.cleared
  FROM staged CROSS JOIN asked CROSS JOIN head
  WHERE staged.kind IN ('source', 'result')
  UNION ALL
  -- What a clear removes: rows without a sequence.
  SELECT
    there.kind, there.source, CAST(NULL AS BIGINT), CAST(NULL AS BINARY), CAST(NULL AS DECIMAL(20, 0)), asked.cleared
  FROM source_checkpoints AS there CROSS JOIN asked CROSS JOIN head
  LEFT ANTI JOIN staged ON there.kind = staged.kind AND there.source = staged.source
  WHERE there.pipeline = laminar_pipeline AND there.kind <> 'head' AND asked.cleared
  UNION ALL
  SELECT
    'head', '', CAST(NULL AS BIGINT), CAST(NULL AS BINARY),
    coalesce(asked.config_hash, CASE WHEN asked.cleared THEN NULL ELSE head.config_hash END),
    asked.cleared
  FROM head CROSS JOIN asked
  WHERE asked.steps > 0
) AS source
ON target.pipeline = laminar_pipeline AND target.kind = source.kind AND target.source = source.source
WHEN MATCHED AND source.kind = 'head' THEN UPDATE SET
  config_hash = source.config_hash,
  ordinal = target.ordinal + 1,
  session_id = laminar_session,
  changed_at = current_timestamp(),
  changed_by = laminar_owner
WHEN MATCHED AND source.sequence IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET
  -- A result sequence only ever rises, until a clear.
  sequence = CASE
    WHEN source.kind = 'result' AND NOT source.cleared THEN greatest(source.sequence, target.sequence)
    ELSE source.sequence
  END,
  position = source.position,
  session_id = laminar_session,
  changed_at = current_timestamp(),
  changed_by = laminar_owner
WHEN NOT MATCHED AND source.sequence IS NOT NULL THEN
  INSERT (pipeline, kind, source, sequence, position, session_id, changed_at, changed_by)
  VALUES (
    laminar_pipeline, source.kind, source.source, source.sequence, source.position,
    laminar_session, current_timestamp(), laminar_owner
  );
