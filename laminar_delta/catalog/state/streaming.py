"""Reading a state: its blocks in order, every one verified, a window of them in memory at a time.

A state of moderate size is one window. Of a larger one each window asks each state table once for just the chunks it needs; the
next one is fetched while the caller takes this one, and its chunks are unpacked and verified beside being read.
"""

from __future__ import annotations

import io
from collections.abc import Container, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from laminar_delta.catalog.state.chunks import blocks_of, names_of
from laminar_delta.catalog.state.packing import Packer
from laminar_delta.catalog.tables import BY_NAME
from laminar_delta.codec import Span, StreamDigest, runs, verify
from laminar_delta.engine.predicate import apart, col
from laminar_delta.errors import CorruptionError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.engine.predicate import Predicate

WINDOW_BYTES = 32 << 20
"""Raw bytes of state read at a time."""

WHOLE_BYTES = 3 * WINDOW_BYTES
"""Raw bytes up to which what is stored of a state is read in one go: every window opens each table again, which takes as long
as unpacking some ten megabytes, and beforehand all tables have to be asked where each block is."""

LARGE_BYTES = 64 << 10
"""Raw bytes from which a chunk is worth a thread to unpack it."""

KEPT_BYTES = 48 << 20
"""Raw bytes kept for later windows: a megabyte for each checkpoint of a long chain, and more."""

Place = tuple[str, int, str, int]
"""Where a chunk is: table, checkpoint, attempt, number."""

Blocks = list[tuple[bytes, Span]]
"""The blocks of a chunk by name."""

CHUNK_COLUMNS = (
    "checkpoint_id",
    "attempt_id",
    "operator",
    "partition",
    "chunk",
    "raw_length",
    "xxh3",
    "names",
    "data",
)


def stream(reading: Reading, pipeline: str, layout: Layout) -> Iterator[memoryview]:
    """A state from its beginning to its end, in pieces of a block or of several that lie together.

    Args:
        reading: At which versions.
        pipeline: Whose checkpoints store it.
        layout: What it is made of.

    Raises:
        CorruptionError: A block is missing or is not what was saved; the end is only reached when the whole is right.
    """
    digest = StreamDigest()
    for window in _windows(reading, pipeline, layout):
        for piece in window:
            digest.update(piece)
            yield piece
    check_whole(layout, digest.checksum)


def some_blocks(reading: Reading, pipeline: str, layout: Layout) -> Iterator[memoryview]:
    """The same of a layout that has only some blocks of a state: each is verified, and no checksum is of them together."""
    for window in _windows(reading, pipeline, layout):
        yield from window


def check_whole(layout: Layout, found: str) -> None:
    """Raises `CorruptionError` unless this is the checksum of the state."""
    subject = f"state of operator {layout.operator!r} partition {layout.partition}"
    details = {"operator": layout.operator, "partition": layout.partition}
    verify(subject, expected=layout.checksum, found=found, details=details)


def _windows(reading: Reading, pipeline: str, layout: Layout) -> Iterator[list[memoryview]]:
    with Packer() as packer:
        if layout.stored_bytes <= WHOLE_BYTES:
            rows = _rows(reading, pipeline, layout, None, with_data=True)
            found = {name: span for blocks in _unpacked(packer, rows, layout) for name, span in blocks}
            yield _in_order(layout, 0, layout.names_from(0, layout.blocks), found)
            return
        fetcher = _Fetcher(reading, pipeline, layout, packer)
        starts = range(0, layout.blocks, fetcher.count)
        with ThreadPoolExecutor(1, thread_name_prefix="laminar-read") as ahead:
            coming = ahead.submit(fetcher.window, 0)
            for start in starts:
                window = coming.result()
                if start + fetcher.count < layout.blocks:
                    coming = ahead.submit(fetcher.window, start + fetcher.count)
                yield window


def _unpacked(packer: Packer, rows: Iterable[Row], layout: Layout) -> Iterator[Blocks]:
    """The blocks of each chunk, verified."""
    unpack = partial(_blocks, block_bytes=layout.block_bytes)
    return packer.ahead(unpack, ((row, (row["raw_length"] or 0) >= LARGE_BYTES) for row in rows))


def _blocks(row: Row, *, block_bytes: int) -> Blocks:
    return list(blocks_of(row, block_bytes))


