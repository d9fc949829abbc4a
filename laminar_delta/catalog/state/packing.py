"""Packing chunks beside cutting, and unpacking them beside reading: hashing and compressing let other threads run, so they are
done ahead of being asked for.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from laminar_delta.codec import is_buffer

if TYPE_CHECKING:
    from laminar_delta.codec import Block

WORKERS = min(4, os.cpu_count() or 1)
"""More would wait for the one that cuts or reads."""

AHEAD = 12
"""How many pieces of work may be under way, or done and not taken yet: of a megabyte each, and enough to keep the threads busy
while the one that cuts or reads waits for its source or for the disk."""

UNDER_WAY = AHEAD + 2
"""With the one being handed over, and the one being filled."""

PINNED_BYTES = 64 << 20
"""How large the pieces of a source may be together that chunks under way keep in memory for the sake of a few blocks."""

T = TypeVar("T")
R = TypeVar("R")


class Packer:
    """Threads for as long as a save or load takes. They start with the first piece of work, so a small state needs none."""

    def __init__(self) -> None:
        # Not kept between them: a process that forks would be left with threads that do not exist.
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="laminar-pack")

    def ahead(self, work: Callable[[T], R], items: Iterator[tuple[T, bool]]) -> Iterator[R]:
        """The results in the order of the items, some of which are worked on ahead.

        Args:
            work: What to do.
            items: Each with whether it is worth a thread. Only so many are taken ahead as keep the threads busy: they are held
                in memory.
        """
        coming: deque[Future[R]] = deque()
        for item, is_large in items:
            if not is_large and not coming:
                yield work(item)
                continue
            coming.append(self._threads.submit(work, item))
            # It is held until it is worked on, and no longer: not while the next one is made.
            del item
            if len(coming) > AHEAD:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)


class Pinned:
    """The pieces of a source that chunks under way keep in memory: a block keeps all of the piece it lies in.

    Where all blocks of a piece are stored, that is what has to be kept anyway. Where few are, pieces of any size would stay for
    the sake of a block each, so beyond some room blocks are copied.
    """

    def __init__(self, source: Any, chunk_bytes: int) -> None:
        # What somebody else has in memory stays there either way.
        is_there = is_buffer(source) or isinstance(source, list | tuple)
        self._room = math.inf if is_there else max(PINNED_BYTES, 2 * UNDER_WAY * chunk_bytes)
        self._chunks: deque[dict[int, int]] = deque([{}], maxlen=UNDER_WAY)
        """Of each chunk that may be under way, how large the pieces are that its blocks lie in."""

    def kept(self, block: Block) -> Block:
        """A block as it can be kept, for the chunk that is being filled."""
        span = block.span
        if span is None or 2 * len(block.data) >= len(span.whole):
            return block
        piece, own = id(span.whole), self._chunks[-1]
        if piece in own:
            return block
        # By `id`: a number that is given again belongs to a piece that is gone, and counts as the one it is now.
        sizes = {number: size for chunk in self._chunks for number, size in chunk.items()}
        sizes[piece] = len(span.whole)
        if sum(sizes.values()) > self._room:
            return replace(block, data=bytes(block.data), span=None)
        own[piece] = len(span.whole)
        return block

    def next_chunk(self) -> None:
        """The chunk is full."""
        self._chunks.append({})
