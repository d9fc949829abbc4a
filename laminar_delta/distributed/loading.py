"""Loading a frame: the driver reads layouts, executors put the blocks together and verify them.

Where the embedded engine commits, each task opens the tables itself and streams. Where Spark does, Spark brings blocks
together, operator partition by operator partition, in their order.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from laminar_delta.catalog.state import applying
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.catalog.state.streaming import CHUNK_COLUMNS
from laminar_delta.distributed.gathering import INLINE, ORDER, RUNS, in_order, wanted_runs
from laminar_delta.distributed.sharing import each_state, most_tasks, packs
from laminar_delta.engine import open_engine
from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.predicate import col
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.engine.base import Engine

LARGEST_CELL = (1 << 31) - (1 << 20)
"""What Spark takes in one cell, with some room."""
WHOLE = "operator string, partition bigint, payload binary"
IN_PIECES = "operator string, partition bigint, sequence bigint, payload binary"
KEY = ("operator", "partition")


def load_frame(state: CheckpointState, spark: SparkSession, *, piece_bytes: int | None = None) -> DataFrame:
    """The state of a checkpoint as a frame of operator, partition and payload; put together by executors.

    Args:
        state: Whose.
        spark: Where.
        piece_bytes: Give each state as pieces of about this size, numbered in a column `sequence`. Needed for states that
            do not fit into a cell.

    Raises:
        InvalidInputError: A state does not fit into a cell, pieces of nothing are asked for, or executors cannot read from the
            catalog. Of a state that deltas are applied to, the length is known when they are: then the task raises it.
    """
    if piece_bytes is not None and piece_bytes < 1:
        raise InvalidInputError("piece_bytes is too small", expected="1 or more", found=piece_bytes)
    engine = state.reading.engine
    if not isinstance(engine, SparkEngine | EmbeddedEngine):
        raise InvalidInputError(
            f"executors cannot read from a catalog of the engine {engine.name!r}",
            expected=[EmbeddedEngine.name, SparkEngine.name],
            found=engine.name,
            next_step="Read the state with `read` or `to_arrow`.",
        )
    state, layouts = state.whole()
    longest = max((layout.length for layout in layouts), default=0)
    if piece_bytes is None and longest > LARGEST_CELL:
        raise _too_long(longest)
    if isinstance(engine, SparkEngine):
        # Tasks of the other kind heal by themselves. Here Spark brings chunks from one version or the other.
        state, layouts = state.with_all_chunks(layouts)
        return _brought_together(state, engine, spark, layouts, piece_bytes)
    return _read_by_tasks(state, spark, layouts, piece_bytes)


def _read_by_tasks(
    state: CheckpointState, spark: SparkSession, layouts: list[Layout], piece_bytes: int | None
) -> DataFrame:
    lengths = {(layout.operator, layout.partition): layout.length for layout in layouts}
    lengths |= {(operator, 0): len(inline) for operator, inline in state.inline().items()}
    packed = packs(lengths, most_tasks(spark))
    reading = state.reading
    order = pickle.dumps((_opening(reading.engine), reading.versions, reading.stored_at))
    row, heal, functions = state.row, state.heal, applying.known()

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        applying.take(functions)
        opened = CheckpointState(_reading(order), row, heal)
        keys = sorted((row["operator"], row["partition"]) for batch in batches for row in batch.to_pylist())
        for key, pieces in each_state(opened, keys):
            yield from _batches(dict(zip(KEY, key, strict=True)), pieces, piece_bytes)

    rows = [(number, *key) for number, pack in enumerate(packed) for key in pack]
    wanted = spark.createDataFrame(rows or [(0, "", 0)], "task bigint, operator string, partition bigint")
    # By range, which puts no two tasks into one as hashes do.
    spread = wanted.repartitionByRange(len(packed), "task") if rows else wanted.where("false")
    return spread.mapInArrow(task, WHOLE if piece_bytes is None else IN_PIECES)


def _brought_together(
    state: CheckpointState,
    engine: SparkEngine,
    spark: SparkSession,
    layouts: list[Layout],
    piece_bytes: int | None,
) -> DataFrame:
    lines = {(line[-1].operator, line[-1].partition): line for line in state.lines(layouts)}
    functions = applying.known()

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return wanted_runs(lines, batches)

    def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        applying.take(functions)
        for key, pieces in in_order(lines, batches):
            yield from _batches(dict(zip(KEY, key, strict=True)), pieces, piece_bytes)

    first: list[tuple[str, int, int, int, bytearray | None]] = [(*key, INLINE, 0, None) for key in lines]
    first += [(operator, 0, INLINE, 0, bytearray(inline)) for operator, inline in state.inline().items()]
    found = spark.createDataFrame(first, from_arrow_schema(RUNS))
    chunks = _chunks(state, engine, spark, [layout for line in lines.values() for layout in line])
    if chunks is not None:
        found = found.unionByName(chunks.mapInArrow(cut, found.schema))
    sorted_ = found.repartition(*KEY).sortWithinPartitions(*ORDER)
    return sorted_.mapInArrow(join, WHOLE if piece_bytes is None else IN_PIECES)


def _chunks(
    state: CheckpointState, engine: SparkEngine, spark: SparkSession, layouts: list[Layout]
) -> DataFrame | None:
    """Every chunk that some layout may need."""
    frames = []
    for table in sorted({store.table for layout in layouts for store in layout.stores}):
        wanted = {store.checkpoint_id for layout in layouts for store in layout.stores if store.table == table}
        for reading, numbers in state.reading.of_checkpoints(table, wanted):
            where = col("pipeline").eq(state.owner) & col("checkpoint_id").is_in(numbers) & col("chunk").ge(0)
            where &= col("operator").is_in(sorted({layout.operator for layout in layouts}))
            frames.append(engine.frame(spark, table, CHUNK_COLUMNS, where, reading.versions.get(table)))
    return reduce(lambda one, other: one.unionByName(other), frames) if frames else None


def _reading(order: bytes) -> Reading:
    from laminar_delta.catalog.reading import Reading

    (name, location, options), versions, stored_at = pickle.loads(order)  # from our own driver
    return Reading(open_engine(name, location, **options), versions, stored_at)


def _opening(engine: Engine) -> tuple[str, str, dict[str, Any]]:
    """How a task opens the engine: with the driver's own means to get at an object store."""
    options = {"storage_options": engine.storage_options} if isinstance(engine, EmbeddedEngine) else {}
    return engine.name, engine.location, options