class _Fetcher:
    """Reads windows one after another. A chunk brings blocks of later windows too: they are kept until their turn."""

    def __init__(self, reading: Reading, pipeline: str, layout: Layout, packer: Packer) -> None:
        self._packer = packer
        self._reading = reading
        self._pipeline = pipeline
        self._layout = layout
        self._places = _places(reading, pipeline, layout)
        self._last_use = {name: place for place, name in enumerate(layout.names_from(0, layout.blocks))}
        self._kept: dict[bytes, bytes] = {}
        self.count = max(1, WINDOW_BYTES // layout.block_bytes)
        """Blocks in a window."""

    def window(self, start: int) -> list[memoryview]:
        names = self._layout.names_from(start, self.count)
        found = {name: _whole(self._kept[name]) for name in names if name in self._kept}
        places = {place for name in names if name not in found and (place := self._places.get(name)) is not None}
        end = start + self.count
        self._kept = {name: data for name, data in self._kept.items() if self._last_use[name] >= end}
        room = KEPT_BYTES // self._layout.block_bytes - len(self._kept)
        wanted = set(names)
        rows = _rows(self._reading, self._pipeline, self._layout, places, with_data=True)
        for blocks in _unpacked(self._packer, rows, self._layout):
            found.update(_worth_their_chunk([(name, span) for name, span in blocks if name in wanted]))
            for name, span in blocks:
                if room > 0 and self._last_use.get(name, -1) >= end and name not in self._kept:
                    # A copy: the chunk it came in is many times as large.
                    self._kept[name] = bytes(span.data)
                    room -= 1
        return _in_order(self._layout, start, names, found)


def _worth_their_chunk(blocks: Blocks) -> Blocks:
    """Blocks of one chunk, copied where they are less than half of it: each keeps all of it in memory, which in a state whose
    blocks are not stored in its order is a chunk for every block.
    """
    wanted = sum(span.end - span.start for _, span in blocks)
    if not blocks or 2 * wanted >= len(blocks[0][1].whole):
        return blocks
    return [(name, _whole(bytes(span.data))) for name, span in blocks]


def _whole(block: bytes) -> Span:
    return Span(memoryview(block), 0, len(block))


def _in_order(layout: Layout, start: int, names: list[bytes], found: dict[bytes, Span]) -> list[memoryview]:
    """Blocks one after the other, neighbours as one."""
    _check_none_missing(layout, start, names, found)
    return runs(found[name] for name in names)


def _check_none_missing(layout: Layout, start: int, names: list[bytes], found: Container[bytes]) -> None:
    missing = [place for place, name in enumerate(names) if name not in found]
    if missing:
        raise CorruptionError(
            f"{len(missing)} of {len(names)} blocks of operator {layout.operator!r} partition {layout.partition} are missing, "
            f"the first at byte {(start + missing[0]) * layout.block_bytes}",
            expected=len(names),
            found=len(names) - len(missing),
            details={"operator": layout.operator, "partition": layout.partition},
        )


def check_all_there(reading: Reading, pipeline: str, layout: Layout) -> None:
    """Raises `CorruptionError` unless some row has each block of a state, without reading what is in them."""
    places = _places(reading, pipeline, layout)
    names = layout.names_from(0, layout.blocks)
    _check_none_missing(layout, 0, names, places)


def _places(reading: Reading, pipeline: str, layout: Layout) -> dict[bytes, Place]:
    """Where each block is; of several copies the newest checkpoint's."""
    age = {(store.table, store.checkpoint_id): number for number, store in enumerate(layout.stores)}
    rows = sorted(
        _rows(reading, pipeline, layout, None, with_data=False), key=lambda row: age[row["table"], row["checkpoint_id"]]
    )
    return {
        name: (row["table"], row["checkpoint_id"], row["attempt_id"], row["chunk"])
        for row in rows
        for name in names_of(row)
    }


def _rows(
    reading: Reading, pipeline: str, layout: Layout, places: set[Place] | None, *, with_data: bool
) -> Iterator[Row]:
    """Chunks of a state: all that its stores have, or those at the places wanted."""
    columns = CHUNK_COLUMNS if with_data else CHUNK_COLUMNS[:-1]
    for table in sorted({store.table for store in layout.stores}):
        attempts = {store.checkpoint_id: store.attempt_id for store in layout.stores if store.table == table}
        wanted = {place[1] for place in places if place[0] == table} if places is not None else attempts.keys()
        for own_reading, numbers in reading.of_checkpoints(table, wanted):
            where = _where(pipeline, layout, table, numbers, places)
            for row in own_reading.stream(BY_NAME[table], where=where, columns=columns):
                if attempts[row["checkpoint_id"]] == row["attempt_id"]:
                    yield {**row, "table": table}


def _where(pipeline: str, layout: Layout, table: str, numbers: list[int], places: set[Place] | None) -> Predicate:
    own = col("pipeline").eq(pipeline) & col("operator").eq(layout.operator) & col("partition").eq(layout.partition)
    if places is None:
        # Not the layout's own row, which is chunk -1.
        return own & col("checkpoint_id").is_in(numbers) & col("chunk").ge(0)
    return apart(
        own
        & col("checkpoint_id").eq(number)
        & _chunks(sorted(place[3] for place in places if place[:2] == (table, number)))
        for number in numbers
    )


def _chunks(numbers: list[int]) -> Predicate:
    """Some chunks of a checkpoint. Their bounds too: of a longer list engines compare no value with statistics."""
    return col("chunk").ge(numbers[0]) & col("chunk").le(numbers[-1]) & col("chunk").is_in(numbers)


class PieceFile(io.RawIOBase):
    """Pieces as a raw file."""

    def __init__(self, pieces: Iterator[bytes | memoryview]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self._failure: BaseException | None = None

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fills some of a buffer; 0 at the end."""
        while not self._rest:
            if self._failure is not None:
                # What failed is at its end, and whoever reads on would take that for the end of the state.
                raise self._failure
            try:
                following = next(self._pieces, None)
            except BaseException as failure:
                self._failure = failure
                raise
            if following is None:
                return 0
            self._rest = memoryview(following)
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken

    def close(self) -> None:
        """Lets go of what was read ahead, and of the threads that did."""
        if not self.closed:
            self._rest = memoryview(b"")
            if isinstance(self._pieces, Generator):
                self._pieces.close()
        super().close()
