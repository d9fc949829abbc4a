"""Putting states together where Spark reads the tables, in two steps that stream: neither holds a state in memory.

Where a chunk lies, its blocks are verified and each goes with its position in the state. Spark brings those of a state together
and sorts them; then they are handed on as they come, and the whole is verified at its end. This module runs in executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.catalog.state import applying
from laminar_delta.catalog.state.chunks import blocks_of, names_of
from laminar_delta.catalog.state.streaming import check_whole
from laminar_delta.codec import Span, StreamDigest, runs
from laminar_delta.errors import CorruptionError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.layout import Layout

Lines = Mapping["Key", Sequence["Layout"]]
"""For each state its layout; before it, of an application delta, those it stands upon."""
INLINE = -1
"""The member of a state's first row, which is there whatever else is: it has the state if that is inline."""
ORDER = ("operator", "partition", "member", "position")
RUNS = pa.schema(
    dict[str, pa.DataType](
        operator=pa.string(), partition=pa.int64(), member=pa.int64(), position=pa.int64(), data=pa.binary()
    )
)
"""Blocks that lie one behind the other in a member of a line, and the number of the first."""
RUN_BYTES = 1 << 20
"""No run is longer, unless it is one block."""
BATCH_BYTES = 4 << 20
"""About how much one Arrow batch carries from Python to the JVM."""


@dataclass(frozen=True, slots=True)
class _Member:
    """What a layout wants of chunks."""

    layout: Layout
    attempts: frozenset[tuple[int, str]]
    positions: Mapping[bytes, Sequence[int]]

    @classmethod
    def of(cls, layout: Layout) -> _Member:
        positions: dict[bytes, list[int]] = {}
        for position, name in enumerate(layout.names_from(0, layout.blocks)):
            positions.setdefault(name, []).append(position)
        return cls(layout, frozenset((s.checkpoint_id, s.attempt_id) for s in layout.stores), positions)

    def runs(self, chunk: Row) -> Iterator[tuple[int, bytes]]:
        """The blocks of a chunk that are wanted, each wherever it is; neighbours that stay neighbours as one."""
        if (chunk["checkpoint_id"], chunk["attempt_id"]) not in self.attempts:
            return
        if self.positions.keys().isdisjoint(names_of(chunk)):
            return
        # A block may be in a state any number of times.
        longest = max(1, RUN_BYTES // self.layout.block_bytes)
        start, lying = 0, list[Span]()
        for name, span in blocks_of(chunk, self.layout.block_bytes):
            for position in self.positions.get(name, ()):
                if lying and (position != start + len(lying) or len(lying) == longest):
                    yield start, b"".join(runs(lying))
                    lying = []
                if not lying:
                    start = position
                lying.append(span)
        if lying:
            yield start, b"".join(runs(lying))


def wanted_runs(lines: Lines, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of a task's chunks what some state is made of; see `RUNS`. Chunks of states that are no more are left out.

    Raises:
        CorruptionError: A chunk is not what was saved.
    """
    members: dict[Key, list[_Member]] = {}
    waiting: list[Row] = []
    size = 0
    for chunk in _rows(batches):
        key = chunk["operator"], chunk["partition"]
        if key not in members:
            members[key] = [_Member.of(layout) for layout in lines.get(key, ())]
        for number, member in enumerate(members[key]):
            for position, data in member.runs(chunk):
                waiting.append(
                    {"operator": key[0], "partition": key[1], "member": number, "position": position, "data": data}
                )
                size += len(data)
                if size >= BATCH_BYTES:
                    yield pa.RecordBatch.from_pylist(waiting, schema=RUNS)
                    waiting, size = [], 0
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema=RUNS)


def in_order(lines: Lines, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Key, Iterator[bytes | memoryview]]]:
    """The states of a task in pieces, from their runs in `ORDER`. The pieces of one must be taken before the next.

    Raises:
        CorruptionError: While the pieces are taken: blocks are missing, or the whole is not what was saved.
    """
    for key, rows in groupby(_rows(batches), key=lambda row: (row["operator"], row["partition"])):
        yield key, _pieces(lines.get(key, ()), rows)


def _pieces(line: Sequence[Layout], rows: Iterator[Row]) -> Iterator[bytes | memoryview]:
    inline = next(rows)["data"]
    if inline is not None:
        yield inline
        return
    if len(line) == 1:
        yield from _whole(line[0], rows)
        return
    # Apply functions take and give whole states.
    members: dict[int, list[Row]] = {}
    for row in rows:
        members.setdefault(row["member"], []).append(row)
    state = b"".join(_whole(line[0], members.get(0, ())))
    for number, delta in enumerate(line[1:], 1):
        given = b"".join(_whole(delta, members.get(number, ())))
        state = applying.apply_delta(str(delta.apply), state, given)
    yield state


def _whole(layout: Layout, rows: Iterable[Row]) -> Iterator[memoryview]:
    digest = StreamDigest()
    at = 0
    for row in rows:
        start, data = row["position"], memoryview(row["data"])
        if start > at:
            raise _missing(layout, at, start - at)
        # A block may be stored more than once: one copy is as good as another.
        piece = data[(at - start) * layout.block_bytes :]
        if piece:
            digest.update(piece)
            yield piece
            at = start - (-len(data) // layout.block_bytes)
    if at < layout.blocks:
        raise _missing(layout, at, layout.blocks - at)
    check_whole(layout, digest.checksum)


def _missing(layout: Layout, at: int, count: int) -> CorruptionError:
    return CorruptionError(
        f"blocks of operator {layout.operator!r} partition {layout.partition} are missing, {count} of them "
        f"from byte {at * layout.block_bytes} on",
        expected=layout.blocks,
        found=at,
        details={"operator": layout.operator, "partition": layout.partition},
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for number in range(batch.num_rows):
            # One by one: as Python's, all rows of a batch would be in memory twice.
            yield batch.slice(number, 1).to_pylist()[0]
