"""Loading a frame: the driver reads layouts, executors put the blocks together and verify them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.engine import open_engine
from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGEST_CELL = (1 << 31) - (1 << 20)
"""What Spark takes in one cell, with some room."""
WHOLE = "operator string, partition bigint, payload binary"
IN_PIECES = "operator string, partition bigint, sequence bigint, payload binary"


def load_frame(state: CheckpointState, spark: SparkSession, *, piece_bytes: int | None = None) -> DataFrame:
    """The state of a checkpoint as a frame of operator, partition and payload; put together by executors.

    Args:
        state: Whose.
        spark: Where.
        piece_bytes: Give each state as pieces of about this size, numbered in a column `sequence`. Needed for states that
            do not fit into a cell.
    """
    keys = [(operator, partition) for operator, partitions in state.partitions().items() for partition in partitions]
    longest = max((layout.length for layout in state.layouts()), default=0)
    if piece_bytes is None and longest > LARGEST_CELL:
        raise InvalidInputError(
            f"a state of {longest} bytes does not fit into one cell",
            expected=f"at most {LARGEST_CELL}, or piece_bytes",
            found=longest,
            next_step="Ask for pieces with piece_bytes.",
        )
    engine = state.reading.engine
    order = pickle.dumps((engine.name, engine.location, dict(state.reading.versions), state.row))

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _read(order, piece_bytes, batches)

    wanted = spark.createDataFrame(keys or [("", 0)], "operator string, partition bigint")
    spread = wanted.repartition(max(1, len(keys))) if keys else wanted.where("false")
    return spread.mapInArrow(task, WHOLE if piece_bytes is None else IN_PIECES)


def _read(order: bytes, piece_bytes: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    name, location, versions, row = pickle.loads(order)  # from our own driver
    state = CheckpointState(Reading(open_engine(name, location), versions), row)
    for batch in batches:
        for key in batch.to_pylist():
            fixed = {"operator": key["operator"], "partition": key["partition"]}
            if piece_bytes is None:
                yield _batch([{**fixed, "payload": state.read(key["operator"], key["partition"])}])
                continue
            pieces = _regrouped(state.pieces(key["operator"], key["partition"]), piece_bytes)
            for sequence, piece in enumerate(pieces):
                yield _batch([{**fixed, "sequence": sequence, "payload": piece}])


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


def _batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    kinds = {"operator": pa.string(), "partition": pa.int64(), "sequence": pa.int64(), "payload": pa.binary()}
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([pa.field(name, kinds[name]) for name in rows[0]]))
