"""Storing anew what comes in pieces and turned out to be other than its chain can bear.

How much of a file or of pieces changed, and how long it is, is known at its end, when they are used up. What changed is on its
way into the tables by then. The rest is read from where it is stored, so that the state needs nothing of the chain before. That
costs reading a part of the state, once and not before the chain has grown stale; hashing each source beforehand would cost
reading all of it at every save, and generators cannot be read twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.state.layout import NAME_BYTES
from laminar_delta.catalog.state.streaming import some_blocks
from laminar_delta.codec import BlockCutter

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.codec import Block


def stored_blocks(reading: Reading, pipeline: str, layout: Layout, wanted: Collection[bytes]) -> Iterator[Block]:
    """Some blocks of a state that is stored, each verified, a shorter one last.

    Raises:
        CorruptionError: One is missing or is not what was saved.
    """
    # Only the last block of a state can be the shorter one.
    last = layout.names[-NAME_BYTES:]
    names = [name for name in dict.fromkeys(layout.names_from(0, layout.blocks)) if name in wanted]
    names.sort(key=lambda name: name == last)
    part = replace(layout, names=b"".join(names))
    yield from BlockCutter(some_blocks(reading, pipeline, part), block_bytes=layout.block_bytes)
