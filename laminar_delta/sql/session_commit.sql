-- Commits the session: everything staged for it, in one MERGE. The counts tell: no row affected means that it was kept out,
-- by another session that committed first, by a writer that took over, or because rows of the pipeline are lost or were changed.
-- session_outcome.sql says which.
MERGE INTO source_checkpoints AS target
USING (
  WITH
  -- The fence: no row, unless the head row is the one the session began with.
  -- And none when rows of the pipeline are lost: the head row has, as its sequence, the sum over all others. Nor when one is not
  -- as it was committed: its checksum tells, and a commit would give what was made of it by hand a fitting one.
  known AS (
    SELECT
      coalesce(sum(checksum + 4294967296) FILTER (WHERE kind <> 'head'), 0) AS total,
      bool_and(checksum <=> crc32(concat_ws(
        '|',
        kind,
        source,
        coalesce(CAST(sequence AS STRING), '-'),
        coalesce(hex(position), '-'),
        coalesce(CAST(config_hash AS STRING), '-')
      ))) AS intact
    FROM source_checkpoints
    WHERE pipeline = laminar_pipeline
  ),
  head AS (
    SELECT there.config_hash
    FROM source_checkpoints AS there CROSS JOIN known
    WHERE there.pipeline = laminar_pipeline
      AND there.kind = 'head'
      AND there.generation = laminar_generation
      AND there.ordinal = laminar_ordinal
      AND coalesce(there.sequence, known.total) = known.total
      AND known.intact
  ),
  -- Tasks can append rows themselves, so each is looked at here as session_stage.sql does, whether or not it would count.
  told AS (
    SELECT
      CASE
        WHEN coalesce(kind, 'source') = 'source' AND octet_length(position) > 65536
        THEN raise_error('a position has more than 65536 bytes; the last good one is kept')
        WHEN coalesce(kind, 'source') IN ('source', 'result') AND source <> '' AND sequence >= 0 THEN coalesce(kind, 'source')
        WHEN kind = 'config' AND config_hash BETWEEN 0 AND 18446744073709551615 THEN kind
        WHEN kind = 'clear' THEN kind
        ELSE raise_error('a step is a source or a result with a name and a sequence, a config with its hash, or a clear')
      END AS kind,
      coalesce(source, '') AS source,
      sequence,
      position,
      config_hash
    FROM session_steps
    WHERE pipeline = laminar_pipeline AND session_id = laminar_session
  ),
  -- A step says what its kind says; whatever else stands in its row counts for nothing.
  steps AS (
    SELECT
      kind,
      source,
      CASE WHEN kind IN ('source', 'result') THEN sequence END AS sequence,
      CASE WHEN kind = 'source' THEN position END AS position,
      CASE WHEN kind = 'config' THEN config_hash END AS config_hash
    FROM told
  ),
  -- Of several rows for one source the highest sequence counts, then the highest position.
  ranked AS (
    SELECT
      kind, source, sequence, position, config_hash,
      row_number() OVER (
        PARTITION BY kind, source
        ORDER BY sequence DESC NULLS LAST, position DESC NULLS LAST, config_hash DESC NULLS LAST
      ) AS place
    FROM steps
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
  ),
  changed AS (
    SELECT
      staged.kind,
      staged.source,
      -- A result sequence only ever rises, until a clear.
      CASE
        WHEN staged.kind = 'result' AND NOT asked.cleared
        THEN greatest(staged.sequence, coalesce(there.sequence, staged.sequence))
        ELSE staged.sequence
      END AS sequence,
      staged.position,
      CAST(NULL AS DECIMAL(20, 0)) AS config_hash
    FROM staged CROSS JOIN asked CROSS JOIN head
    LEFT JOIN source_checkpoints AS there
      ON there.pipeline = laminar_pipeline AND there.kind = staged.kind AND there.source = staged.source
    WHERE staged.kind IN ('source', 'result')
    UNION ALL
    -- What a clear removes: rows without a sequence.
    SELECT there.kind, there.source, CAST(NULL AS BIGINT), CAST(NULL AS BINARY), CAST(NULL AS DECIMAL(20, 0))
    FROM source_checkpoints AS there CROSS JOIN asked CROSS JOIN head
    LEFT ANTI JOIN staged ON there.kind = staged.kind AND there.source = staged.source
    WHERE there.pipeline = laminar_pipeline AND there.kind <> 'head' AND asked.cleared
  ),
  -- The sum over the rows that will be there.
  later AS (
    SELECT coalesce(sum(checksum + 4294967296), 0) AS total
    FROM (
      SELECT
        crc32(concat_ws(
          '|', kind, source, CAST(sequence AS STRING), coalesce(hex(position), '-'), '-'
        )) AS checksum
      FROM changed
      WHERE sequence IS NOT NULL
      UNION ALL
      SELECT there.checksum
      FROM source_checkpoints AS there
      LEFT ANTI JOIN changed ON there.kind = changed.kind AND there.source = changed.source
      WHERE there.pipeline = laminar_pipeline AND there.kind <> 'head'
    )
  ),
  changes AS (
    SELECT kind, source, sequence, position, config_hash FROM changed
    UNION ALL
    SELECT
      'head', '', later.total, CAST(NULL AS BINARY),
      coalesce(asked.config_hash, CASE WHEN asked.cleared THEN NULL ELSE head.config_hash END)
    FROM head CROSS JOIN asked CROSS JOIN later
    WHERE asked.steps > 0
  )
  SELECT
    *,
    crc32(concat_ws(
      '|',
      kind,
      source,
      coalesce(CAST(sequence AS STRING), '-'),
      coalesce(hex(position), '-'),
      coalesce(CAST(config_hash AS STRING), '-')
    )) AS checksum
  FROM changes
) AS source
ON target.pipeline = laminar_pipeline AND target.kind = source.kind AND target.source = source.source
WHEN MATCHED AND source.kind = 'head' THEN UPDATE SET
  sequence = source.sequence,
  config_hash = source.config_hash,
  checksum = source.checksum,
  ordinal = target.ordinal + 1,
  session_id = laminar_session,
  changed_at = current_timestamp(),
  changed_by = laminar_owner
WHEN MATCHED AND source.sequence IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET
  sequence = source.sequence,
  position = source.position,
  checksum = source.checksum,
  session_id = laminar_session,
  changed_at = current_timestamp(),
  changed_by = laminar_owner
WHEN NOT MATCHED AND source.sequence IS NOT NULL AND source.kind <> 'head' THEN
  INSERT (pipeline, kind, source, sequence, position, checksum, session_id, changed_at, changed_by)
  VALUES (
    laminar_pipeline, source.kind, source.source, source.sequence, source.position, source.checksum,
    laminar_session, current_timestamp(), laminar_owner
  );
