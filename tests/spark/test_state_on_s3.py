"""State frames of a catalog on an object store, a real S3 server: executors write and read with the driver's credentials."""

import logging
import random
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.distributed.cutting import Order, write_parts
from laminar_delta.errors import StorageError
from tests.support.s3 import KEY, SECRET, s3_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.soak]

BLOCK = 1024
POLICY = StatePolicy(block_bytes=BLOCK, chunk_bytes=8 * BLOCK, part_bytes=32 * BLOCK)
STATES = {("agg", number): random.Random(number).randbytes(40 * BLOCK + number) for number in range(3)}
STATES["empty", 0] = b""


def _frame(spark: "SparkSession", states: dict[tuple[str, int], bytes]) -> "DataFrame":
    rows = [(operator, partition, bytearray(payload)) for (operator, partition), payload in states.items()]
    return spark.createDataFrame(rows, "operator string, partition int, payload binary").repartition(2)


def _loaded(frame: "DataFrame") -> dict[tuple[str, int], bytes]:
    return {(row["operator"], row["partition"]): bytes(row["payload"]) for row in frame.collect()}


def _descriptions(spark: "SparkSession") -> str:
    """Of everything that this session ran: what its pages and event logs show."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    found = [executions.apply(number) for number in range(executions.size())]
    return "\n".join(f"{one.description()} {one.details()} {one.physicalPlanDescription()}" for one in found)


def test_executors_write_and_read_with_the_drivers_credentials(
    spark: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="laminar_delta")
    changed = {**STATES, ("agg", 1): STATES["agg", 1][: 20 * BLOCK] + b"!" + STATES["agg", 1][20 * BLOCK + 1 :]}
    with s3_server(tmp_path) as server:
        server.filesystem().create_dir("bucket")
        catalog = ld.open_catalog("s3://bucket/catalog", storage_options=server.storage_options)
        writer = catalog.writer("orders", state_policy=POLICY)
        with writer.checkpoint() as first:
            first.state_frame(_frame(spark, STATES))
            first.state("small", b"in the row")
        with writer.checkpoint() as second:
            second.state_frame(_frame(spark, changed))
        orders = catalog.pipeline("orders")
        assert _loaded(orders.state(first.id).frame(spark)) == {**STATES, ("small", 0): b"in the row"}
        assert _loaded(orders.state(second.id).frame(spark)) == changed
        assert {key: orders.state(second.id, heal=False).read(*key) for key in changed} == changed
        assert orders.recover(dry_run=True).chosen_id == second.id
        # One commit for all that executors wrote, in files of their own; the second time only for what is empty.
        assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 2
        written = list((server.root / "bucket" / "catalog" / OPERATOR_SNAPSHOTS.name).glob("*.parquet"))
        assert len(written) > 1
        deltas = catalog.engine.read(OPERATOR_DELTAS.name, columns=["chunk", "raw_length"]).to_pylist()
        assert [row["raw_length"] for row in deltas if row["chunk"] >= 0] == [BLOCK]
    shown = _descriptions(spark) + caplog.text
    assert "MapInArrow" in shown
    assert SECRET not in shown
    assert KEY not in shown


def test_what_a_store_says_against_a_task_has_no_credentials(tmp_path: Path) -> None:
    attempt = Attempt(pipeline="orders", checkpoint_id=1, attempt_id="a", generation=1, owner="job")
    rows: dict[str, list[Any]] = {"operator": ["agg"], "partition": [0], "payload": [b"state"]}
    with s3_server(tmp_path) as server:
        server.filesystem().create_dir("bucket")
        options = {**server.storage_options, "AWS_SECRET_ACCESS_KEY": "not-the-credential"}
        order = Order(attempt=attempt, policy=POLICY, upon={}, location="s3://bucket/catalog", options=options)
        with pytest.raises(StorageError, match=r"'operator_snapshots' cannot be written: .*403") as caught:
            list(write_parts(order, [pa.RecordBatch.from_pydict(rows)]))
    # The last is what Spark hands on from a task.
    for shown in (repr(order), repr(caught.value), "".join(traceback.format_exception(caught.value))):
        assert KEY not in shown
        assert "not-the-credential" not in shown
    assert caught.value.__cause__ is None
