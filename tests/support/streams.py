"""Streaming queries for tests: numbered records in, a Delta table out, through `foreach_batch`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

import laminar_delta as ld
from laminar_delta import streaming
from laminar_delta.catalog.sinks import Step, When
from laminar_delta.streaming import Batch, BatchResult, BatchStep, DeltaSink
from tests.support.delivery import FileSink, ForgetfulSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from laminar_delta.streaming.sinks import FrameSink

Points = Callable[[BatchStep | Step, When], None]
PIPELINE = "orders"
FIRST_FILE_AT = 1_700_000_000


class FileFrameSink(FileSink):
    """A sink of files that outlives its process: the other kind a query can have."""

    def write(self, frame: DataFrame) -> None:  # type: ignore[override]
        for row in frame.collect():
            super().write(str(row["id"]))


class ForgetfulFrameSink(ForgetfulSink):
    """A sink that can neither be asked again nor recognise a batch: of these a pipeline may have one."""

    def write(self, frame: DataFrame) -> None:  # type: ignore[override]
        for row in frame.collect():
            super().write(str(row["id"]))


class CrashError(Exception):
    """Ends a batch where it is: raised where nothing handles errors, it leaves what a killed process would leave."""


def quick(spark: SparkSession) -> SparkSession:
    """A session beside the tests' own in which small queries do not take seconds."""
    session = spark.newSession()
    for name in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        session.conf.set(name, "1")
    return session


@dataclass
class Stream:
    """A query over a directory of numbered JSON files, one file a batch."""

    home: Path
    spark: SparkSession
    catalog: ld.Catalog
    pipeline: str = PIPELINE
    results: list[BatchResult] = field(default_factory=list)
    made: int = 0

    def add(self, files: int, per_file: int = 3) -> None:
        """Adds input; ids go on from those there are."""
        (self.home / "in").mkdir(parents=True, exist_ok=True)
        for _ in range(files):
            lines = [json.dumps({"id": number}) for number in range(self.made, self.made + per_file)]
            hidden = self.home / f".{self.made}"
            hidden.write_text("\n".join(lines))
            os.utime(hidden, (FIRST_FILE_AT + self.made,) * 2)  # Spark reads files in the order of their times
            hidden.rename(self.home / "in" / f"{self.made:09}.json")
            self.made += per_file

    def sink(self, name: str = "out") -> DeltaSink:
        return DeltaSink(str(self.home / name))

    def read(self) -> DataFrame:
        reader = self.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.home / "in"))

    def wrapped(
        self, sinks: Sequence[FrameSink], fn: Any = None, observe: Points | None = None, **options: Any
    ) -> streaming.ForeachBatch:
        return streaming.foreach_batch(
            self.catalog,
            self.pipeline,
            fn or totals(sinks),
            sinks=sinks,
            on_result=self.results.append,
            observe=observe,
            **options,
        )

    def start(self, deliver: streaming.ForeachBatch) -> StreamingQuery:
        writer = self.read().writeStream.foreachBatch(deliver)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    @property
    def checkpoint(self) -> Path:
        return self.home / "spark"

    def run(
        self, sinks: Sequence[FrameSink] | None = None, fn: Any = None, observe: Points | None = None, **options: Any
    ) -> list[BatchResult]:
        """Runs the query until it has read everything; what became of the batches."""
        before = len(self.results)
        deliver = self.wrapped([self.sink()] if sinks is None else sinks, fn, observe, **options)
        self.start(deliver).awaitTermination()
        return self.results[before:]

    def crash(
        self,
        at: tuple[BatchStep | Step, When],
        sinks: Sequence[FrameSink],
        fn: Any = None,
        *,
        batches_before: int = 0,
    ) -> list[BatchResult]:
        """Runs the query until it ends at a point; what became of the batches before."""
        before, begun = len(self.results), 0

        def observe(step: BatchStep | Step, when: When) -> None:
            nonlocal begun
            begun += (step, when) == (BatchStep.DELIVER, When.BEFORE)
            if (step, when) == at and begun > batches_before:
                raise CrashError(f"{step} {when.value}")

        try:
            self.run(sinks, fn, observe)
        except StreamingQueryException as error:
            if "CrashError" not in str(error):
                raise
            return self.results[before:]
        raise AssertionError(f"{at} was not reached")

    def output(self, name: str = "out") -> list[int]:
        rows = self.spark.read.format("delta").load(str(self.home / name)).select("id").collect()
        return sorted(row["id"] for row in rows)

    def assert_each_once(self, name: str = "out") -> None:
        found = Counter(self.output(name))
        assert found == Counter(range(self.made)), found


def totals(sinks: Iterable[FrameSink]) -> Callable[[DataFrame, Batch], dict[str, DataFrame]]:
    """A function that hands on the records to all sinks and keeps their sum as state."""
    names = [sink.name for sink in sinks]

    def fn(frame: DataFrame, batch: Batch) -> dict[str, DataFrame]:
        before = 0 if batch.state is None else int(batch.state.read("total"))
        total = before + sum(row["id"] for row in frame.collect())
        batch.checkpoint.state("total", str(total).encode())
        return dict.fromkeys(names, frame)

    return fn
