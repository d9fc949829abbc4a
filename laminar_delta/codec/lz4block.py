"""Raw LZ4 blocks, alone or behind a length prefix.

    raw        one LZ4 block (not a frame); its raw length and checksum are stored elsewhere and must be exact
    prefixed   raw length as u32 little-endian, then one LZ4 block; the prefix is only an upper limit

A decoder must allocate before it knows whether the stated length is true. No LZ4 block expands more than 255-fold: a
match of any length costs a byte per 255 bytes of output, literals cost a byte each. So nothing here allocates more
than `255 * len(block)` and a few bytes, nor more than the caller's `max_bytes` and as many. For the prefixed form the
binding fills a buffer of that size and then copies what was decoded: the peak is twice the smaller of the two.

The two forms treat a wrong length differently. LaminarDB's decoder takes a prefix larger than the content, so the
prefixed form lowers it to what the block can hold and decodes. The raw form is our own, its length was written by us,
and any other is damage.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

import lz4.block

from laminar_delta.codec.buffers import flat_view
from laminar_delta.errors import CorruptionError, ErrorCode, FormatError, InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.codec.buffers import BytesLike

MAX_RAW_BYTES = 0x7E000000
"""Most bytes one LZ4 block can hold (`LZ4_MAX_INPUT_SIZE`), somewhat under 2 GiB and so also under u32."""

MAX_EXPANSION = 255
"""No block decodes to more than this many times its own length."""

# LZ4_compressBound(MAX_RAW_BYTES): what the largest raw content takes when nothing in it can be compressed.
_MAX_BLOCK_BYTES = MAX_RAW_BYTES + MAX_RAW_BYTES // 255 + 16
_PREFIX = struct.Struct("<I")

_MARK_BYTES = 12
"""As many as the sequence has that ends a block: no match may begin among the last twelve bytes."""
_MATCHED_BYTES = 4
"""The shortest match: what lies between the last literals of a block and a sequence that is put behind them."""
# What makes the last literals a sequence like the others, a match of the byte before; and the token of as many literals.
_GO_ON = b"\x01\x00" + bytes([_MARK_BYTES << 4])


def compress_block(data: BytesLike) -> memoryview:
    """Compress `data` into one raw block, whose raw length the caller must store.

    Into memory that Arrow uses again: asking the system for fresh memory takes as long as compressing.

    Raises:
        InvalidInputError: `data` is longer than MAX_RAW_BYTES.
    """
    import pyarrow as pa

    block: Any = pa.Codec("lz4_raw").compress(pa.py_buffer(_fitting(data)))
    # It keeps the room for what cannot be compressed, which callers that count the bytes of blocks would not know of.
    block.resize(block.size, shrink_to_fit=True)
    # Not `memoryview` alone: its length is the one the buffer had before it was cut to size.
    return flat_view(memoryview(block))


def compress_prefixed(data: BytesLike) -> bytes:
    """Compress `data` into a length prefix and one block.

    Raises:
        InvalidInputError: `data` is longer than MAX_RAW_BYTES.
    """
    compressed: bytes = lz4.block.compress(_fitting(data), store_size=True)
    return compressed


def decompress_recycling(block: BytesLike, raw_length: int, *, max_bytes: int = MAX_RAW_BYTES) -> memoryview:
    """Decode a raw block of exactly `raw_length` bytes.

    Into memory that Arrow uses again: fresh memory for every block costs more than decoding it, and threads that ask the system
    for some wait for one another. Arrow does not say how much it decoded, and behind less than stated is what was in memory
    before, which may well be the very bytes that are missing. So a mark that was never in memory is put behind the block, as
    one more sequence of it: only if it is where it belongs, all before it was decoded.

    Args:
        block: the block, without prefix.
        raw_length: the length stored beside it.
        max_bytes: most the caller is ready to hold.

    Raises:
        FormatError: `raw_length` is above `max_bytes` or above what the block can hold; nothing was allocated.
        CorruptionError: the block is damaged, or holds more or less than `raw_length` bytes.
    """
    import pyarrow as pa

    view = _sized(block, raw_length, max_bytes)
    if not raw_length:
        # Of no byte there is none before that a match could repeat.
        return memoryview(_decode(view, 0))
    mark = os.urandom(_MARK_BYTES)
    marked = pa.allocate_buffer(len(view) + len(_GO_ON) + len(mark))
    room = flat_view(memoryview(marked))
    room[: len(view)] = view
    room[len(view) :] = _GO_ON + mark
    place = raw_length + _MATCHED_BYTES
    try:
        raw = pa.Codec("lz4_raw").decompress(marked, decompressed_size=place + len(mark))
    except OSError as error:
        raise _undecodable(view, raw_length, "another number than") from error
    decoded = flat_view(memoryview(raw))
    if decoded[place:] != mark:
        raise _undecodable(view, raw_length, "another number than")
    return decoded[:raw_length]


def decompress_prefixed(data: BytesLike, *, max_bytes: int = MAX_RAW_BYTES) -> bytes:
    """Decode a length prefix and one block; a prefix larger than the content is accepted, a smaller one is not.

    Args:
        data: prefix and block.
        max_bytes: most the caller is ready to hold.

    Raises:
        FormatError: prefix and block together allow more than `max_bytes`; nothing was allocated.
        CorruptionError: too short for a prefix, the block is damaged, or it holds more than the prefix says.
    """
    view = flat_view(data)
    if len(view) < _PREFIX.size:
        raise CorruptionError(
            f"LZ4 decompression failed: {len(view)} bytes are too few for the length prefix",
            expected=_PREFIX.size,
            found=len(view),
        )
    (declared,) = _PREFIX.unpack_from(view)
    block = view[_PREFIX.size :]
    capacity = min(declared, _capacity(block))
    _check_limit(capacity, max_bytes)
    return _decode(block, capacity)


def _fitting(data: BytesLike) -> memoryview:
    """What one block can hold."""
    view = flat_view(data)
    size = len(view)
    if size > MAX_RAW_BYTES:
        raise InvalidInputError(
            f"{size} bytes do not fit one LZ4 block, which holds at most {MAX_RAW_BYTES}",
            code=ErrorCode.NUMBER_TOO_LARGE,
            expected=MAX_RAW_BYTES,
            found=size,
        )
    return view


def _decode(block: memoryview, capacity: int) -> bytes:
    # An explicit size is taken as the buffer's, and what was decoded is returned even if it is less. Left to read the
    # prefix itself, the binding would refuse one that is larger than the content.
    try:
        raw: bytes = lz4.block.decompress(block, uncompressed_size=capacity)
    except lz4.block.LZ4BlockError as error:
        raise _undecodable(block, capacity, "more than") from error
    return raw


def _undecodable(block: memoryview, capacity: int, holds: str) -> CorruptionError:
    return CorruptionError(
        f"LZ4 decompression failed: the block is damaged or holds {holds} the {capacity} bytes stated",
        details={"block_bytes": len(block), "capacity": capacity},
    )


def _sized(block: BytesLike, raw_length: int, max_bytes: int) -> memoryview:
    """A block that may hold `raw_length` bytes, which the caller is ready to hold too."""
    if raw_length < 0:
        raise InvalidInputError(f"raw length {raw_length} is negative", expected="0 or more", found=raw_length)
    view = flat_view(block)
    capacity = _capacity(view)
    if raw_length > capacity:
        raise _too_large(f"{len(view)} bytes of LZ4 cannot hold the {raw_length} stated", capacity, raw_length)
    _check_limit(raw_length, max_bytes)
    return view


def _capacity(block: memoryview) -> int:
    """Most bytes `block` can decode to."""
    if len(block) > _MAX_BLOCK_BYTES:
        raise _too_large(f"{len(block)} bytes are longer than any LZ4 block", _MAX_BLOCK_BYTES, len(block))
    return MAX_EXPANSION * len(block)


def _check_limit(capacity: int, max_bytes: int) -> None:
    limit = min(max_bytes, MAX_RAW_BYTES)
    if capacity > limit:
        raise _too_large(f"LZ4 content of up to {capacity} bytes is above the limit of {limit}", limit, capacity)


def _too_large(message: str, limit: int, found: int) -> FormatError:
    return FormatError(
        message,
        code=ErrorCode.FORMAT_TOO_LARGE,
        expected=limit,
        found=found,
        next_step="Check where the bytes come from; raise `max_bytes` if they are to be trusted.",
    )
