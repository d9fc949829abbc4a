-- Ends what session_label.sql began, whatever became of the commit.
RESET `spark.databricks.delta.commitInfo.userMetadata`;
