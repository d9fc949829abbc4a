"""Hostile input of about 1 MB stays within the memory the decoders promise; so does cutting a long stream.

`tracemalloc` sees every allocation that matters: the LZ4 binding takes its buffer from Python's allocator, which the
first test makes sure of, since the others would prove nothing without it.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from laminar_delta.codec import (
    BLOCK_BYTES,
    MAX_EXPANSION,
    BlockCutter,
    compress_prefixed,
    crc32c,
    decode_batch,
    decompress_prefixed,
    decompress_recycling,
)
from laminar_delta.errors import CorruptionError, ErrorCode, FormatError, LaminarDeltaError

MIB = 1 << 20
SLACK_BYTES = 2 * MIB
"""Interpreter, error objects and the pieces of 1 MiB in which a CRC is computed."""


def peak_of(call: Callable[[], object]) -> tuple[int, LaminarDeltaError | None]:
    """Most bytes allocated at once during `call`, and the typed error it ended with."""
    tracemalloc.start()
    try:
        call()
        error = None
    except (FormatError, CorruptionError) as caught:
        error = caught
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, error


def batch(count: int, compressed: bytes) -> bytes:
    return struct.pack("<4sIIII", b"LCB1", 2, count, 0, crc32c(compressed)) + compressed


def prefixed(length: int, block: bytes) -> bytes:
    return struct.pack("<I", length) + block


def test_measurement_sees_the_buffer_of_the_lz4_binding() -> None:
    data = compress_prefixed(bytes(8 * MIB))
    peak, error = peak_of(lambda: decompress_prefixed(data))
    assert error is None
    assert peak >= 16 * MIB


@pytest.mark.parametrize("filling", [b"\xff", b"\x00", b"\x1f", b"\xf0"])
def test_prefix_of_4_gib_allocates_no_more_than_the_block_could_hold(filling: bytes) -> None:
    data = prefixed(2**32 - 1, filling * MIB)
    peak, error = peak_of(lambda: decompress_prefixed(data))
    assert error is not None
    assert peak <= 2 * MAX_EXPANSION * len(data) + SLACK_BYTES


def test_prefix_of_4_gib_on_a_few_bytes_allocates_next_to_nothing() -> None:
    data = prefixed(2**32 - 1, b"\xa0" + b"0123456789")
    peak, error = peak_of(lambda: decompress_prefixed(data))
    assert error is None
    assert peak < 64 * 1024


def test_bomb_of_1_mb_is_held_to_twice_what_it_expands_to() -> None:
    data = compress_prefixed(bytes(256 * MIB))
    assert MIB <= len(data) < 1.1 * MIB
    peak, error = peak_of(lambda: decompress_prefixed(data))
    assert error is None
    assert peak <= 2 * MAX_EXPANSION * len(data) + SLACK_BYTES


def test_bomb_over_the_callers_limit_is_refused_before_allocating() -> None:
    data = compress_prefixed(bytes(250 * MIB))
    peak, error = peak_of(lambda: decode_batch(batch(2**32 - 1, data), max_bytes=64 * MIB))
    assert error is not None
    assert error.code is ErrorCode.FORMAT_TOO_LARGE
    assert peak < len(data) + SLACK_BYTES


def test_stated_raw_length_of_a_bomb_is_refused_before_allocating() -> None:
    block = b"\xff" * MIB
    held, most = pa.total_allocated_bytes(), pa.default_memory_pool().max_memory() or 0
    peak, error = peak_of(lambda: decompress_recycling(block, 2**30))
    assert error is not None
    assert error.code is ErrorCode.FORMAT_TOO_LARGE
    assert peak < 64 * 1024
    # Nor by Arrow, whose memory Python does not see.
    assert (pa.default_memory_pool().max_memory() or 0) <= max(most, held + MIB)


TINY = struct.pack("<I2sI2s", 2, b"kk", 2, b"dd")
WIDE_KEY = "\U0001f600".encode() + b"\xff" * MIB


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(bytes(11 * MIB), 2**32 - 1, id="empty entries, count of 2^32-1"),
        pytest.param(bytes(11 * MIB), 0, id="count of 0"),
        pytest.param(TINY * (MIB - 1), MIB - 1, id="entries far smaller than their Python objects"),
        pytest.param(TINY * 45_000, 45_000, id="as many such entries as the limit allows"),
        pytest.param(struct.pack("<I", len(WIDE_KEY)) + WIDE_KEY + bytes(4), 1, id="key that widens as text"),
        pytest.param(struct.pack("<I", 11 * MIB) + b"\xff" * (11 * MIB) + bytes(4), 1, id="key over the limit"),
        pytest.param(struct.pack("<II", 0, 11 * MIB) + bytes(11 * MIB), 1, id="one large entry"),
        pytest.param(struct.pack("<II", 0, 2**32 - 1) + bytes(11 * MIB), 1, id="data length of 2^32-1"),
    ],
)
def test_hostile_batch_stays_within_twice_the_limit(body: bytes, count: int) -> None:
    limit = 12 * MIB
    payload = batch(count, compress_prefixed(body))
    peak, _ = peak_of(lambda: decode_batch(payload, max_bytes=limit))
    assert peak <= 2 * limit + SLACK_BYTES


def test_count_of_4_billion_on_a_small_batch_allocates_next_to_nothing() -> None:
    payload = batch(2**32 - 1, compress_prefixed(struct.pack("<IsIs", 1, b"k", 1, b"v")))
    peak, error = peak_of(lambda: decode_batch(payload))
    assert isinstance(error, CorruptionError)
    assert peak < 64 * 1024


def test_cutting_holds_a_few_blocks_however_long_the_stream() -> None:
    piece = bytes(100_000)

    def pieces() -> Iterator[bytes]:
        for _ in range(1000):
            yield piece

    def cut() -> None:
        cutter = BlockCutter(pieces())
        for _ in cutter:
            pass
        assert cutter.length == 100_000_000

    peak, _ = peak_of(cut)
    assert peak < 5 * BLOCK_BYTES


def test_cutting_one_large_buffer_does_not_copy_it() -> None:
    data = bytes(64 * MIB)

    def cut() -> None:
        for _ in BlockCutter(data):
            pass

    peak, _ = peak_of(cut)
    assert peak < 5 * BLOCK_BYTES
