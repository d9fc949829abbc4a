"""A batch job as `docs/streaming.md` describes it: totals per customer, carried from run to run as state in the catalog.

    spark-submit batch_job.py HOME CATALOG [die]

With `die` it is killed with SIGKILL when its state is staged and its checkpoint not yet committed.
"""

import os
import signal
import sys
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import laminar_delta as ld
from laminar_delta.catalog.saving import SavingWriter

BUCKETS = 4
ROWS = "array<struct<customer: string, total: bigint>>"


def as_state(totals: DataFrame) -> DataFrame:
    """Rows as state: one payload for each bucket of customers, so that executors write it."""
    bucket = f.pmod(f.xxhash64("customer"), f.lit(BUCKETS)).alias("partition")
    rows = f.sort_array(f.collect_list(f.struct("customer", "total")))
    packed = totals.groupBy(bucket).agg(f.to_json(rows).cast("binary").alias("payload"))
    return packed.select(f.lit("totals").alias("operator"), "partition", "payload")


def from_state(state: DataFrame) -> DataFrame:
    packed = state.where("operator = 'totals'").select(f.from_json(f.col("payload").cast("string"), ROWS).alias("rows"))
    return packed.select(f.inline("rows"))


def run(spark: SparkSession, home: Path, location: str) -> None:
    catalog = ld.open_catalog(location, spark=spark)
    orders = spark.read.schema("day int, customer string, amount bigint").json(str(home / "orders"))
    with catalog.writer("daily-totals", owner="daily") as writer:
        before = writer.recover().manifest
        done = 0 if before is None else int(before.source_offsets["orders"].offsets["day"])
        new = orders.where(f.col("day") > done)
        last = new.agg(f.max("day")).first()[0]  # type: ignore[index]
        if last is None:
            return
        totals = new.where(f.col("day") <= last).select("customer", f.col("amount").alias("total"))
        if before is not None:
            state = catalog.pipeline("daily-totals").state(before.checkpoint_id)
            totals = totals.unionByName(from_state(state.frame(spark)))
        totals = totals.groupBy("customer").agg(f.sum("total").alias("total"))
        with writer.checkpoint() as cp:
            cp.source("orders", {"day": str(last)})
            cp.state_frame(as_state(totals))


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    home, location = Path(sys.argv[1]), sys.argv[2]
    if sys.argv[3:] == ["die"]:
        with patch.object(SavingWriter, "commit", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)):
            run(spark, home, location)
    else:
        run(spark, home, location)
    spark.stop()


if __name__ == "__main__":
    main()
