-- Stages the rows of the view `staged_rows` (kind, source, sequence, position, config_hash) for the session. Any number of times,
-- from any task that knows the session. Nothing is visible before the commit. What is no whole number, or no bytes, is refused and
-- not cut off: a position that nobody was at is a loss. Nor is anything staged for a session that is committed already, which would
-- never be written: begin another one first.
INSERT INTO session_steps
  (pipeline, session_id, generation, kind, source, sequence, position, config_hash, staged_at, staged_by)
SELECT
  CASE
    WHEN laminar_pipeline IS NULL OR laminar_session IS NULL OR laminar_generation IS NULL
    THEN raise_error('set laminar_pipeline and laminar_generation and run session_begin.sql first: rows without them belong to nobody')
    WHEN (SELECT count(*) FROM source_checkpoints WHERE pipeline = laminar_pipeline AND session_id = laminar_session) > 0
    THEN raise_error('this session is committed already, and what is staged now would never be: run session_begin.sql for another one')
    ELSE laminar_pipeline
  END,
  laminar_session,
  laminar_generation,
  CASE
    WHEN coalesce(kind, 'source') IN ('source', 'result') AND source <> '' AND sequence >= 0 THEN coalesce(kind, 'source')
    WHEN kind = 'config' AND config_hash BETWEEN 0 AND 18446744073709551615 THEN kind
    WHEN kind = 'clear' THEN kind
    ELSE raise_error('a step is a source or a result with a name and a sequence, a config with its hash, or a clear')
  END,
  coalesce(source, ''),
  CASE
    WHEN typeof(sequence) RLIKE '^(tinyint|smallint|int|bigint|void|decimal[(][0-9]+,0[)])$'
    THEN CAST(sequence AS BIGINT)
    ELSE raise_error('the sequence of a step is no whole number: give a column of integers')
  END,
  CASE
    WHEN coalesce(kind, 'source') = 'source' AND octet_length(position) > 65536
    THEN raise_error('a position has more than 65536 bytes; the last good one is kept')
    WHEN typeof(position) IN ('binary', 'void') THEN CAST(position AS BINARY)
    ELSE raise_error('the position of a step is no bytes: give a column of binary')
  END,
  CASE
    WHEN typeof(config_hash) RLIKE '^(tinyint|smallint|int|bigint|void|decimal[(][0-9]+,0[)])$'
    THEN CAST(config_hash AS DECIMAL(20, 0))
    ELSE raise_error('the config_hash of a step is no whole number: give a column of integers')
  END,
  current_timestamp(),
  laminar_owner
FROM staged_rows;
