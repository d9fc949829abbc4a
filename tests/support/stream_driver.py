"""A driver with streaming queries, in a process of its own that kills itself where it is told to.

    python -m tests.support.stream_driver '{"home": …, "sources": ["files", "delta", "kafka"], "kill": {…}}'

Each source has a query, a pipeline and sinks of its own: a Delta table, and files that are shown by renaming. All of them run
at once until they have read everything there is. What became of each batch is in `results.jsonl`, line by line. The query of
`counts` has state of Spark's own, which the others have not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

import laminar_delta as ld
from laminar_delta import streaming
from laminar_delta.catalog.sinks import Step, When
from laminar_delta.streaming import BatchResult, BatchStep, DeltaSink
from tests.support.kafka import CONNECTOR, jars
from tests.support.named import location, metastore
from tests.support.stream_executors import RECORDS_AT_A_TIME, losing_executor
from tests.support.streams import FileFrameSink, totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from laminar_delta.streaming import Batch, FrameSink

COUNTS = "counts"
TOPIC = "numbers"
DURING = "during"
PHASES: tuple[str, ...] = (
    *(step.value for step in BatchStep),
    *(step.value for step in (Step.PRE_COMMIT, Step.SAVE, Step.COMMIT, Step.RECORD)),
)
"""Every step a batch takes when nothing goes wrong."""
DIED = "died-at.jsonl"
"""Where a driver writes down where it dies, right before it does."""
MOST_PER_LIFE = 3
"""Batches that queries come to in a life that ends with a kill, the target aside, unless the order says otherwise
(`most_per_life`): nobody runs ahead and out of batches."""
LIFE_ENDS_WITHIN_S = 3600
"""However busy the machine is: a life that takes longer hangs."""


@dataclass(frozen=True)
class Kill:
    """Where a driver dies: the pipeline, the step, the side of it (or amid the write of it), and the how-manieth time; and the
    pipeline that has told of a batch by then.
    """

    pipeline: str
    step: str
    moment: str
    count: int
    jvm_too: bool
    once_told: str | None = None


class Driver:
    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.home = Path(order["home"])
        self.kill = Kill(**order["kill"]) if order.get("kill") else None
        self.spark = _session(order)
        self.jvm_pid = int(self.spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
        (self.home / "jvm.pid").write_text(str(self.jvm_pid))
        self.passed = 0
        self.begun: Counter[str] = Counter()
        self.told = {kind: threading.Event() for kind in order["sources"]}

    def run(self) -> None:
        catalog = ld.open_catalog(location(self.home, by_name=self.order["by_name"]), spark=self.spark)
        queries = []
        for kind in self.order["sources"]:
            sinks: list[FrameSink] = [
                DeltaSink(str(self.home / kind / "out")),
                FileFrameSink(self.home / kind / "files"),
            ]
            deliver = streaming.foreach_batch(
                catalog,
                kind,
                self._function(kind, sinks),
                sinks=sinks,
                owner=f"driver-{os.getpid()}",
                on_result=partial(self._keep, kind),
                observe=partial(self._pass, kind),
            )
            writer = self._read(kind).writeStream.foreachBatch(deliver).trigger(availableNow=True)
            writer = writer.outputMode("update" if kind == COUNTS else "append")
            queries.append(writer.option("checkpointLocation", str(self.home / kind / "spark")).start())
        for query in queries:
            query.awaitTermination()

    def _function(self, kind: str, sinks: list[FrameSink]) -> Callable[[DataFrame, Batch], dict[str, DataFrame]]:
        fn = totals(sinks)
        if self.order.get("lose_executor") != kind:
            return fn

        def losing(frame: DataFrame, batch: Batch) -> dict[str, DataFrame]:
            given = fn(frame, batch)
            return {**given, "out": losing_executor(given["out"], batch.id, self.home / kind / "out", self.home)}

        return losing

    def _read(self, kind: str) -> DataFrame:
        reader, per_batch = self.spark.readStream, str(self.order["per_batch"])
        if kind in ("files", COUNTS):
            found = reader.schema("id long").option("maxFilesPerTrigger", 1).json(str(self.home / kind / "in"))
            return found if kind == "files" else told_apart(found, self.order["records"])
        if kind == "delta":
            return reader.format("delta").option("maxFilesPerTrigger", 1).load(str(self.home / kind / "in"))
        options = {
            "kafka.bootstrap.servers": self.order["kafka"],
            "subscribe": TOPIC,
            "maxOffsetsPerTrigger": per_batch,
            **self.order.get("begin", {"startingOffsets": "earliest"}),
        }
        return reader.format("kafka").options(**options).load().selectExpr("CAST(CAST(value AS STRING) AS LONG) AS id")

    def _keep(self, kind: str, result: BatchResult) -> None:
        with (self.home / "results.jsonl").open("a") as file:
            file.write(json.dumps({"pipeline": kind, **asdict(result)}) + "\n")
        self.told[kind].set()

    def _pass(self, kind: str, step: BatchStep | Step, when: When) -> None:
        kill = self.kill
        if kill is None:
            return
        if kill.pipeline != kind:
            self.begun[kind] += (step, when) == (BatchStep.DELIVER, When.BEFORE)
            if self.begun[kind] > self.order.get("most_per_life", MOST_PER_LIFE):
                threading.Event().wait(LIFE_ENDS_WITHIN_S)  # for the end, which is near
                raise AssertionError(f"{kill} did not come")
            return
        if kill.step != step.value:
            return
        if when.value != (When.BEFORE.value if kill.moment == DURING else kill.moment):
            return
        self.passed += 1
        if self.passed != kill.count:
            return
        if kill.moment == DURING:
            table, count = self.home / kind / "out", self.passed
            threading.Thread(target=self._die_when_writing, args=(table, count), daemon=True).start()
        else:
            self._die(self.passed)

    def _die_when_writing(self, table: Path, count: int) -> None:
        before = set(table.glob("*.parquet"))
        while not set(table.glob("*.parquet")) - before:
            time.sleep(0.001)  # until the write has begun: there is nothing to wait on
        self._die(count)

    def _die(self, count: int) -> None:
        assert self.kill is not None
        if self.kill.once_told is not None:
            assert self.told[self.kill.once_told].wait(LIFE_ENDS_WITHIN_S), f"{self.kill.once_told} told of no batch"
        died = {"pipeline": self.kill.pipeline, "step": self.kill.step, "side": self.kill.moment, "count": count}
        with (self.home / DIED).open("a") as file:
            file.write(json.dumps(died) + "\n")
        if self.kill.jvm_too:
            os.kill(self.jvm_pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def told_apart(numbers: DataFrame, records: int) -> DataFrame:
    """Every number comes twice, in different batches; the second time it stands for another one. Which time it is, is state."""
    times = numbers.groupBy("id").count()
    return times.selectExpr(f"id + (count - 1) * {records // 2} AS id")


def _session(order: dict[str, Any]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.warehouse.dir": str(Path(order["home"]) / "warehouse"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(RECORDS_AT_A_TIME),
    }
    if order["by_name"]:
        settings |= metastore(Path(order["home"]))
    if "kafka" in order["sources"]:
        # As an argument: as a setting it would take the place of the packages that executors are sent.
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(map(str, jars(CONNECTOR)))} pyspark-shell"
    builder = SparkSession.builder.master(order.get("master", "local[2]"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    return configure_spark_with_delta_pip(builder).getOrCreate()


if __name__ == "__main__":
    Driver(json.loads(sys.argv[1])).run()
