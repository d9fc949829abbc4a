"""Checksums against published vectors, and equal for every way of cutting the input."""

from __future__ import annotations

import ctypes
import pickle
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_delta.codec import StreamDigest, block_hash, crc32c, flat_view, verify, xxh3_hex
from laminar_delta.errors import CorruptionError, ErrorCode, InvalidInputError


def sanity_buffer(length: int) -> bytes:
    """The input xxHash's own `sanity_test_vectors.h` is computed from."""
    state = 2654435761
    out = bytearray()
    for _ in range(length):
        out.append(state >> 56)
        state = state * 11400714785074694797 % 2**64
    return bytes(out)


# Seed 0; the lengths reach each of the algorithm's branches (0, 1-3, 4-8, 9-16, 17-128, 129-240, long, several stripes).
XXH3_VECTORS = [
    (0, 0x2D06800538D394C2, "99aa06d3014798d86001c324468d497f"),
    (1, 0xC44BDFF4074EECDB, "a6cd5e9392000f6ac44bdff4074eecdb"),
    (6, 0x27B56A84CD2D7325, "082afe0b8162d12a3e7039bdda43cfc6"),
    (12, 0xA713DAF0DFBB77E7, "6e3efd8fc7802b18061a192713f69ad9"),
    (24, 0xA3FE70BF9D3510EB, "0ce966e4678d37611e7044d28b1b901d"),
    (48, 0x397DA259ECBA1F11, "a002ac4e5478227ef942219aed80f67b"),
    (80, 0xBCDEFBBB2C47C90A, "fdf2cefde9eaac8a454ae6bf7a8a532d"),
    (195, 0xCD94217EE362EC3A, "7729543a26b207ee3fb593c086a66075"),
    (403, 0xCDEB804D65C6DEA4, "1b6de21e332dd73dcdeb804d65c6dea4"),
    (512, 0x617E49599013CB6B, "18d2d110dcc9bca1617e49599013cb6b"),
    (2048, 0xDD59E2C3A5F038E0, "f736557fd47073a5dd59e2c3a5f038e0"),
    (2240, 0x6E73A90539CF2948, "ccb134fbfa7ce49d6e73a90539cf2948"),
]


@pytest.mark.parametrize(("length", "hash64", "hex128"), XXH3_VECTORS)
def test_xxh3_gives_the_published_values(length: int, hash64: int, hex128: str) -> None:
    data = sanity_buffer(length)
    assert block_hash(data) == hash64
    assert xxh3_hex(data) == f"xxh3:{hex128}"


# RFC 3720, appendix B.4, and the usual check value.
@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_crc32c_gives_the_published_values(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc
    assert crc32c(bytearray(data)) == crc
    assert crc32c(memoryview(data)) == crc


def test_crc32c_of_a_view_longer_than_one_piece_is_that_of_the_bytes() -> None:
    data = sanity_buffer(1 << 10) * 2500
    assert crc32c(memoryview(data)) == crc32c(data)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=600)))
def test_stream_digest_is_independent_of_the_pieces(pieces: list[bytes]) -> None:
    digest = StreamDigest()
    for piece in pieces:
        digest.update(piece)
    assert digest.checksum == xxh3_hex(b"".join(pieces))
    assert digest.length == sum(map(len, pieces))


def test_stream_digest_counts_bytes_of_a_view_not_items() -> None:
    numbers = array("I", [1, 2, 3])
    digest = StreamDigest()
    digest.update(memoryview(numbers))
    assert digest.length == 12
    assert digest.checksum == xxh3_hex(numbers.tobytes())


def test_equal_checksums_verify() -> None:
    verify("state", expected=xxh3_hex(b"a"), found=xxh3_hex(b"a"))
    verify("block", expected=2**64 - 1, found=2**64 - 1)


def test_mismatch_is_corruption_with_both_sides_and_survives_pickling() -> None:
    with pytest.raises(CorruptionError) as caught:
        verify("state of operator 'agg'", expected="xxh3:00", found="xxh3:01", details={"partition": 3})
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.code is ErrorCode.CHECKSUM_MISMATCH
    assert (error.expected, error.found) == ("xxh3:00", "xxh3:01")
    assert error.details == {"partition": 3}
    assert "state of operator 'agg'" in str(error)
    assert "expected xxh3:00, found xxh3:01" in str(error)


def test_block_hashes_are_reported_as_text_of_full_width() -> None:
    with pytest.raises(CorruptionError) as caught:
        verify("block 7", expected=2**64 - 1, found=1)
    assert (caught.value.expected, caught.value.found) == ("0xffffffffffffffff", "0x0000000000000001")


def test_flat_view_counts_bytes_of_any_shape() -> None:
    grid = (ctypes.c_uint16 * 3 * 2)()
    assert len(flat_view(memoryview(grid))) == 12
    assert len(flat_view(memoryview((ctypes.c_uint16 * 0 * 2)()))) == 0
    assert bytes(flat_view(memoryview(b"abcdef")[::2])) == b"ace"
    assert bytes(flat_view(memoryview(b"abc")[::-1])) == b"cba"


def test_text_is_not_bytes() -> None:
    with pytest.raises(InvalidInputError) as caught:
        xxh3_hex("text")  # type: ignore[arg-type]  # the mistake under test
    assert caught.value.found == "str"
