-- What became of the session, from the rows; at any time after the commit, also if its answer was lost.
--   committed   everything is visible, or was until others wrote over it
--   late        it is committed, and not with all that is staged for it now: what came after the commit was not written. Begin
--               another session for that. Told as long as no other session has committed since
--   fenced      another writer took over: stop
--   missing     the pipeline has no row here: laminar_pipeline or the schema is another one, or nobody has taken a generation yet,
--               or all its rows are lost, which a session in Python tells
--   damaged     rows of the pipeline were deleted or changed by hand, and nothing was committed: a session in Python heals them
--               as long as an earlier version has them, and says so otherwise
--   ahead       nobody took laminar_generation here: it is another pipeline's, or the table was restored to before. Take one anew
--   unbegun     session_begin.sql was not run under laminar_generation, or before that was set
--   open        nobody committed since the session began, it neither: commit, again if need be
--   lost        another session committed first: begin again, or set laminar_ordinal to `ordinal` and commit again
--   unknown     several committed since, and no row says that this one did; it may have, and others wrote over all its rows.
--               Do not commit it again unless the counts of the MERGE said 0; DESCRIBE HISTORY source_checkpoints shows it if
--               its userMetadata says so (session_label.sql)
WITH
there AS (
  SELECT * FROM source_checkpoints WHERE pipeline = laminar_pipeline
),
known AS (
  SELECT
    count(*) AS pieces,
    count(*) FILTER (WHERE kind = 'head') AS heads,
    coalesce(bool_or(session_id = laminar_session), FALSE) AS committed,
    coalesce(bool_or(session_id <=> laminar_session) FILTER (WHERE kind = 'head'), FALSE) AS newest,
    coalesce(bool_or(NOT session_id <=> laminar_session), FALSE) AS beside,
    max(sequence) FILTER (WHERE kind = 'head') AS stated,
    max(config_hash) FILTER (WHERE kind = 'head') AS config_hash,
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
  FROM there
),
-- What is staged for it now comes to, as session_commit.sql reckons it.
steps AS (
  SELECT
    coalesce(kind, 'source') AS kind,
    CASE WHEN coalesce(kind, 'source') IN ('source', 'result') THEN source ELSE '' END AS source,
    CASE WHEN coalesce(kind, 'source') IN ('source', 'result') THEN sequence END AS sequence,
    CASE WHEN coalesce(kind, 'source') = 'source' THEN position END AS position,
    CASE WHEN kind = 'config' THEN config_hash END AS config_hash
  FROM session_steps
  WHERE pipeline = laminar_pipeline AND session_id = laminar_session
),
ranked AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY kind, source
      ORDER BY sequence DESC NULLS LAST, position DESC NULLS LAST, config_hash DESC NULLS LAST
    ) AS place
  FROM steps
),
-- Whether some of it is not there as it would have been written. Only while nobody has written over the session's rows.
late AS (
  SELECT
    coalesce(bool_or(CASE ranked.kind
      WHEN 'source' THEN NOT (there.sequence <=> ranked.sequence AND there.position <=> ranked.position)
      -- A result sequence only ever rises: the one before may have been higher.
      WHEN 'result' THEN coalesce(there.sequence < ranked.sequence, TRUE)
      WHEN 'config' THEN NOT known.config_hash <=> ranked.config_hash
      -- It would have left nothing of others.
      WHEN 'clear' THEN known.beside
      ELSE TRUE
    END), FALSE) AS missed
  FROM ranked CROSS JOIN known
  LEFT JOIN there
    ON there.kind = ranked.kind AND there.source = ranked.source AND there.session_id = laminar_session
  WHERE ranked.place = 1 AND known.newest
)
SELECT
  CASE
    WHEN committed AND missed THEN 'late'
    WHEN committed THEN 'committed'
    WHEN generation > laminar_generation THEN 'fenced'
    WHEN pieces = 0 THEN 'missing'
    WHEN heads <> 1 OR stated <> total OR NOT intact THEN 'damaged'
    WHEN generation < laminar_generation THEN 'ahead'
    WHEN laminar_ordinal IS NULL OR laminar_generation IS NULL THEN 'unbegun'
    WHEN ordinal = laminar_ordinal THEN 'open'
    -- One commit since, and the head row says whose.
    WHEN ordinal = laminar_ordinal + 1 THEN 'lost'
    ELSE 'unknown'
  END AS outcome,
  generation,
  ordinal,
  session_id,
  changed_by
FROM known CROSS JOIN late;
