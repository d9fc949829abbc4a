-- The variables that the other statements use. Once per notebook or connection, after `USE <catalog>.<schema>`.
-- Set them afterwards, for example: SET VAR laminar_pipeline = 'orders'
DECLARE OR REPLACE VARIABLE laminar_pipeline STRING;
-- The generation under which the notebook commits: SourceCheckpointStore.take_generation() gives it.
DECLARE OR REPLACE VARIABLE laminar_generation BIGINT;
-- Who, for the record.
DECLARE OR REPLACE VARIABLE laminar_owner STRING;
-- These two are set when a session begins.
DECLARE OR REPLACE VARIABLE laminar_session STRING;
DECLARE OR REPLACE VARIABLE laminar_ordinal BIGINT;
-- And this one by session_label.sql.
DECLARE OR REPLACE VARIABLE laminar_label STRING;
