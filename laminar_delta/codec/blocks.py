"""Operator state as blocks of fixed size, so that a save can store only what changed.

A state is cut every `block_bytes` from its beginning; only the last block may be shorter. Two states are compared
block by block at equal positions, through their hashes alone: the parent's bytes are not needed, and a hash is 8
bytes for every 64 KiB. Inserting a byte at the front therefore changes every block; that is the price of blocks that
can be put back by position, without reading the others.

States may be larger than memory. Cutting holds one block and one piece of the input, and 8 bytes for every block
before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from laminar_delta.codec.buffers import BytesLike, flat_view
from laminar_delta.codec.checksum import StreamDigest, block_hash
from laminar_delta.errors import InvalidInputError, SessionStateError

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_BYTES = 64 * 1024
"""Default block size. Smaller blocks store less of a scattered change but cost a hash and a row each."""


class ReadableFile(Protocol):
    """A file opened for reading bytes; short reads are fine, an empty one is the end."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes."""
        ...


StateSource: TypeAlias = BytesLike | ReadableFile | Iterable[BytesLike]
"""Where state comes from: bytes in memory, an open file, or pieces of any size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a state, with its bytes; keep `hash` and let go of the block when streaming."""

    index: int
    """Position in the state, from 0: the block starts at byte `index * block_bytes`."""
    hash: int
    """xxh3-64 of `data`, 0 to 2^64-1."""
    data: bytes = field(repr=False)

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
    """

    def __init__(self, source: StateSource, *, block_bytes: int = BLOCK_BYTES) -> None:
        if block_bytes < 1:
            raise InvalidInputError(f"block size {block_bytes} is below 1", expected="1 or more", found=block_bytes)
        self._block_bytes = block_bytes
        self._digest = StreamDigest()
        self._hashes = array("Q")
        self._ended = False
        self._blocks = self._cut(_pieces(source, block_bytes))

    def __next__(self) -> Block:
        return next(self._blocks)

    @property
    def block_bytes(self) -> int:
        """Length of every block but the last."""
        return self._block_bytes

    @property
    def hashes(self) -> tuple[int, ...]:
        """The hash of every block, in order; what the next save compares with.

        Raises:
            SessionStateError: blocks are left to be cut.
        """
        self._require_end()
        return tuple(self._hashes)

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

    def _cut(self, pieces: Iterator[memoryview]) -> Iterator[Block]:
        size = self._block_bytes
        rest = bytearray()
        for piece in pieces:
            at = 0
            while at < len(piece):
                if not rest and len(piece) - at >= size:
                    # The common case, a whole block inside one piece, is copied once.
                    yield self._block(bytes(piece[at : at + size]))
                    at += size
                    continue
                taken = min(size - len(rest), len(piece) - at)
                rest += piece[at : at + taken]
                at += taken
                if len(rest) == size:
                    yield self._block(bytes(rest))
                    rest.clear()
        if rest:
            yield self._block(bytes(rest))
        self._ended = True

    def _block(self, data: bytes) -> Block:
        self._digest.update(data)
        block = Block(index=len(self._hashes), hash=block_hash(data), data=data)
        self._hashes.append(block.hash)
        return block

    def _require_end(self) -> None:
        if not self._ended:
            raise SessionStateError(
                "the source has not been cut to its end",
                expected="end of the source",
                found=f"{self._digest.length} bytes cut",
                next_step="Iterate until no block is left, then ask again.",
            )


def changed_blocks(old: Sequence[int], new: Sequence[int]) -> list[int]:
    """Indexes of the blocks of `new` that `old` does not have at the same position, ascending.

    With these blocks and the number of `new`, the new state can be built on the old one: a grown state lists its
    added blocks, a shrunk one lists nothing for those that fell away, and an empty `old` makes it all of them. Both
    lists must have been cut with the same block size.
    """
    common = min(len(old), len(new))
    return [index for index in range(common) if old[index] != new[index]] + list(range(common, len(new)))


def _pieces(source: Any, block_bytes: int) -> Iterator[memoryview]:
    # `Any`, because what a type checker would refuse arrives too: text must not pass as an iterable, nor arrays of
    # numbers, which are a buffer.
    if hasattr(source, "read"):
        return _read_pieces(source, max(block_bytes, BLOCK_BYTES))
    if isinstance(source, Iterable) and not isinstance(source, str) and not _is_buffer(source):
        return map(flat_view, source)
    return iter((flat_view(source),))


def _read_pieces(file: ReadableFile, size: int) -> Iterator[memoryview]:
    while piece := flat_view(file.read(size)):
        yield piece


def _is_buffer(source: Any) -> bool:
    try:
        memoryview(source)
    except TypeError:
        return False
    return True
