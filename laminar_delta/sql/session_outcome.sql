-- What became of the session, from the rows; at any time after the commit, also if its answer was lost.
--   committed   everything is visible, or was until others wrote over it
--   fenced      another writer took over: stop
--   damaged     rows of the pipeline were deleted or changed by hand, and nothing was committed: a session in Python heals them
--               as long as an earlier version has them, and says so otherwise
--   open        nobody committed since the session began, it neither: commit, again if need be
--   lost        another session committed first: begin again, or set laminar_ordinal to `ordinal` and commit again
--   unknown     several committed since, and no row says that this one did; it may have, and others wrote over all its rows.
--               Do not commit it again unless the counts of the MERGE said 0; DESCRIBE HISTORY source_checkpoints shows it if
--               its userMetadata says so (session_label.sql)
SELECT
  CASE
    WHEN committed THEN 'committed'
    WHEN generation > laminar_generation THEN 'fenced'
    WHEN stated <> total OR NOT intact THEN 'damaged'
    WHEN generation = laminar_generation AND ordinal = laminar_ordinal THEN 'open'
    -- One commit since, and the head row says whose.
    WHEN generation = laminar_generation AND ordinal = laminar_ordinal + 1 THEN 'lost'
    ELSE 'unknown'
  END AS outcome,
  generation,
  ordinal,
  session_id,
  changed_by
FROM (
  SELECT
    coalesce(bool_or(session_id = laminar_session), FALSE) AS committed,
    max(sequence) FILTER (WHERE kind = 'head') AS stated,
    coalesce(sum(checksum + 4294967296) FILTER (WHERE kind <> 'head'), 0) AS total,
    bool_and(checksum <=> crc32(concat_ws(
      '|',
      kind,
      source,
      coalesce(CAST(sequence AS STRING), '-'),
      coalesce(hex(position), '-'),
      coalesce(CAST(config_hash AS STRING), '-')
    ))) AS intact,
    max(generation) FILTER (WHERE kind = 'head') AS generation,
    max(ordinal) FILTER (WHERE kind = 'head') AS ordinal,
    max(session_id) FILTER (WHERE kind = 'head') AS session_id,
    max(changed_by) FILTER (WHERE kind = 'head') AS changed_by
  FROM source_checkpoints
  WHERE pipeline = laminar_pipeline
);
