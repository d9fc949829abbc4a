"""State as frames: executors write it and put it together, and the embedded engine reads the same bytes."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import laminar_delta as ld
from laminar_delta.catalog.state.applying import register_apply
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.state.progress import StateProgress
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.distributed.plainly import plain_errors
from laminar_delta.distributed.sharing import TASKS_PER_CORE
from laminar_delta.errors import CorruptionError, InvalidInputError, StorageError
from tests.support.catalogs import ready_made

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BLOCK = 1024
POLICY = StatePolicy(block_bytes=BLOCK, chunk_bytes=8 * BLOCK, part_bytes=32 * BLOCK)
STATES = {("agg", partition): random.Random(partition).randbytes(40 * BLOCK + partition) for partition in range(4)}
STATES["empty", 0] = b""
STATES["join", 1] = b"the other half"
SCHEMA = "operator string, partition int, payload binary"


def _frame(spark: "SparkSession", states: dict[tuple[str, int], bytes]) -> "DataFrame":
    rows = [(operator, partition, bytearray(payload)) for (operator, partition), payload in states.items()]
    return spark.createDataFrame(rows, SCHEMA).repartition(3)


def _loaded(frame: "DataFrame") -> dict[tuple[str, int], bytes]:
    return {(row["operator"], row["partition"]): bytes(row["payload"]) for row in frame.collect()}


@pytest.mark.parametrize("engine", ["embedded", pytest.param("spark", marks=pytest.mark.soak)])
def test_executors_write_what_changed_and_read_it_back(
    spark: "SparkSession", tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    catalog = ready_made(engine, tmp_path / "catalog", request)()
    writer = catalog.writer("orders", state_policy=POLICY)
    with writer.checkpoint() as first:
        first.source("kafka", {"0": "1"})
        first.state_frame(_frame(spark, STATES))
        first.state("small", b"inline")
        # Small, and the frame has another partition of the operator.
        first.state("join", b"one half")
    orders = catalog.pipeline("orders")
    assert _loaded(orders.state(first.id).frame(spark)) == {
        **STATES,
        ("small", 0): b"inline",
        ("join", 0): b"one half",
    }
    assert {key: orders.state(first.id).read(*key) for key in STATES} == STATES
    assert orders.validate(first.id).valid
    changed = dict(STATES)
    state = bytearray(changed["agg", 2])
    state[5 * BLOCK] ^= 1
    changed["agg", 2] = bytes(state)
    # Stored whole, as it is upon nothing.
    changed["agg", 9] = STATES["agg", 3][::-1]
    told: list[StateProgress] = []
    with writer.checkpoint(tell=told.append) as second:
        second.state_frame(_frame(spark, changed))
    assert {(said.operator, said.partition): said.done for said in told} == {key: len(changed[key]) for key in changed}
    stored = catalog.engine.read(OPERATOR_DELTAS.name, columns=["raw_length", "chunk"]).to_pylist()
    assert [row["raw_length"] for row in stored if row["chunk"] >= 0] == [BLOCK]
    forms = catalog.sql(
        f"SELECT operator, partition, form FROM state_usage WHERE checkpoint_id = {second.id}"
    ).to_pylist()
    assert {(row["operator"], row["partition"]): row["form"] for row in forms} == {
        # An empty state has nothing to be stored upon.
        key: "full" if key in {("agg", 9), ("empty", 0)} else "delta"
        for key in changed
    }
    assert _loaded(orders.state(second.id).frame(spark)) == changed
    pieces = orders.state(second.id).frame(spark, piece_bytes=10_000).orderBy("operator", "partition", "sequence")
    joined: dict[tuple[str, int], bytes] = {}
    for row in pieces.collect():
        key = row["operator"], row["partition"]
        joined[key] = joined.get(key, b"") + bytes(row["payload"])
    assert joined == changed
    with writer.checkpoint() as third:
        third.state_frame(orders.state(second.id).frame(spark, piece_bytes=10_000))
    assert {key: orders.state(third.id).read(*key) for key in changed} == changed
    assert orders.recover(dry_run=True).chosen_id == third.id
    register_apply("append", lambda state, delta: state + delta)
    with writer.checkpoint() as fourth:
        fourth.state_delta("agg", b"more", apply="append", partition=1)
    assert _loaded(orders.state(fourth.id).frame(spark)) == {("agg", 1): changed["agg", 1] + b"more"}


def test_a_frame_that_is_none_leaves_nothing_visible(spark: "SparkSession", tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    writer = catalog.writer("orders", state_policy=POLICY)
    twice = _frame(spark, STATES).union(_frame(spark, {("agg", 1): b"again"}))
    null = spark.createDataFrame([("agg", 0, None)], SCHEMA)
    other = _frame(spark, STATES).withColumnRenamed("payload", "data")
    beside = spark.createDataFrame([("agg", 0, b"one"), ("agg", 0, b"other")], SCHEMA).coalesce(1)
    pieces = spark.createDataFrame([("agg", 0, b"piece", n) for n in (0, 1, 3)], f"{SCHEMA}, sequence long")
    for wrong, words in (
        (twice, "more than once"),
        (null, "no operator, partition or payload"),
        (other, "other columns"),
        (beside, "more than once"),
        (pieces, "pieces of partition 0 of operator 'agg' are missing"),
        (
            pieces.selectExpr("operator", "partition", "payload", "CAST(sequence AS STRING) AS sequence"),
            "other columns",
        ),
    ):
        with pytest.raises(InvalidInputError, match=words), writer.checkpoint() as cp:
            cp.state_frame(wrong)
    failing = _frame(spark, STATES).selectExpr("operator", "partition", "raise_error('no such luck') AS payload")
    with pytest.raises((StorageError, InvalidInputError)), writer.checkpoint() as cp:
        cp.state_frame(failing.selectExpr("operator", "partition", "CAST(payload AS BINARY) AS payload"))
    assert catalog.pipeline("orders").list() == []
    # Files of tasks that nobody committed are in no version.
    assert catalog.engine.read(OPERATOR_SNAPSHOTS.name).num_rows == 0
    with writer.checkpoint() as cp:
        cp.state_frame(_frame(spark, STATES))
    assert catalog.pipeline("orders").validate(cp.id).valid


def test_many_small_states_are_loaded_by_a_few_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    states = {("agg", partition): random.Random(partition).randbytes(500) for partition in range(200)}
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("large", STATES["agg", 0] * 100)
        for (operator, partition), state in states.items():
            cp.state(operator, state, partition=partition)
    frame = catalog.pipeline("orders").state(cp.id).frame(spark)
    assert 1 < frame.rdd.getNumPartitions() <= TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    assert _loaded(frame) == {**states, ("large", 0): STATES["agg", 0] * 100}


def test_a_chunk_that_is_damaged_is_told_as_what_it_is(spark: "SparkSession", tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    state = random.Random(9).randbytes(3 << 20)
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("agg", state)
    (path,) = (tmp_path / "catalog" / OPERATOR_SNAPSHOTS.name).glob("*.parquet")
    part = state[2_000_000:2_000_100]
    whole = path.read_bytes()
    assert part in whole
    path.write_bytes(whole.replace(part, part[::-1]))
    frame = catalog.pipeline("orders").state(cp.id).frame(spark)
    with pytest.raises(CorruptionError, match="chunk 1 of operator 'agg' partition 0 in checkpoint 1"), plain_errors():
        frame.collect()
