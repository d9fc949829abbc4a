"""What a Delta table says of itself, asked through SQL: so it works by path and by name, in classic mode and on Connect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from laminar_delta.errors import StorageError
from laminar_delta.streaming.delta_table import SinkTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
