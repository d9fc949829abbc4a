"""State from executors of their own JVMs, saved and loaded by `local-cluster`: run as a process, says what it found as JSON.

`python -m benchmarks.cluster_job <directory> <MiB> [lose]`: a process of its own, because a master can be chosen once in a
process, and because the driver's memory is to be seen. With `lose` an executor is killed while it writes.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lz4.block
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import laminar_delta as ld
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.codec import BLOCK_BYTES, StreamDigest, xxh3_hex

MIB = 1 << 20
PIECE = 16
"""MiB of state in one partition."""
STATE = "operator string, partition bigint, payload binary"
DIGEST = "partition bigint, digest string"


def main(place: Path, mebibytes: int, *, lose: bool) -> dict[str, Any]:
    spark = _session(place)
    try:
        return _losing(spark, place) if lose else _measuring(spark, place, max(1, mebibytes // PIECE))
    finally:
        spark.stop()


def _session(place: Path) -> SparkSession:
    from delta import configure_spark_with_delta_pip

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local-cluster[2,1,2048]")
        .appName("laminar-delta-cluster")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "1g")
        # A batch goes to Python whole: with the default ten thousand rows, all of a task's states at once.
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
        .config("spark.executorEnv.PYTHONPATH", str(Path(ld.__file__).parents[1]))
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.worker.cleanup.enabled", "true")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    return configure_spark_with_delta_pip(builder).getOrCreate()


def _measuring(spark: SparkSession, place: Path, partitions: int) -> dict[str, Any]:
    catalog = ld.open_catalog(str(place / "catalog"))
    orders = catalog.pipeline("orders")
    with catalog.writer("warm") as writer, writer.checkpoint() as warm:
        warm.state_frame(_states(spark, 2, 1))
    _digests(catalog.pipeline("warm").state(1).frame(spark))
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]  # a classic session has one
    plain = place / "plain"
    plain.mkdir()
    frame = _states(spark, partitions, PIECE)
    files, _ = _measured("write", jvm, lambda: frame.mapInArrow(partial(_write_plain, str(plain)), DIGEST).collect())
    writer = catalog.writer("orders")

    def save() -> None:
        with writer.checkpoint() as cp:
            cp.state_frame(frame)

    saved, save_grown = _measured("save", jvm, save)
    read, _ = _measured(
        "read",
        jvm,
        lambda: _states(spark, partitions, 0).mapInArrow(partial(_read_plain, str(plain)), DIGEST).collect(),
    )
    by_executors: dict[int, str] = {}
    loaded, load_grown = _measured("load", jvm, lambda: by_executors.update(_digests(orders.state(1).frame(spark))))
    return {
        "mebibytes": partitions * PIECE,
        "seconds": {"write": files, "save": saved, "read": read, "load": loaded},
        "driver_grown": {"save": save_grown, "load": load_grown},
        "by_executors": by_executors,
        "by_embedded": _read_here(catalog, "orders", range(partitions)),
        "made": {number: xxh3_hex(_state(number, PIECE)) for number in range(partitions)},
    }


def _losing(spark: SparkSession, place: Path) -> dict[str, Any]:
    """The first try of a task loses its executor when it has already written a file."""
    catalog = ld.open_catalog(str(place / "catalog"))
    policy = StatePolicy(part_bytes=2 * MIB)
    with catalog.writer("orders", state_policy=policy) as writer, writer.checkpoint() as cp:
        cp.state_frame(_states(spark, 8, 4, slices=1, lose=str(place / "lost")))
    table = place / "catalog" / OPERATOR_SNAPSHOTS.name
    entry = max((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    return {
        "lost": (place / "lost").exists(),
        "files": sorted(path.name for path in table.glob("*.parquet")),
        "committed": sorted(action["add"]["path"] for action in actions if "add" in action),
        "valid": catalog.pipeline("orders").validate(1).valid,
        "by_embedded": _read_here(catalog, "orders", range(8)),
        "by_executors": _digests(catalog.pipeline("orders").state(1).frame(spark)),
        "made": {number: xxh3_hex(_state(number, 4)) for number in range(8)},
    }


def _states(
    spark: SparkSession, partitions: int, mebibytes: int, *, slices: int | None = None, lose: str | None = None
) -> DataFrame:
    """A state for each partition, made where it is needed."""
    numbers = spark.range(partitions, numPartitions=slices or partitions)
    return numbers.mapInArrow(partial(_make, mebibytes, lose), STATE)


def _make(mebibytes: int, lose: str | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            if lose is not None and row["id"] == 3 and not Path(lose).exists():
                _lose_executor(Path(lose))
            made = {"operator": ["agg"], "partition": [row["id"]], "payload": [_state(row["id"], mebibytes)]}
            yield pa.RecordBatch.from_pydict(made, schema=_schema())


def _schema() -> pa.Schema:
    return pa.schema(dict[str, pa.DataType](operator=pa.string(), partition=pa.int64(), payload=pa.binary()))


def _state(number: int, mebibytes: int) -> bytes:
    """Half of it compressible, every block of it different."""
    from random import Random

    state = bytearray((Random(number).randbytes(MIB // 2) + bytes(MIB // 2)) * mebibytes)
    for index, at in enumerate(range(0, len(state), BLOCK_BYTES)):
        state[at : at + 8] = (number << 32 | index).to_bytes(8, "little")
    return bytes(state)


def _lose_executor(sign: Path) -> None:
    """Kills the JVM this task runs in, once a file of the task is there: what it wrote stays behind."""
    table = sign.parent / "catalog" / OPERATOR_SNAPSHOTS.name
    deadline = time.monotonic() + 60
    while not any(table.glob("*.parquet")):
        if time.monotonic() > deadline:
            raise AssertionError("no task wrote a file")
        time.sleep(0.01)
    sign.touch()
    assert TaskContext.get() is not None
    pid = os.getppid()
    while "java" not in Path(f"/proc/{pid}/comm").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(pid, signal.SIGKILL)
    os._exit(1)


def _write_plain(place: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What anybody would do: the state of each partition as a file of LZ4 blocks, flushed."""
    for batch in batches:
        for row in batch.to_pylist():
            with (Path(place) / str(row["partition"])).open("wb") as file:
                for at in range(0, len(row["payload"]), MIB):
                    packed = lz4.block.compress(row["payload"][at : at + MIB], store_size=False)
                    file.write(len(packed).to_bytes(4, "little") + packed)
                file.flush()
                os.fsync(file.fileno())
            yield _digest(row["partition"], "")


