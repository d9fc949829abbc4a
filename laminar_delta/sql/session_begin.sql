-- Begins a session: it commits only if nobody else does until then.
SET VAR laminar_session = uuid();
-- Null when another writer took over; then the commit changes nothing.
SET VAR laminar_ordinal = (
  SELECT ordinal FROM source_checkpoints
  WHERE pipeline = laminar_pipeline AND kind = 'head' AND generation = laminar_generation
);
