"""State as rows of `operator_snapshots`: chunks of a megabyte, each one LZ4 block with the xxh3 of what it holds.

A chunk is verified by itself, so a read never hands out bytes that were not the ones saved, and a rotten chunk is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.codec import BlockCutter, block_hash, compress_block, decompress_block, verify, xxh3_hex
from laminar_delta.errors import CorruptionError

if TYPE_CHECKING:
    from laminar_delta.codec import StateSource

Row = dict[str, Any]

CHUNK_BYTES = 1 << 20
"""Raw bytes per chunk: large enough to compress well, small enough to be one Parquet row among many."""
PART_BYTES = 32 << 20
"""About how many stored bytes one append carries: bounds the memory a save needs, whatever the state's size."""


def chunk_rows(fixed: Row, operator: str, partition: int, cutter: BlockCutter) -> Iterator[Row]:
    """The rows of one operator partition, in order; an empty state is one empty chunk."""
    empty = True
    for block in cutter:
        empty = False
        yield _row(fixed, operator, partition, block.index, block.data)
    if empty:
        yield _row(fixed, operator, partition, 0, b"")


def cut(data: StateSource) -> BlockCutter:
    """A state being cut into chunks; once at its end it knows the state's length and checksum."""
    return BlockCutter(data, block_bytes=CHUNK_BYTES)


@dataclass(slots=True)
class Measured:
    """What a manifest says of the states it was saved with: lengths per operator, and a checksum over all of them."""

    checksums: dict[tuple[str, int], str] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, states: Mapping[tuple[str, int], StateSource]) -> Measured:
        """Measures states without storing them, to compare with some that are stored."""
        measured = cls()
        for (operator, partition), source in states.items():
            cutter = cut(source)
            for _ in cutter:
                pass
            measured.add(operator, partition, cutter)
        return measured

    def add(self, operator: str, partition: int, cutter: BlockCutter) -> None:
        """Takes note of a state that was cut to its end."""
        self.checksums[operator, partition] = cutter.checksum
        self.lengths[operator] = self.lengths.get(operator, 0) + cutter.length

    @property
    def checksum(self) -> str:
        """Over all of them."""
        return checksum_over(self.checksums)


def checksum_over(states: Mapping[tuple[str, int], str]) -> str:
    """The `state_checksum` of a checkpoint: over the checksums of all its operator partitions."""
    text = "\n".join(f"{operator!r} {partition} {found}" for (operator, partition), found in sorted(states.items()))
    return xxh3_hex(text.encode("utf-8", "surrogatepass"))


def _row(fixed: Row, operator: str, partition: int, chunk: int, raw: bytes) -> Row:
    return {
        **fixed,
        "operator": operator,
        "partition": partition,
        "chunk": chunk,
        "raw_length": len(raw),
        "xxh3": Decimal(block_hash(raw)),
        "data": compress_block(raw),
    }


def tables_of(rows: Iterable[Row]) -> Iterator[pa.Table]:
    """The rows in tables of about `PART_BYTES`: what one append takes."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row["data"])
        if size >= PART_BYTES:
            yield pa.Table.from_pylist(batch, schema=OPERATOR_SNAPSHOTS.schema)
            batch, size = [], 0
    if batch:
        yield pa.Table.from_pylist(batch, schema=OPERATOR_SNAPSHOTS.schema)


def raw_of(row: Row) -> bytes:
    """The bytes of a chunk, verified. Raises `CorruptionError` naming operator, partition, checkpoint and chunk."""
    where = (
        f"chunk {row['chunk']} of operator {row['operator']!r} partition {row['partition']} "
        f"in checkpoint {row['checkpoint_id']}"
    )
    details = {name: row[name] for name in ("operator", "partition", "checkpoint_id", "chunk")}
    try:
        raw = decompress_block(row["data"], row["raw_length"])
    except CorruptionError as error:
        raise CorruptionError(
            f"{where} does not decompress: {error.message}",
            expected=row["raw_length"],
            found=error.found,
            details=details,
        ) from error
    verify(where, expected=int(row["xxh3"]), found=block_hash(raw), details=details)
    return raw


def joined(rows: Iterable[Row]) -> bytes:
    """The state that chunks in any order make, each verified, none missing."""
    ordered = sorted(rows, key=lambda row: row["chunk"])
    numbers = [row["chunk"] for row in ordered]
    if numbers != list(range(len(numbers))):
        raise CorruptionError("chunks are missing or double", expected=list(range(len(numbers))), found=numbers)
    return b"".join(raw_of(row) for row in ordered)
