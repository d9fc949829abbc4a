"""LZ4 blocks: exact where the length is ours, lenient where LaminarDB is, typed errors for everything else."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial

import lz4.block
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_delta.codec import (
    MAX_EXPANSION,
    MAX_RAW_BYTES,
    compress_block,
    compress_prefixed,
    decompress_prefixed,
    decompress_recycling,
)
from laminar_delta.errors import CorruptionError, ErrorCode, FormatError, InvalidInputError

# Token a0: ten literals, then the end.
TEN_LITERALS = bytes.fromhex("a0") + b"0123456789"

raw_data = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=9), st.integers(0, 3000)),
)


def outcome(call: Callable[[], bytes | memoryview]) -> bytes | FormatError | CorruptionError:
    """What a decoder gave; any other exception fails the test."""
    try:
        return bytes(call())
    except (FormatError, CorruptionError) as error:
        return error


def prefixed(length: int, block: bytes) -> bytes:
    return struct.pack("<I", length) + block


@settings(deadline=None)
@given(raw_data)
def test_round_trip_of_both_forms(data: bytes) -> None:
    assert decompress_recycling(compress_block(data), len(data)) == data
    assert decompress_prefixed(compress_prefixed(data)) == data
    assert compress_prefixed(data) == prefixed(len(data), bytes(compress_block(data)))


@pytest.mark.parametrize("random_bytes", [0, 1 << 12, 1 << 16, 1 << 19, 1 << 20])
def test_a_block_takes_no_more_memory_than_it_is_long(random_bytes: int) -> None:
    """Whoever keeps some counts their bytes: the room for what cannot be compressed would be a megabyte for each."""
    data = random.Random(1).randbytes(random_bytes) + bytes((1 << 20) - random_bytes)
    before = pa.total_allocated_bytes()
    blocks = [compress_block(data) for _ in range(8)]
    assert pa.total_allocated_bytes() - before <= 2 * sum(map(len, blocks))


@settings(deadline=None)
@given(raw_data)
def test_views_are_read_like_bytes(data: bytes) -> None:
    framed = memoryview(b"##" + compress_prefixed(data))[2:]
    assert decompress_prefixed(framed) == data
    assert compress_block(memoryview(bytearray(data))) == compress_block(data)


@settings(deadline=None)
@given(raw_data.filter(bool))
def test_no_block_expands_more_than_the_bound_relies_on(data: bytes) -> None:
    assert len(data) <= MAX_EXPANSION * len(compress_block(data))


def test_best_compressible_data_stays_just_under_the_expansion_bound() -> None:
    data = bytes(1 << 24)
    block = compress_block(data)
    assert 254 * len(block) < len(data) <= 255 * len(block)
    assert MAX_EXPANSION == 255


@pytest.mark.parametrize("declared", [10, 11, 1000, 1_000_000, 2**31, 2**32 - 1])
def test_prefix_larger_than_the_content_is_accepted(declared: int) -> None:
    assert decompress_prefixed(prefixed(declared, TEN_LITERALS)) == b"0123456789"


def test_binding_left_to_itself_would_refuse_a_larger_prefix() -> None:
    with pytest.raises(lz4.block.LZ4BlockError):
        lz4.block.decompress(prefixed(11, TEN_LITERALS))


@pytest.mark.parametrize("declared", [0, 1, 9])
def test_prefix_smaller_than_the_content_is_corruption(declared: int) -> None:
    with pytest.raises(CorruptionError, match="LZ4 decompression failed"):
        decompress_prefixed(prefixed(declared, TEN_LITERALS))


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_too_short_for_a_prefix_is_corruption(length: int) -> None:
    with pytest.raises(CorruptionError, match="LZ4 decompression failed") as caught:
        decompress_prefixed(bytes(length))
    assert (caught.value.expected, caught.value.found) == (4, length)


def test_raw_block_that_holds_more_than_stated_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="LZ4 decompression failed: the block is damaged or holds another number"):
        decompress_recycling(TEN_LITERALS, 9)


@pytest.mark.parametrize("length", [11, 14, 15, 26, 30, 200])
def test_raw_block_that_holds_less_than_stated_is_corruption(length: int) -> None:
    with pytest.raises(CorruptionError, match="LZ4 decompression failed"):
        decompress_recycling(TEN_LITERALS, length)


def test_what_is_missing_is_not_taken_from_memory_that_has_it() -> None:
    chance = random.Random(1)
    words = [chance.randbytes(chance.randrange(5, 40)) for _ in range(500)]
    raw = b"".join(chance.choices(words, k=3000))
    block = bytes(compress_block(raw))
    cut = [block[:end] for end in range(len(block) - 2000, len(block)) if 0 < _decoded(block[:end]) < len(raw)]
    assert cut
    for short in cut:
        # What it is freed with is what the next one of its size is given.
        assert decompress_recycling(block, len(raw)) == raw
        assert isinstance(outcome(partial(decompress_recycling, short, len(raw))), CorruptionError)


def test_a_match_cut_short_by_a_flipped_bit_is_corruption_also_where_zeros_are_missing() -> None:
    raw = random.Random(1).randbytes(1 << 19) + bytes(1 << 19)
    block = bytearray(compress_block(raw))
    # The last byte of the length of the run of zeros.
    at = max(place for place in range(len(block) - 1) if block[place] == 255) + 1
    block[at] &= block[at] - 1
    assert _decoded(bytes(block)) < len(raw)
    for _ in range(3):
        # Memory that nobody had is zero.
        assert isinstance(outcome(lambda: decompress_recycling(block, len(raw))), CorruptionError)


def _decoded(block: bytes) -> int:
    """How many bytes it holds; -1 if it cannot be decoded."""
    try:
        return len(lz4.block.decompress(block, uncompressed_size=1 << 20))
    except lz4.block.LZ4BlockError:
        return -1


def test_raw_length_beyond_what_the_block_can_hold_is_refused_before_decoding() -> None:
    limit = MAX_EXPANSION * len(TEN_LITERALS)
    with pytest.raises(FormatError) as caught:
        decompress_recycling(TEN_LITERALS, limit + 1)
    assert caught.value.code is ErrorCode.FORMAT_TOO_LARGE
    assert (caught.value.expected, caught.value.found) == (limit, limit + 1)
    assert isinstance(outcome(lambda: decompress_recycling(TEN_LITERALS, limit)), CorruptionError)


def test_content_over_the_callers_limit_is_refused() -> None:
    data = bytes(1000)
    assert decompress_prefixed(compress_prefixed(data), max_bytes=1000) == data
    assert decompress_recycling(compress_block(data), 1000, max_bytes=1000) == data
    for refused in (
        outcome(lambda: decompress_prefixed(compress_prefixed(data), max_bytes=999)),
        outcome(lambda: decompress_recycling(compress_block(data), 1000, max_bytes=999)),
    ):
        assert isinstance(refused, FormatError)
        assert refused.code is ErrorCode.FORMAT_TOO_LARGE
        assert (refused.expected, refused.found) == (999, 1000)


def test_limit_above_what_lz4_can_hold_is_lowered_to_it() -> None:
    # 9 MiB of input could hold more than 2 GiB: the one case where only LZ4's own limit is left.
    hostile = prefixed(2**32 - 1, bytes(9 << 20))
    with pytest.raises(FormatError) as caught:
        decompress_prefixed(hostile, max_bytes=2**40)
    assert (caught.value.code, caught.value.expected) == (ErrorCode.FORMAT_TOO_LARGE, MAX_RAW_BYTES)


def test_negative_raw_length_is_the_callers_mistake() -> None:
    with pytest.raises(InvalidInputError):
        decompress_recycling(TEN_LITERALS, -1)


def test_data_longer_than_a_block_holds_is_refused_before_it_is_read() -> None:
    # Never touched pages: zeroed memory of this size costs address space only.
    too_long = bytes(MAX_RAW_BYTES + 1)
    for compress in (compress_block, compress_prefixed):
        with pytest.raises(InvalidInputError) as caught:
            compress(too_long)
        assert (caught.value.expected, caught.value.found) == (MAX_RAW_BYTES, MAX_RAW_BYTES + 1)


def test_block_longer_than_any_is_refused_before_it_is_read() -> None:
    with pytest.raises(FormatError) as caught:
        decompress_recycling(bytes(2**31 - 1), 0)
    assert caught.value.code is ErrorCode.FORMAT_TOO_LARGE


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2**32), st.integers(0, 2**20))
def test_any_bytes_give_a_value_within_the_limit_or_a_typed_error(data: bytes, length: int, limit: int) -> None:
    for decode in (
        lambda: decompress_prefixed(data, max_bytes=limit),
        lambda: decompress_recycling(data, length, max_bytes=limit),
        lambda: decompress_recycling(data, length % 1000, max_bytes=limit),
    ):
        result = outcome(decode)
        assert not isinstance(result, bytes) or len(result) <= limit


@settings(deadline=None)
@given(raw_data, st.data())
def test_damaged_blocks_give_the_same_whatever_was_in_memory_or_a_typed_error(data: bytes, draw: st.DataObject) -> None:
    block = bytearray(compress_block(data))
    for position, value in draw.draw(st.lists(st.tuples(st.integers(0, len(block) - 1), st.integers(0, 255)))):
        block[position] = value
    del block[draw.draw(st.integers(0, len(block))) :]
    result = outcome(lambda: decompress_recycling(block, len(data)))
    # Given back at once: the next of the size is the same memory.
    assert decompress_recycling(compress_block(bytes(len(data))), len(data)) == bytes(len(data))
    again = outcome(lambda: decompress_recycling(block, len(data)))
    if isinstance(result, bytes):
        assert len(result) == len(data)
        assert again == result
    elif isinstance(result, FormatError):
        assert result.code is ErrorCode.FORMAT_TOO_LARGE
    else:
        assert "LZ4 decompression failed" in result.message
