"""What the engine sets in its own Spark sessions, and why. A user's session is never touched.

`MEANING` decides what a statement means and must be as written here, whatever the cluster's defaults are. `SPEED` only decides
how long it takes: a platform that does not let it be set is slower, not wrong.
"""

from __future__ import annotations

MEANING = {
    # Times are UTC on both sides of the border between Spark and Arrow.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # A name such as `a${b}` is a name, not a template.
    "spark.sql.variable.substitute": "false",
    # Literals are written with backslash escapes.
    "spark.sql.parser.escapedStringLiterals": "false",
    # A value that does not fit is an error, never another value.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    # Rows that cannot be read are an error, never absent.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # A table's columns change only by a decision.
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # A read sees every commit that was answered before it.
    "spark.databricks.delta.stalenessLimit": "0",
}

SPEED = {
    # Commits are small. Delta's default of 50 snapshot partitions is what makes a fenced append take seconds.
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # Compiling a query costs more than running it: interpreted, small reads and commits take a quarter less, a scan of two
    # million rows a quarter more.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # VACUUM lists in 10,000 tasks otherwise: 160 s for an empty table.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # Sources are Arrow tables in memory: reading them twice gives the same rows, so no job is spent on copying them first.
    "spark.databricks.delta.merge.materializeSource": "none",
    # Compaction is asked for, not done on the side of a commit.
    "spark.databricks.delta.autoCompact.enabled": "false",
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    # Microseconds with usable statistics, not the INT96 of old.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # State chunks are a megabyte and more: the default of 4096 values per batch would not fit the heap.
    "spark.sql.parquet.columnarReaderBatchSize": "128",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2048",
    # Beyond a megabyte rows travel as Arrow, not as a literal inside the query plan (40 MB of those end a 1 GB heap).
    "spark.sql.execution.arrow.localRelationThreshold": "1m",
}

UPKEEP = {
    # The retention asked for is the retention used; the catalog refuses dangerous ones before they come here.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # Ordering by a column without statistics is slower to read, not wrong.
    "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled": "false",
    # Properties of other Delta versions are kept as they are.
    "spark.databricks.delta.allowArbitraryProperties.enabled": "true",
}

QUERIES = {
    # "name" is a name, as in DataFusion and the SQL standard: one text of a query for both.
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
}
"""On top, for queries of users."""

BLOBS = {
    # A few rows at a time where each may be megabytes.
    "spark.sql.parquet.columnarReaderBatchSize": "16",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    "spark.sql.files.maxPartitionBytes": "32m",
}
"""On top, for streamed scans of binary columns."""

INHERITED = ("fs.", "spark.hadoop.", "spark.sql.catalog.")
"""Which of a user's runtime settings the engine's sessions need too: credentials and catalogs."""

FENCE_APP = "spark.databricks.delta.write.txnAppId"
FENCE_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
STAMP = (FENCE_APP, FENCE_VERSION, USER_METADATA)
"""What a statement without options (MERGE, DELETE, OPTIMIZE, RESTORE, CREATE) takes its fence and metadata from."""
