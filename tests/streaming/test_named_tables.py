"""Delta sinks given by the name of a table: made, written, recognised, closed and taken back as those given by path."""

import runpy
import shutil
import sys
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
from tests.support.configurations import CONF
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


def test_the_job_of_the_bundle_takes_its_pipeline_over_and_keeps_its_history(
    stream: Stream, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `conf/databricks` has it, on a path instead of Unity Catalog."""
    source, sink = f"{schema}.trips_in", f"{schema}.trips"
    stream.spark.range(5).write.format("delta").saveAsTable(source)
    given = {"--catalog": str(stream.home / "catalog"), "--pipeline": "trips", "--source": source, "--sink": sink}
    arguments = [*(part for pair in given.items() for part in pair), "--checkpoint-location", str(stream.checkpoint)]
    monkeypatch.setattr(sys, "argv", ["job.py", *arguments])
    for run in (1, 2):
        runpy.run_path(str(CONF / "databricks" / "job.py"), run_name="__main__")
        assert ids(stream, sink) == Counter(range(5 * run))
        assert {row["generation"] for row in stream.catalog.engine.read("writers").to_pylist()} == set(
            range(1, run + 1)
        )
        stream.spark.range(5, 10).write.format("delta").mode("append").saveAsTable(source)
    assert stream.catalog.sql("SELECT DISTINCT pipeline FROM progress_history").to_pylist() == [{"pipeline": "trips"}]
