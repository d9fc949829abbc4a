"""Scans larger than memory: Arrow batches one after the other, in classic and Connect mode alike.

Spark hands out whole results as Arrow, and row by row only as Python objects. So executors pack each Arrow batch into one
binary value, and those values are fetched partition by partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.engine.arrow import cast_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stream(
    found: DataFrame, schema: pa.Schema, translating: Callable[[], AbstractContextManager[None]]
) -> pa.RecordBatchReader:
    """The rows of a DataFrame in the types of `schema`, fetched as they are read, errors translated as they come."""

    def batches() -> Iterator[pa.RecordBatch]:
        with translating():
            packed = iter(found.mapInArrow(_packer(), "batch binary").toLocalIterator())
        while True:
            # Entered anew for each step: what the caller does between two batches is not ours to translate.
            with translating():
                row = next(packed, None)
                if row is None:
                    return
                with pa.ipc.open_stream(pa.py_buffer(row[0])) as reader:
                    ready = cast_table(reader.read_all(), schema).to_batches()
            yield from ready

    return pa.RecordBatchReader.from_batches(schema, batches())


def has_binary(kind: pa.DataType | pa.Schema) -> bool:
    """Whether values of this type, or of a column of this schema, hold bytes at any depth."""
    if isinstance(kind, pa.Schema):
        return any(has_binary(field.type) for field in kind)
    if isinstance(kind, pa.MapType):
        return has_binary(kind.key_type) or has_binary(kind.item_type)
    if isinstance(kind, (pa.ListType, pa.LargeListType)):
        return has_binary(kind.value_type)
    if isinstance(kind, pa.StructType):
        return any(has_binary(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _packer() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # A function inside a function travels to executors by value: this package need not be installed there.
    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays([packed], names=["batch"])

    return pack