def _read_plain(place: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            number = row["partition"]
            digest = StreamDigest()
            with (Path(place) / str(number)).open("rb") as file:
                while size := file.read(4):
                    digest.update(
                        lz4.block.decompress(file.read(int.from_bytes(size, "little")), uncompressed_size=MIB)
                    )
            yield _digest(number, digest.checksum)


def _digests(frame: DataFrame) -> dict[int, str]:
    """What the states in a frame are, told by executors."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield _digest(row["partition"], xxh3_hex(row["payload"]))

    return {row["partition"]: row["digest"] for row in frame.mapInArrow(task, DIGEST).collect()}


def _digest(number: int, digest: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"partition": [number], "digest": [digest]})


def _read_here(catalog: ld.Catalog, pipeline: str, partitions: range) -> dict[int, str]:
    state = catalog.pipeline(pipeline).state(1)
    return {number: xxh3_hex(state.read("agg", number)) for number in partitions}


def _measured(what: str, jvm: int, call: Callable[[], object]) -> tuple[float, dict[str, int]]:
    """Seconds, and by how many MiB the driver's Python and its JVM grew at most."""
    processes = {"python": os.getpid(), "jvm": jvm}
    base = {name: _resident(pid) for name, pid in processes.items()}
    peak = dict(base)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            for name, pid in processes.items():
                peak[name] = max(peak[name], _resident(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    try:
        call()
    finally:
        seconds = time.perf_counter() - start
        done.set()
        watcher.join()
    grown = {name: (peak[name] - base[name]) // MIB for name in processes}
    # As it comes: a run on a busy machine takes long, and may be ended before the rest is known.
    print(f"{what}: {seconds:.1f} s, driver grown by {grown} MiB", file=sys.stderr, flush=True)
    return seconds, grown


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), lose="lose" in sys.argv[3:])))
