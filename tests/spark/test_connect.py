"""The engine over Spark Connect, against a server of its own: a process apart, because Connect takes over a whole process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = """
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from laminar_delta.engine.predicate import col, target
from laminar_delta.engine.request import Fence, Merge, WhenMatched
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.errors import ConflictError, ErrorCode, FencedError, InvalidInputError, NotFoundError
from laminar_delta.testing.conformance.tables import EVERY_TYPE, LINES, every_type_rows, line
import pyarrow as pa

spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.jars.packages", sys.argv[2])
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.warehouse.dir", sys.argv[1])
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "2g")
    .getOrCreate()
)
warnings.simplefilter("error")
warnings.simplefilter("ignore", ResourceWarning)


def fails(kind, call, code=None):
    try:
        call()
    except kind as error:
        assert code is None or error.code is code, error
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


fails(InvalidInputError, lambda: SparkEngine("/tmp/anywhere", spark=spark), ErrorCode.UNSUPPORTED)
spark.conf.set("spark.sql.shuffle.partitions", "7")
engine = SparkEngine("ckpt", spark=spark)
assert not engine.exists("lines")
fails(NotFoundError, lambda: engine.read("lines"))
assert engine.create(LINES) and not engine.create(LINES)

made = engine.append("lines", line("p", 1, "a"), fences=[Fence("x", 5)], key={"attempt": "a"})
assert made.version == 1 and not made.replayed
assert engine.append("lines", line("p", 1, "a"), fences=[Fence("x", 5)], key={"attempt": "a"}).replayed
error = fails(FencedError, lambda: engine.append("lines", line("p", 2), fences=[Fence("x", 4)], key={"id": 2}))
assert error.found == {"x": 5}
assert engine.raise_fence("lines", Fence("x", 9)).version == 2
assert engine.raise_fence("lines", Fence("x", 9)) is None

upsert = Merge(keys=("pipeline", "id"), scope=target("pipeline").eq("p"), when_matched=(WhenMatched(),))
insert = Merge(keys=("pipeline", "id"), scope=target("pipeline").eq("p"))
assert engine.merge("lines", line("p", 7), upsert, fences=[Fence("x", 10)], metadata={"who": "me"}).inserted == 1
fails(FencedError, lambda: engine.merge("lines", line("p", 8), upsert, fences=[Fence("x", 10)]))
assert engine.merge("lines", line("p", 7), insert, fences=[Fence("x", 11)]).version is None
assert engine.delete("lines", col("id").eq(7), fences=[Fence("x", 11)]).deleted == 1
assert [entry.metadata.get("who") for entry in engine.history("lines", limit=2)] == [None, "me"]
assert engine.read("lines", version=1).num_rows == engine.read("lines").num_rows == 1
fails(NotFoundError, lambda: engine.read("lines", version=99), ErrorCode.VERSION_GONE)
fails(InvalidInputError, lambda: engine.log_checkpoint("lines"), ErrorCode.UNSUPPORTED)

engine.create(EVERY_TYPE)
rows = every_type_rows()
engine.append(EVERY_TYPE.name, pa.Table.from_pylist(rows, schema=EVERY_TYPE.schema))
for streamed in (False, True):
    found = engine.scan(EVERY_TYPE.name, streamed=streamed).read_all().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == sorted(rows, key=lambda row: row["id"])


def rival(number):
    try:
        return engine.merge("lines", line("p", 50, str(number)), insert).inserted
    except ConflictError as error:
        assert "DELTA_CONCURRENT" in str(error), error
        return 0


with ThreadPoolExecutor(3) as pool:
    assert sum(pool.map(rival, range(3))) == 1

assert engine.optimize("lines") is not None
assert engine.restore("lines", 1) == engine.version("lines")
assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None
engine.close()
assert spark.sql("SELECT 1").collect()[0][0] == 1
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.processes
def test_the_engine_over_connect(tmp_path: Path) -> None:
    from importlib.metadata import version

    package = f"io.delta:delta-spark_4.2_2.13:{version('delta-spark')}"
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path / "warehouse"), package],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
