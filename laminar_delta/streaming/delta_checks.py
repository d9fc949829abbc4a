"""What a Delta table says of itself, asked through SQL: so it works by path and by name, in classic mode and on Connect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from laminar_delta.errors import ConflictError, StorageError
from laminar_delta.streaming.delta_table import SinkTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUT_OF_RANGE = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
"""Delta's setting under which a stream may also begin with a version that is still to come."""
WAYS_ON = (
    "Begin when the table has its next commit; or go on in a directory that `restore_spark_checkpoint` makes, which waits "
    f"for it; or set {OUT_OF_RANGE} to true in the session that starts the query."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A Delta table as a source sees it."""

    table_id: str
    oldest: int
    """The oldest version its log still has."""
    newest: int


def table_facts(spark: SparkSession, table: str) -> TableFacts:
    """Asks a table. Raises `StorageError` when it does not answer.

    Args:
        spark: The session.
        table: A path or URI, or a name.
    """
    named = SinkTable.of(table).reference() if "/" in table else table
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {named}").select("id").collect()
        versions = spark.sql(f"DESCRIBE HISTORY {named}").selectExpr("MIN(version)", "MAX(version)").collect()
    except PySparkException as error:
        raise StorageError(
            f"table {table} cannot be asked: {str(error).partition(chr(10))[0]}",
            next_step="Check its place and the access to it, then look again.",
        ) from error
    return TableFacts(table_id=str(detail[0][0]), oldest=int(versions[0][0]), newest=int(versions[0][1]))


def check_begins(spark: SparkSession, table: str, source: str, version: int) -> None:
    """Refuses a version that the table does not have yet: Delta begins with none such, though it goes on with one.

    Raises:
        ConflictError: The source has read all there is, or more than there is.
        StorageError: The table does not answer.
    """
    newest = table_facts(spark, table).newest
    if version <= newest:
        return
    is_next = version == newest + 1
    raise ConflictError(
        f"source {source!r} has read all of {table}: Delta refuses `startingVersion` {version} until it is there"
        if is_next
        else f"source {source!r} goes on with version {version}, and {table} has only {newest}: it was copied or set back",
        expected=f"a version up to {newest}",
        found=version,
        next_step=WAYS_ON if is_next else "Find the table the query read, or begin a new line.",
    )
