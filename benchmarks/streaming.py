"""What a checkpoint per micro-batch costs: the same query with plain `foreachBatch`, which has only Spark's own logs.

All write each batch to a Delta table with a transaction identifier; the difference is the catalog, by path and by name, and the
look at the table's history after each write.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import laminar_delta as ld
from benchmarks.measure import WARM_UP, Measured, show
from laminar_delta import streaming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 20
RECORDS = 1_000


def run() -> None:
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        spark = _session(home)
        _make_input(home)

        def plain_into(table: Path) -> Callable[["DataFrame", int], None]:
            def plain(frame: "DataFrame", batch_id: int) -> None:
                writer = frame.write.format("delta").mode("append").option("txnAppId", "plain")
                writer.option("txnVersion", str(batch_id)).save(str(table))

            return plain

        by_path = ld.open_catalog(str(home / "catalog"))
        by_name = ld.open_catalog("spark_catalog.bench", spark=spark)
        before = _measure(spark, home, "before", plain_into(home / "before"))
        others = [
            _measure(spark, home, f"catalog by {kind}", _wrapped(catalog, home / kind))
            for kind, catalog in (("path", by_path), ("name", by_name))
        ]
        # On both sides of the others: a JVM gets quicker as it goes.
        after = _measure(spark, home, "after", plain_into(home / "after"))
        baseline = Measured("plain foreachBatch", [*before.milliseconds, *after.milliseconds])
        show(
            f"{BATCHES} micro-batches of {RECORDS:,} records into a Delta table, Spark at its defaults",
            baseline,
            others,
        )
        for found in others:
            print(f"{found.name}: {found.p50 - baseline.p50:+.0f} ms per micro-batch (p50).")
        spark.stop()


def _wrapped(catalog: ld.Catalog, table: Path) -> streaming.ForeachBatch:
    return streaming.foreach_batch(
        catalog, "bench", lambda frame, _: frame, sinks=[streaming.DeltaSink(table, name="table")]
    )


def _measure(spark: "SparkSession", home: Path, name: str, deliver: Callable[["DataFrame", int], None]) -> Measured:
    """The whole of each batch as Spark itself counts it, its own logs included."""
    source = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(home / "in"))
    writer = source.writeStream.foreachBatch(deliver).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(home / "spark" / name)).start()
    query.awaitTermination()
    progress: list[Any] = [json.loads(one.json) for one in query.recentProgress]
    taken = [float(one["durationMs"]["triggerExecution"]) for one in progress if one["numInputRows"]]
    return Measured(name, taken[WARM_UP:])


def _make_input(home: Path) -> None:
    (home / "in").mkdir()
    for number in range(BATCHES + WARM_UP):
        lines = (json.dumps({"id": record}) for record in range(RECORDS))
        (home / "in" / f"{number:04}.json").write_text("\n".join(lines))


def _session(home: Path) -> "SparkSession":
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return configure_spark_with_delta_pip(builder).getOrCreate()
