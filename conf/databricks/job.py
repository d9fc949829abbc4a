"""The job of the bundle: a stream whose progress is kept in the catalog. Put your own query in place of this one."""

import argparse

from pyspark.sql import SparkSession

import laminar_delta as ld
from laminar_delta.streaming import CheckpointListener


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
    with CheckpointListener(catalog) as listener:
        spark.streams.addListener(listener)
        try:
            query = (
                spark.readStream.table(options.source)
                .writeStream.queryName(options.pipeline)
                .option("checkpointLocation", options.checkpoint_location)
                .trigger(availableNow=True)
                .toTable(options.sink)
            )
            query.awaitTermination()
        finally:
            spark.streams.removeListener(listener)


if __name__ == "__main__":
    main()
