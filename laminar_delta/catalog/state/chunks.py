"""Blocks as rows of the state tables: chunks of about a megabyte, each one LZ4 block with the names of what it holds.

A chunk is verified by itself, so a read never hands out bytes that were not the ones saved, and a rotten chunk is named.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.catalog.state.applying import AppliedDelta
from laminar_delta.catalog.state.layout import NAME_BYTES
from laminar_delta.codec import (
    BlockCutter,
    Span,
    block_hash,
    block_name,
    compress_block,
    decompress_recycling,
    flat_view,
    runs,
    verify,
    xxh3_hex,
)
from laminar_delta.errors import CorruptionError, FormatError

if TYPE_CHECKING:
    from laminar_delta.codec import Block, StateSource

Row = dict[str, Any]

_OFFSETS = struct.Struct("=ii")
_own = threading.local()
"""Each thread's room to join blocks in."""


@dataclass(slots=True)
class Measured:
    """What a manifest says of the states it was saved with: lengths per operator, and a checksum over all of them."""

    checksums: dict[tuple[str, int], str] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    applies: dict[tuple[str, int], str] = field(default_factory=dict)
    """Of application deltas: the functions that apply them. The checksums are of what was given, whatever it is."""

    @classmethod
    def of(cls, states: Mapping[tuple[str, int], StateSource | AppliedDelta]) -> Measured:
        """Measures states without storing them, to compare with some that are stored."""
        measured = cls()
        for (operator, partition), source in states.items():
            data, apply = (source.data, source.apply) if isinstance(source, AppliedDelta) else (source, None)
            cutter = BlockCutter(data)
            for _ in cutter:
                pass
            measured.add(operator, partition, checksum=cutter.checksum, length=cutter.length, apply=apply)
        return measured

    def add(self, operator: str, partition: int, *, checksum: str, length: int, apply: str | None) -> None:
        """Takes note of a state."""
        if apply is not None:
            self.applies[operator, partition] = apply
        self.checksums[operator, partition] = checksum
        self.lengths[operator] = self.lengths.get(operator, 0) + length

    @property
    def checksum(self) -> str:
        """Over all of them."""
        return checksum_over(self.checksums)


def checksum_over(states: Mapping[tuple[str, int], str]) -> str:
    """The `state_checksum` of a checkpoint: over the checksums of all its operator partitions."""
    text = "\n".join(f"{operator!a} {partition} {found}" for (operator, partition), found in sorted(states.items()))
    return xxh3_hex(text.encode("ascii"))


def chunk_row(fixed: Row, number: int, blocks: Sequence[Block]) -> Row:
    """Some blocks as one row, beginning with what is the same for all rows of a state."""
    raw = _joined(blocks)
    return {
        **fixed,
        "chunk": number,
        "names": b"".join(block.name for block in blocks),
        "raw_length": len(raw),
        "xxh3": Decimal(block_hash(raw)),
        "data": compress_block(raw),
        "checksum": None,
        "block_bytes": None,
        "stores": None,
        "apply": None,
        "upon": None,
    }


def _joined(blocks: Sequence[Block]) -> bytes | memoryview:
    """Blocks one behind the other, until the next call in the same thread.

    Not copied where they lie so anyway. Otherwise into the same room each time: memory asked for anew costs more than all that
    is done with it.
    """
    pieces = runs(block.span or Span(flat_view(block.data), 0, len(block.data)) for block in blocks)
    if len(pieces) == 1:
        return pieces[0]
    length = sum(map(len, pieces))
    room: bytearray | None = getattr(_own, "room", None)
    if room is None or len(room) < length:
        room = _own.room = bytearray(length)
    at = 0
    for piece in pieces:
        room[at : at + len(piece)] = piece
        at += len(piece)
    return memoryview(room)[:length]


def rows_table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows of a state table in Arrow, around the bytes of their data as they are."""
    kept = [field for field in schema if field.name != "data"]
    plain = pa.Table.from_pylist([{f.name: row[f.name] for f in kept} for row in rows], schema=pa.schema(kept))
    data = pa.chunked_array([_around(row["data"]) for row in rows], pa.binary())
    return plain.append_column("data", data).select(schema.names).cast(schema)


def _around(data: bytes) -> pa.Array[Any]:
    """An array of one value, which is not copied: it is what a save would spend most of its time on."""
    offsets = pa.py_buffer(_OFFSETS.pack(0, len(data)))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])


def names_of(row: Row) -> list[bytes]:
    """The names of the blocks in a chunk, in order."""
    names = row["names"] or b""
    return [names[at : at + NAME_BYTES] for at in range(0, len(names), NAME_BYTES)]


def raw_of(row: Row) -> memoryview:
    """The bytes of a chunk, verified. Raises `CorruptionError` naming operator, partition, checkpoint and chunk."""
    raw = _decompressed(row)
    _check(row, raw)
    return raw


def _check(row: Row, raw: memoryview) -> None:
    where, details = _where(row)
    verify(where, expected=int(row["xxh3"]), found=block_hash(raw), details=details)


def _where(row: Row) -> tuple[str, Row]:
    where = (
        f"chunk {row['chunk']} of operator {row['operator']!r} partition {row['partition']} "
        f"in checkpoint {row['checkpoint_id']}"
    )
    return where, {name: row[name] for name in ("operator", "partition", "checkpoint_id", "chunk")}


def _decompressed(row: Row) -> memoryview:
    """As many bytes as a chunk has; which they are is still to be verified."""
    where, details = _where(row)
    wrong = [name for name in ("raw_length", "xxh3", "names", "data") if row[name] is None]
    if wrong or row["raw_length"] < 0:
        raise CorruptionError(
            f"{where} is not whole: {', '.join(wrong) or 'raw_length'} cannot be",
            expected="a length, a checksum, names and data",
            found={name: row[name] for name in ("raw_length", "xxh3")},
            details=details,
        )
    try:
        return decompress_recycling(row["data"], row["raw_length"])
    except (CorruptionError, FormatError) as error:
        raise CorruptionError(
            f"{where} does not decompress: {error.message}",
            expected=row["raw_length"],
            found=error.found,
            details=details,
        ) from error


def blocks_of(row: Row, block_bytes: int) -> Iterator[tuple[bytes, Span]]:
    """The blocks of a chunk by name, each verified by it. Raises `CorruptionError` when it does not hold what it says."""
    raw = _decompressed(row)
    names = names_of(row)
    for place, name in enumerate(names):
        # Only the last block of a state is shorter, and it is the last of its chunk.
        end = len(raw) if place + 1 == len(names) else (place + 1) * block_bytes
        span = Span(raw, place * block_bytes, end)
        found = block_name(span.data)
        if found != name:
            # Whether the bytes are wrong or their names. Not asked before: every byte is in a block, and none is hashed twice.
            _check(row, raw)
            where, details = _where(row)
            raise CorruptionError(
                f"block {place} of {where} is not the one it is called",
                expected=name.hex(),
                found=found.hex(),
                details=details,
            )
        yield name, span