def _batches(key: Row, pieces: Iterator[bytes | memoryview], piece_bytes: int | None) -> Iterator[pa.RecordBatch]:
    fixed = {name: key[name] for name in KEY}
    if piece_bytes is None:
        payload = b"".join(pieces)
        if len(payload) > LARGEST_CELL:
            raise _too_long(len(payload))
        yield _batch({**fixed, "payload": payload})
        return
    for sequence, piece in enumerate(_regrouped(pieces, piece_bytes)):
        yield _batch({**fixed, "sequence": sequence, "payload": piece})


def _too_long(length: int) -> InvalidInputError:
    return InvalidInputError(
        f"a state of {length} bytes does not fit into one cell",
        expected=f"at most {LARGEST_CELL}, or piece_bytes",
        found=length,
        next_step="Ask for pieces with piece_bytes.",
    )


def _regrouped(pieces: Iterator[bytes | memoryview], size: int) -> Iterator[bytes]:
    waiting = bytearray()
    empty = True
    for piece in pieces:
        waiting += piece
        while len(waiting) >= size:
            empty = False
            yield bytes(waiting[:size])
            del waiting[:size]
    if waiting or empty:
        yield bytes(waiting)


def _batch(row: Row) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema=_schema(with_sequence="sequence" in row))


def _schema(*, with_sequence: bool) -> pa.Schema:
    sequence = {"sequence": pa.int64()} if with_sequence else {}
    kinds: dict[str, pa.DataType] = {
        "operator": pa.string(),
        "partition": pa.int64(),
        **sequence,
        "payload": pa.binary(),
    }
    return pa.schema(kinds)
