-- What became of the session, from the head row; to be asked right after the commit.
--   committed   everything is visible
--   fenced      another writer took over: stop
--   lost        another session committed first: begin again, or set laminar_ordinal to `ordinal` and commit again
SELECT
  CASE
    WHEN session_id = laminar_session THEN 'committed'
    WHEN generation > laminar_generation THEN 'fenced'
    ELSE 'lost'
  END AS outcome,
  generation,
  ordinal,
  session_id,
  changed_by
FROM source_checkpoints
WHERE pipeline = laminar_pipeline AND kind = 'head';
