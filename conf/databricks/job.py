"""The job of the bundle: a checkpoint per batch, and each batch once in the table. Put your own query in place of this one."""

import argparse
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import laminar_delta as ld
from laminar_delta.streaming import Batch, CheckpointListener, DeltaSink, foreach_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def hand_on(records: "DataFrame", _batch: Batch) -> "DataFrame":
    """What a batch has for the table; `_batch.checkpoint.state(…)` keeps state with it."""
    return records


def main() -> None:
    """Runs the stream until it ends."""
    given = argparse.ArgumentParser()
    given.add_argument("--catalog", required=True)
    given.add_argument("--pipeline", required=True)
    given.add_argument("--source", default="samples.nyctaxi.trips")
    given.add_argument("--sink", default="main.default.trips")
    given.add_argument("--checkpoint-location", default="/Volumes/main/default/checkpoints/trips")
    options = given.parse_args()
    spark = SparkSession.builder.getOrCreate()
    catalog = ld.open_catalog(options.catalog, spark=spark)
    # The first batch takes the pipeline over; whoever had it before is fenced off at its next commit.
    deliver = foreach_batch(
        catalog,
        options.pipeline,
        hand_on,
        sinks=[DeltaSink(options.sink)],
        checkpoint_location=options.checkpoint_location,
    )
    with CheckpointListener(catalog) as listener, deliver:
        spark.streams.addListener(listener)
        try:
            query = (
                spark.readStream.table(options.source)
                .writeStream.foreachBatch(deliver)
                .queryName(options.pipeline)
                .option("checkpointLocation", options.checkpoint_location)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        finally:
            spark.streams.removeListener(listener)


if __name__ == "__main__":
    main()
