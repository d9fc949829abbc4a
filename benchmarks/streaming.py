"""What a checkpoint per micro-batch costs: the same query with plain `foreachBatch`, which has only Spark's own logs.

All write each batch to a Delta table with a transaction identifier; the difference is the catalog, by path and by name, and the
look at the table's history after each write. It is held against the whole batch, and against what Spark takes for its offset
and commit logs.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import laminar_delta as ld
from benchmarks.measure import WARM_UP, Measured, show
from laminar_delta import streaming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 20
RECORDS = 1_000


WHOLE = "triggerExecution"
OWN_LOGS = ("walCommit", "commitOffsets")
"""Spark's words for the parts of a batch: all of it, and the writing of its two logs."""


@dataclass(frozen=True)
class Batches:
    """The batches of a query, by the parts Spark itself takes the time of."""

    name: str
    taken: list[dict[str, float]]

    def parts(self, *names: str) -> Measured:
        return Measured(self.name, [float(sum(one[name] for name in names)) for one in self.taken])


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
        plain = Batches("plain foreachBatch", [*before.taken, *after.taken])
        title = f"{BATCHES} micro-batches of {RECORDS:,} records into a Delta table, Spark at its defaults"
        baseline = plain.parts(WHOLE)
        show(title, baseline, [found.parts(WHOLE) for found in others])
        logs = [plain, *others]
        own = Measured("Spark's own logs", [one for found in logs for one in found.parts(*OWN_LOGS).milliseconds])
        added = [
            Measured(f"{found.name}, added", [one - baseline.p50 for one in found.parts(WHOLE).milliseconds])
            for found in others
        ]
        show("What a catalog adds to a micro-batch, and what Spark takes for its offset and commit logs", own, added)
        spark.stop()


def _wrapped(catalog: ld.Catalog, table: Path) -> streaming.ForeachBatch:
    return streaming.foreach_batch(
        catalog, "bench", lambda frame, _: frame, sinks=[streaming.DeltaSink(table, name="table")]
    )


def _measure(spark: "SparkSession", home: Path, name: str, deliver: Callable[["DataFrame", int], None]) -> Batches:
    source = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(home / "in"))
    writer = source.writeStream.foreachBatch(deliver).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(home / "spark" / name)).start()
    query.awaitTermination()
    progress: list[Any] = [json.loads(one.json) for one in query.recentProgress]
    return Batches(name, [one["durationMs"] for one in progress if one["numInputRows"]][WARM_UP:])


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
