"""Operator state as blocks of fixed size, so that a save can store only what changed.

A state is cut every `block_bytes` from its beginning; only the last block may be shorter. A block is known by its name, the
xxh3-128 of its bytes, so whether another state has it is told without that state's bytes. Inserting a byte at the front changes
every block; that is the price of blocks that can be put back by position, without reading the others.

States may be larger than memory. Cutting holds one block and one piece of the input. Pieces that can change (a `bytearray`,
which its owner may fill anew) are copied block by block; `bytes`, and what was read from a file, are seen, not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from laminar_delta.codec.buffers import Span
from laminar_delta.codec.checksum import StreamDigest, block_name
from laminar_delta.codec.sources import StateSource, pieces_of
from laminar_delta.errors import InvalidInputError, SessionStateError

BLOCK_BYTES = 64 * 1024
"""Default block size. Smaller blocks store less of a scattered change but cost a name each."""
READ_BYTES = 1 << 20
"""How much is asked of a file at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a state, with its bytes; keep `name` and let go of the block when streaming."""

    index: int
    """Position in the state, from 0: the block starts at byte `index * block_bytes`."""
    name: bytes
    """xxh3-128 of `data`."""
    data: bytes | memoryview = field(repr=False)
    span: Span | None = field(default=None, repr=False, compare=False)
    """Where `data` lies, if other blocks lie beside it."""

    @property
    def raw_length(self) -> int:
        """Uncompressed length in bytes: the block size, or less in the last block; never 0."""
        return len(self.data)


class BlockCutter(Iterator[Block]):
    """Cuts a source into blocks, once, and knows the checksum of the whole when the end was reached.

    Args:
        source: read only as far as blocks are asked for, and not closed.
        block_bytes: length of every block but the last.

    Raises:
        InvalidInputError: from the constructor, a block size below 1 or a source of text; from iteration, a piece
            that is not bytes.
        SessionStateError: from the constructor, a file or an iterator that was cut before, and so is used up.
    """

    def __init__(self, source: StateSource, *, block_bytes: int = BLOCK_BYTES) -> None:
        if block_bytes < 1:
            raise InvalidInputError(f"block size {block_bytes} is below 1", expected="1 or more", found=block_bytes)
        self._block_bytes = block_bytes
        self._digest = StreamDigest()
        self._count = 0
        self._ended = False
        self._blocks = self._cut(pieces_of(source, max(block_bytes, READ_BYTES)))

    def __next__(self) -> Block:
        return next(self._blocks)

    @property
    def block_bytes(self) -> int:
        """Length of every block but the last."""
        return self._block_bytes

    @property
    def checksum(self) -> str:
        """`xxh3:<hex>` of the whole source.

        Raises:
            SessionStateError: blocks are left to be cut, so it would be the checksum of a part.
        """
        self._require_end()
        return self._digest.checksum

    @property
    def length(self) -> int:
        """Bytes of the whole source.

        Raises:
            SessionStateError: blocks are left to be cut.
        """
        self._require_end()
        return self._digest.length

    def _cut(self, pieces: Iterator[tuple[memoryview, bool]]) -> Iterator[Block]:
        size = self._block_bytes
        rest = bytearray()
        for piece, fixed in pieces:
            if fixed:
                # At once: each call lets another thread have its turn, which this one then waits for.
                self._digest.update(piece)
            at = 0
            while at < len(piece):
                taken = min(size - len(rest), len(piece) - at)
                part = piece[at : at + taken] if fixed else self._copied(piece[at : at + taken])
                at += taken
                if taken == size:
                    yield self._block(part, Span(piece, at - size, at) if fixed else None)
                    continue
                rest += part
                if len(rest) == size:
                    yield self._block(bytes(rest))
                    rest.clear()
        if rest:
            yield self._block(bytes(rest))
        self._ended = True

    def _copied(self, part: memoryview) -> bytes:
        """What is stored and what the checksum is of must be the same bytes, whatever becomes of the piece meanwhile."""
        copy = bytes(part)
        self._digest.update(copy)
        return copy

    def _block(self, data: bytes | memoryview, span: Span | None = None) -> Block:
        block = Block(index=self._count, name=block_name(data), data=data, span=span)
        self._count += 1
        return block

    def _require_end(self) -> None:
        if not self._ended:
            raise SessionStateError(
                "the source has not been cut to its end",
                expected="end of the source",
                found=f"{self._digest.length} bytes cut",
                next_step="Iterate until no block is left, then ask again.",
            )
