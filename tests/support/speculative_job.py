"""State saved by a task that hangs until Spark has another one do the same: run as a process, says what it found as JSON.

`python -m tests.support.speculative_job <directory> <master>`. The first try of a task writes some files and goes no further;
its twin begins when they are there, and finishes.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import SparkSession

import laminar_delta as ld
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.codec import xxh3_hex

MIB = 1 << 20
STATES = 24
SLICES = 3
STATE = "operator string, partition bigint, payload binary"
_WITHIN_S = 120


def main(place: Path, master: str) -> dict[str, Any]:
    spark = _session(place, master)
    try:
        catalog = ld.open_catalog(str(place / "catalog"))
        (place / "signs").mkdir()
        with (
            catalog.writer("orders", state_policy=ld.StatePolicy(part_bytes=MIB)) as writer,
            writer.checkpoint() as cp,
        ):
            cp.state_frame(spark.range(STATES, numPartitions=SLICES).mapInArrow(partial(_make, str(place)), STATE))
        orders = catalog.pipeline("orders")
        loaded = orders.state(cp.id).frame(spark).collect()
        entry = max((_table(place) / "_delta_log").glob("*.json"))
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        return {
            "signs": sorted(path.name for path in (place / "signs").iterdir()),
            "lost": json.loads((place / "signs" / "hangs").read_text()),
            "files": sorted(path.name for path in _table(place).glob("*.parquet")),
            "committed": sorted(action["add"]["path"] for action in actions if "add" in action),
            "valid": orders.validate(cp.id).valid,
            "made": {number: xxh3_hex(_state(number)) for number in range(STATES)},
            "by_embedded": {number: xxh3_hex(orders.state(cp.id).read("agg", number)) for number in range(STATES)},
            "by_executors": {row["partition"]: xxh3_hex(bytes(row["payload"])) for row in loaded},
        }
    finally:
        spark.stop()


def _session(place: Path, master: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(Path(ld.__file__).parents[1]), *sys.path]),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
        # The task that hangs is on one host; the others are done on the other, which then gets its twin.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.cores.max": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    }
    builder = SparkSession.builder.master(master).appName("laminar-delta-speculation")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _make(place: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    hangs = context.partitionId() == 0
    if hangs:
        _begin(Path(place), context.attemptNumber())
    for batch in batches:
        for row in batch.to_pylist():
            if hangs and context.attemptNumber() == 0 and row["id"] == STATES // SLICES - 1:
                _hang(Path(place))
            made = {"operator": ["agg"], "partition": [row["id"]], "payload": [_state(row["id"])]}
            yield pa.RecordBatch.from_pydict(made, schema=_schema())
    if hangs:
        (Path(place) / "signs" / f"ended-{context.attemptNumber()}").touch()


def _begin(place: Path, attempt: int) -> None:
    signs = place / "signs"
    (signs / f"began-{attempt}").touch()
    if attempt:
        _await("the first try hangs", (signs / "hangs").exists)


def _hang(place: Path) -> None:
    """Until Spark ends this process, once files of this task are there: what it wrote stays behind."""
    _await("a file of this task", lambda: bool(_written(place)))
    unfinished = place / "hangs"
    unfinished.write_text(json.dumps(_written(place)))
    unfinished.rename(place / "signs" / "hangs")
    _await("the end", lambda: False)


def _written(place: Path) -> list[str]:
    """Files with the first state of the task, which nobody else writes as long as its twin has not begun."""
    found = []
    for path in _table(place).glob("*.parquet"):
        try:
            partitions = pq.read_table(path, columns=["partition"])["partition"].to_pylist()
        except (pa.ArrowInvalid, OSError):
            continue  # not whole yet
        if 0 in partitions:
            found.append(path.name)
    return found


def _await(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come")
        time.sleep(0.02)


def _table(place: Path) -> Path:
    return place / "catalog" / OPERATOR_SNAPSHOTS.name


def _schema() -> pa.Schema:
    return pa.schema(dict[str, pa.DataType](operator=pa.string(), partition=pa.int64(), payload=pa.binary()))


def _state(number: int) -> bytes:
    return Random(number).randbytes(MIB + number)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2])) + "\n")
