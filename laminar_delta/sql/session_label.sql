-- Makes the commit say in the log whose it is, as Session.commit does; after staging, right before session_commit.sql.
-- Afterwards session_unlabel.sql: what else this notebook commits is not the session's. EXECUTE IMMEDIATE is there because SET
-- takes no expression; the JSON is described in docs/sessions.md, for those who put it there in another way.
SET VAR laminar_label = (
  SELECT concat(
    'SET `spark.databricks.delta.commitInfo.userMetadata` = `',
    replace(
      to_json(named_struct(
        'operation', 'session',
        'pipeline', laminar_pipeline,
        'session', laminar_session,
        'generation', laminar_generation,
        'ordinal', laminar_ordinal + 1,
        'owner', laminar_owner,
        'sources', size(names),
        'names', CASE WHEN size(names) <= 20 THEN names END,
        'cleared', CASE WHEN cleared THEN TRUE END
      )),
      '`',
      '``'
    ),
    '`'
  )
  FROM (
    SELECT
      sort_array(collect_set(source) FILTER (WHERE coalesce(kind, 'source') = 'source')) AS names,
      bool_or(kind = 'clear') AS cleared
    FROM session_steps
    WHERE pipeline = laminar_pipeline AND session_id = laminar_session
  )
);
EXECUTE IMMEDIATE laminar_label;
