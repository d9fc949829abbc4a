"""The engine over Spark Connect, against a server of its own: a process apart, because Connect takes over a whole process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 1800
"""However busy the machine is: a client that takes longer hangs."""

CLIENT = """
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

from laminar_delta.engine.predicate import col, target
from laminar_delta.engine.request import Fence, Merge, WhenMatched
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.errors import ConflictError, ErrorCode, FencedError, InvalidInputError, NotFoundError
from laminar_delta.testing.conformance.tables import EVERY_TYPE, LINES, every_type_rows, line
from tests.support.connect import session
import pyarrow as pa

spark = session(sys.argv[1])
warnings.simplefilter("error")
warnings.simplefilter("ignore", ResourceWarning)


def fails(kind, call, code=None):
    try:
        call()
    except kind as error:
        assert code is None or error.code is code, error
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


fails(InvalidInputError, lambda: SparkEngine("/anywhere", spark=spark), ErrorCode.UNSUPPORTED)
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

# Nothing keeps another commit out between the look whether a merge has an effect and the MERGE: then its guard does not hold.
guarded = Merge(keys=upsert.keys, scope=upsert.scope, when_matched=upsert.when_matched, guard=col("attempt").eq("a"))
look = engine._is_idle


def overtaken(*given):
    idle = look(*given)
    spark.sql("UPDATE ckpt.lines SET attempt = 'b' WHERE id = 1").collect()
    return idle


engine._is_idle = overtaken
kept_out = engine.merge("lines", line("p", 1, "mine"), guarded, fences=[Fence("x", 12)])
assert (kept_out.version, kept_out.updated) == (None, 0)
engine._is_idle = look
assert engine.raise_fence("lines", Fence("x", 12)) is not None

assert engine.optimize("lines") is not None
assert engine.restore("lines", 1) == engine.version("lines")
assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None
engine.close()
assert spark.sql("SELECT 1").collect()[0][0] == 1
spark.stop()
"""


CATALOG = """
import sys
import warnings

import laminar_delta as ld
from laminar_delta.errors import FencedError
from tests.support.connect import session

spark = session(sys.argv[1])
warnings.simplefilter("error")
warnings.simplefilter("ignore", ResourceWarning)

catalog = ld.open_catalog("spark_catalog.ckpt", spark=spark)
first = catalog.writer("orders", owner="first")
with first.checkpoint() as cp:
    cp.source("kafka", {"orders-0": "1500"})
    cp.state("agg", b"what it knew" * 5000)
    cp.sink("warehouse")
first.sink_committed(cp.id, "warehouse")
then = {"manifests": catalog.engine.version("manifests")}

second = catalog.writer("orders", owner="second")
try:
    with first.checkpoint() as late:
        late.source("kafka", {"orders-0": "1600"})
    raise AssertionError("a zombie committed")
except FencedError as error:
    assert "second" in str(error), error
assert second.recover().chosen_id == cp.id
with second.checkpoint() as following:
    following.source("kafka", {"orders-0": "1700"})
derived = second.rewind(cp.id, reason="test")
second.close()

orders = catalog.pipeline("orders")
assert [head.checkpoint_id for head in orders.list()] == [cp.id, following.id, derived.checkpoint_id]
assert orders.state(derived.checkpoint_id).read("agg") == b"what it knew" * 5000
assert orders.validate(derived.checkpoint_id).valid
(row,) = catalog.sql("SELECT checkpoint_id, derived_how FROM latest_checkpoints").to_pylist()
assert row == {"checkpoint_id": derived.checkpoint_id, "derived_how": "rewind"}
assert spark.sql("SELECT * FROM spark_catalog.ckpt.latest_checkpoints").count() == 1
assert [head.checkpoint_id for head in catalog.as_of(versions=then).pipeline("orders").list()] == [cp.id]
assert {entry.owner for entry in catalog.audit(pipeline="orders")} >= {"first", "second"}
assert catalog.sql("SELECT * FROM progress_history").num_rows == 0
report = catalog.maintain(ld.MaintenancePolicy(vacuum=False))
assert "by itself" in report.put_off["manifests"], report
catalog.close()
spark.stop()
"""


STREAM = """
import json
import sys
from pathlib import Path

import laminar_delta as ld
from laminar_delta import streaming
from tests.support.connect import session

spark = session(sys.argv[1])
home = Path(sys.argv[1]).parent
(home / "in").mkdir()
catalog = ld.open_catalog("spark_catalog.ckpt", spark=spark)


def keep_total(events, batch):
    before = 0 if batch.state is None else int(batch.state.read("total"))
    batch.checkpoint.state("total", str(before + sum(row["id"] for row in events.collect())).encode())
    return events


def query():
    sink = streaming.DeltaSink(str(home / "out"))
    deliver = streaming.foreach_batch(catalog, "orders", keep_total, sinks=[sink], checkpoint_location=str(home / "spark"))
    stream = spark.readStream.schema("id long").json(str(home / "in")).writeStream.foreachBatch(deliver)
    started = stream.option("checkpointLocation", str(home / "spark")).trigger(availableNow=True).start()
    started.awaitTermination()
    assert started.exception() is None, started.exception()


for number in (1, 2):
    (home / "in" / f"{number}.json").write_text(json.dumps({"id": number}))
    query()

orders = catalog.pipeline("orders")
assert [head.epoch for head in orders.list()] == [1, 2]
assert orders.latest().sink_commit_statuses["out"].is_committed
assert orders.state(orders.latest().checkpoint_id).read("total") == b"3"
assert sorted(row["id"] for row in spark.read.format("delta").load(str(home / "out")).collect()) == [1, 2]

# Noted by the catalog and not by Spark, as where a server dies in between: found there, not delivered again.
(home / "spark" / "commits" / "1").unlink()
(home / "spark" / "commits" / ".1.crc").unlink(missing_ok=True)
query()
assert sorted(row["id"] for row in spark.read.format("delta").load(str(home / "out")).collect()) == [1, 2]
assert [head.epoch for head in orders.list()] == [1, 2]
catalog.close()
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.parametrize(
    "client",
    [CLIENT, pytest.param(CATALOG, marks=pytest.mark.soak), pytest.param(STREAM, marks=pytest.mark.soak)],
    ids=["engine", "catalog", "stream"],
)
def test_over_connect(client: str, tmp_path: Path) -> None:
    # Into a file: processes of the server's outlive the client, and would keep a pipe open.
    said = tmp_path / "said"
    with said.open("wb") as file:
        code = subprocess.run(
            [sys.executable, "-c", client, str(tmp_path / "warehouse")],
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
            stdout=file,
            stderr=file,
            check=False,
            timeout=ENDS_WITHIN_S,
        ).returncode
    assert code == 0, said.read_text()[-4000:]


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.soak
def test_the_suite_over_connect_fails_where_the_page_says() -> None:
    page = (ROOT / "docs" / "connect.md").read_text()
    told = set(re.findall(r"`(test_\w+(?:\[[^\]]+\])?)`", page))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "soak",
        "-p",
        "no:cacheprovider",
        "tests/spark/connect_suite.py",
    ]
    done = subprocess.run(
        [*command, "--tb=line", "-o", "faulthandler_timeout=3600"],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * ENDS_WITHIN_S,
    )
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(test_\w+(?:\[[^\]]+\])?)", done.stdout, re.MULTILINE))
    assert re.search(r"\d+ passed", done.stdout), done.stdout[-4000:]
    assert failed == told, done.stdout[-4000:]
