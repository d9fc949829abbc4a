"""The driver of the demo: events in, running totals per customer out, checkpoints into a catalog. A process of its own.

    python -m laminar_delta.streaming.demo_driver DIRECTORY [STEP WHEN COUNT | rewind CHECKPOINT]

It reads one file of events per micro-batch, keeps the totals of all customers as operator state in the catalog, and appends
each event with its running total to a Delta table. With STEP, WHEN and COUNT it kills itself with SIGKILL there; with `rewind`
it takes everything back to a checkpoint first.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

import laminar_delta as ld
from laminar_delta import streaming
from laminar_delta.catalog.sinks import Step, When

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from laminar_delta.streaming import Batch, BatchResult, BatchStep

PIPELINE = "running-totals"
SCHEMA = "id long, customer string, amount long"


def add_totals(events: DataFrame, batch: Batch) -> DataFrame:
    """The function of the pipeline: each event with the total of its customer so far."""
    before = {} if batch.state is None else json.loads(batch.state.read("totals"))
    spent = {
        row["customer"]: row["spent"]
        for row in events.groupBy("customer").agg(f.sum("amount").alias("spent")).collect()
    }
    after = {name: before.get(name, 0) + spent.get(name, 0) for name in sorted({*before, *spent})}
    batch.checkpoint.state("totals", json.dumps(after).encode())
    known = batch.spark.createDataFrame(sorted(before.items()), "customer string, before long")
    so_far = f.sum("amount").over(Window.partitionBy("customer").orderBy("id"))
    joined = events.join(known, "customer", "left")
    return joined.select("id", "customer", "amount", (f.coalesce("before", f.lit(0)) + so_far).alias("total"))


def session(place: Path) -> SparkSession:
    """A local session with Delta."""
    from delta import configure_spark_with_delta_pip

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.app.name": PIPELINE,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # A few events on one machine: the defaults are made for clusters.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        # None of these JVMs lives long enough to win back what its second compiler costs.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return configure_spark_with_delta_pip(builder).getOrCreate()


def run(spark: SparkSession, place: Path, kill_at: tuple[str, str, int] | None = None) -> None:
    """Runs the query until all events are read."""
    catalog = ld.open_catalog(str(place / "catalog"))
    passed = 0

    def observe(step: BatchStep | Step, when: When) -> None:
        nonlocal passed
        if kill_at is not None and (step.value, when.value) == kill_at[:2]:
            passed += 1
            if passed == kill_at[2]:
                os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)  # type: ignore[union-attr]
                os.kill(os.getpid(), signal.SIGKILL)

    with streaming.foreach_batch(
        catalog,
        PIPELINE,
        add_totals,
        sinks=[streaming.DeltaSink(place / "tables" / "totals")],
        owner=f"driver-{os.getpid()}",
        on_result=_say,
        observe=observe,
    ) as deliver:
        events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(place / "events"))
        writer = events.writeStream.foreachBatch(deliver).trigger(availableNow=True)
        writer.option("checkpointLocation", str(place / "spark")).start().awaitTermination()


def rewind(spark: SparkSession, place: Path, checkpoint_id: int) -> None:
    """Takes pipeline, sink and Spark's own directory back to a checkpoint."""
    catalog = ld.open_catalog(str(place / "catalog"))
    sink = streaming.DeltaSink(place / "tables" / "totals")
    with catalog.writer(PIPELINE, owner="operator", reason="rewind") as writer:
        version = sink.version_of(catalog, PIPELINE, checkpoint_id, spark)
        writer.rewind(checkpoint_id, reason="demo: do the last batches again")
    spark.sql(f"RESTORE TABLE delta.`{sink.table}` TO VERSION AS OF {version}").collect()
    streaming.restore_spark_checkpoint(catalog, PIPELINE, checkpoint_id, str(place / "spark"), overwrite=True)
    _print(f"  rewound to checkpoint {checkpoint_id}, table restored to version {version}")


def _say(result: BatchResult) -> None:
    _print(f"  {result}, {result.duration_ms} ms")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    at = Path(sys.argv[1])
    started = session(at)
    if sys.argv[2:3] == ["rewind"]:
        rewind(started, at, int(sys.argv[3]))
        run(started, at)
    else:
        run(started, at, (sys.argv[2], sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 2 else None)
