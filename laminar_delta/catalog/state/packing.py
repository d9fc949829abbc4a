"""Packing chunks beside cutting, and unpacking them beside reading: hashing and compressing let other threads run, so they are
done ahead of being asked for.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

WORKERS = min(4, os.cpu_count() or 1)
"""More would wait for the one that cuts or reads."""

AHEAD = 12
"""How many pieces of work may be under way, or done and not taken yet: of a megabyte each, and enough to keep the threads busy
while the one that cuts or reads waits for its source or for the disk."""

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
            if len(coming) > AHEAD:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
