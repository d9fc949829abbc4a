"""Delta sinks given by the name of a table: made, written, recognised, closed and taken back as those given by path."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import laminar_delta as ld
from laminar_delta.catalog.sinks import Step, When
from laminar_delta.streaming import BatchStep, Delivery, DeltaSink, Written
from tests.support.streams import PIPELINE, Stream, quick

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from laminar_delta.streaming import Batch

pytestmark = pytest.mark.spark

FRESH, DELIVERED, REWRITTEN = Delivery.FRESH, Delivery.REPLAYED_DELIVERED, Delivery.REPLAYED_WRITTEN


@pytest.fixture
def stream(tmp_path: Path, spark: SparkSession) -> Stream:
    return Stream(tmp_path, quick(spark), ld.open_catalog(str(tmp_path / "catalog")))


@pytest.fixture
def schema(stream: Stream) -> Iterator[str]:
    """With its name in backticks, as SQL takes it."""
    name = f"`lake_{uuid4().hex}`"
    stream.spark.sql(f"CREATE SCHEMA {name}").collect()
    yield name
    stream.spark.sql(f"DROP SCHEMA {name} CASCADE").collect()


def ids(stream: Stream, table: str) -> Counter[int]:
    return Counter(row["id"] for row in stream.spark.table(table).collect())


def test_a_table_by_name_gets_each_batch_once(stream: Stream, schema: str) -> None:
    def sinks() -> list[DeltaSink]:
        return [DeltaSink(f"{schema}.orders"), DeltaSink(f"{schema}.second", partition_by=["odd"])]

    def fn(frame: "DataFrame", batch: "Batch") -> "dict[str, DataFrame]":
        return {"orders": frame, "second": frame.selectExpr("id", "id % 2 AS odd")}

    stream.add(1)
    stream.crash((Step.SAVE, When.AFTER), sinks(), fn)  # neither is there yet
    active = SparkSession._activeSession
    (first,) = stream.run(sinks(), fn)
    assert SparkSession._activeSession is active  # that of the process stays the user's, also when tables are made
    assert (first.delivery, first.sinks) == (REWRITTEN, {"orders": Written.WRITTEN, "second": Written.WRITTEN})
    stream.add(1)
    stream.crash((Step.COMMIT, When.AFTER), sinks(), fn)  # one of them has the batch
    (again,) = stream.run(sinks(), fn)
    assert (again.delivery, again.sinks) == (REWRITTEN, {"orders": Written.FOUND, "second": Written.WRITTEN})
    stream.add(1)
    stream.crash((BatchStep.DELIVER, When.AFTER), sinks(), fn)  # both have it
    assert [result.delivery for result in stream.run(sinks(), fn)] == [DELIVERED]
    for table, parts in (("orders", []), ("second", ["odd"])):
        assert ids(stream, f"{schema}.{table}") == Counter(range(stream.made))
        assert detail(stream, f"{schema}.{table}")["partitionColumns"] == parts

    # A reset closes the line that was left, and is written again.
    shutil.rmtree(stream.checkpoint)
    assert [result.delivery for result in stream.run(sinks(), fn)] == [FRESH] * 3
    for table in ("orders", "second"):
        assert ids(stream, f"{schema}.{table}") == Counter([*range(stream.made)] * 2)


def test_a_table_by_name_that_is_overwritten_stays_the_table_it_was(stream: Stream, schema: str) -> None:
    table = f"{schema}.orders"
    stream.spark.sql(f"CREATE TABLE {table} (id BIGINT COMMENT 'a number') USING delta TBLPROPERTIES ('mine' = 'kept')")

    def sink() -> DeltaSink:
        return DeltaSink(table, mode="overwrite")

    before = detail(stream, table)
    stream.add(2)
    first = stream.run([sink()])
    stream.add(1)
    stream.crash((Step.COMMIT, When.AFTER), [sink()])  # Delta would overwrite it once more
    assert [result.delivery for result in stream.run([sink()])] == [DELIVERED]
    assert ids(stream, table) == Counter([6, 7, 8])
    assert detail(stream, table) == before
    assert stream.spark.table(table).schema["id"].metadata == {"comment": "a number"}
    version = sink().version_of(stream.catalog, PIPELINE, first[0].checkpoint_id, stream.spark)
    stream.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {version}").collect()
    assert ids(stream, table) == Counter([0, 1, 2])


def detail(stream: Stream, table: str) -> dict[str, Any]:
    (row,) = stream.spark.sql(f"DESCRIBE DETAIL {table}").select("id", "properties", "partitionColumns").collect()
    return row.asDict()
