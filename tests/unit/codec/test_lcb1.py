"""LCB1 beyond the golden files: any entries, any damage, the rules' order and the limits."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laminar_delta.codec import (
    MAX_BATCH_BYTES,
    BatchEntry,
    compress_prefixed,
    crc32c,
    decode_batch,
    encode_batch,
    parse_header,
)
from laminar_delta.codec.lcb1 import ENTRY_COST_BYTES, KEY_COST_FACTOR
from laminar_delta.errors import CorruptionError, ErrorCode, FormatError, InvalidInputError

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
entry_lists = st.lists(st.tuples(keys, st.binary(max_size=400)), max_size=12)


def batch(count: int, body: bytes, *, version: int = 2, raw_length: int | None = None) -> bytes:
    """A batch with a valid checksum around any body."""
    compressed = compress_prefixed(body)
    header = struct.pack("<4sIII", b"LCB1", version, count, len(body) if raw_length is None else raw_length)
    return header + (struct.pack("<I", crc32c(compressed)) if version == 2 else b"") + compressed


def entry(key: bytes, data: bytes) -> bytes:
    return struct.pack("<I", len(key)) + key + struct.pack("<I", len(data)) + data


def outcome(payload: bytes) -> list[BatchEntry] | FormatError | CorruptionError:
    """What the decoder gave; any other exception fails the test."""
    try:
        return decode_batch(payload, max_bytes=1 << 20)
    except (FormatError, CorruptionError) as error:
        return error


@settings(deadline=None)
@given(entry_lists)
@example([("", b""), ("", b""), ("k", b""), ("", b"v")])
def test_any_entries_come_back_in_order(entries: list[tuple[str, bytes]]) -> None:
    payload = encode_batch(iter(entries))
    header = parse_header(payload)
    assert (header.version, header.entry_count, header.size) == (2, len(entries), 20)
    assert header.raw_length == sum(8 + len(key.encode()) + len(data) for key, data in entries)
    assert decode_batch(payload) == entries


@settings(deadline=None)
@given(entry_lists)
def test_version_1_reads_the_same_body_without_a_checksum(entries: list[tuple[str, bytes]]) -> None:
    body = b"".join(entry(key.encode(), data) for key, data in entries)
    payload = batch(len(entries), body, version=1)
    # The shortest version 1 batch has 21 bytes: header 16, prefix 4, one token.
    assert parse_header(payload).crc is None
    assert decode_batch(payload) == entries


def test_decoded_entries_can_be_encoded_again() -> None:
    entries = decode_batch(encode_batch([("k", b"v")]))
    assert entries == [BatchEntry(key="k", data=b"v")]
    assert encode_batch(entries) == encode_batch([("k", b"v")])


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_entries_or_a_typed_error(data: bytes) -> None:
    for payload in (data, b"LCB1\x01\0\0\0" + data, b"LCB1\x02\0\0\0" + data):
        result = outcome(payload)
        assert isinstance(result, list) or result.next_step


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1) | st.integers(0, 9), st.binary(max_size=200), st.sampled_from([1, 2]))
def test_any_body_behind_a_valid_checksum_gives_entries_or_corruption(count: int, body: bytes, version: int) -> None:
    result = outcome(batch(count, body, version=version))
    if isinstance(result, list):
        assert len(result) == count
    else:
        assert result.code is ErrorCode.CORRUPTION


@settings(deadline=None)
@given(entry_lists, st.data())
def test_damaged_batches_give_entries_or_a_typed_error(entries: list[tuple[str, bytes]], draw: st.DataObject) -> None:
    payload = bytearray(encode_batch(entries))
    changes = st.lists(st.tuples(st.integers(0, len(payload) - 1), st.integers(0, 255)), max_size=4)
    for position, value in draw.draw(changes):
        payload[position] = value
    del payload[draw.draw(st.integers(0, len(payload))) :]
    result = outcome(bytes(payload))
    # Whatever still reads with a checksum is what was written: only the informational length may have changed.
    assert not isinstance(result, list) or payload[4] == 1 or result == entries


@settings(deadline=None)
@given(entry_lists, st.integers(20, 4000), st.integers(1, 255))
def test_one_changed_byte_after_the_header_is_always_found(
    entries: list[tuple[str, bytes]], position: int, change: int
) -> None:
    payload = bytearray(encode_batch(entries))
    payload[20 + (position - 20) % (len(payload) - 20)] ^= change
    with pytest.raises(CorruptionError) as caught:
        decode_batch(bytes(payload))
    assert caught.value.code is ErrorCode.CHECKSUM_MISMATCH


@settings(deadline=None)
@given(st.lists(st.tuples(keys, st.binary(max_size=50)), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_every_wrong_count_is_found(entries: list[tuple[str, bytes]], count: int) -> None:
    payload = bytearray(encode_batch(entries))
    payload[8:12] = struct.pack("<I", count if count != len(entries) else count - 1)
    with pytest.raises(CorruptionError):
        decode_batch(bytes(payload))


def test_rules_are_applied_in_the_documented_order() -> None:
    payload = bytearray(batch(2, entry(b"k", b"v")))
    payload[:4] = b"LCB2"
    payload[4] = 9
    payload[16] ^= 1
    with pytest.raises(CorruptionError, match="batch too short for header"):
        decode_batch(bytes(payload[:19]))
    with pytest.raises(FormatError, match="invalid batch magic"):
        decode_batch(bytes(payload))
    payload[:4] = b"LCB1"
    with pytest.raises(FormatError, match="unsupported batch version 9"):
        decode_batch(bytes(payload))
    payload[4] = 2
    with pytest.raises(CorruptionError, match="batch CRC32C mismatch: expected 0x8918183f, actual 0x8918183e"):
        decode_batch(bytes(payload))
    payload[16] ^= 1
    with pytest.raises(CorruptionError, match=r"truncated batch entry \(key length\)"):
        decode_batch(bytes(payload))


@pytest.mark.parametrize("raw_length", [0, 999, 2**32 - 1])
def test_raw_length_of_the_header_is_informational(raw_length: int) -> None:
    assert decode_batch(batch(1, entry(b"k", b"v"), raw_length=raw_length)) == [("k", b"v")]


# Made by Rust's String::from_utf8_lossy: one replacement for each maximal part of a sequence that was cut short.
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("fffe61", "\ufffd\ufffda"),
        ("e28241f09f98", "\ufffdA\ufffd"),
        ("c0af", "\ufffd\ufffd"),
        ("e08080", "\ufffd\ufffd\ufffd"),
        ("eda080", "\ufffd\ufffd\ufffd"),
        ("f08080", "\ufffd\ufffd\ufffd"),
        ("f0908041", "\ufffdA"),
        ("f4908080", "\ufffd\ufffd\ufffd\ufffd"),
        ("f5808080", "\ufffd\ufffd\ufffd\ufffd"),
        ("f8888080", "\ufffd\ufffd\ufffd\ufffd"),
        ("e1a0c0e29822e8", '\ufffd\ufffd\ufffd"\ufffd'),
        ("efbbbf6b", "\ufeffk"),
        ("6b00", "k\0"),
    ],
)
def test_keys_that_are_not_utf8_get_rusts_replacements(key: str, text: str) -> None:
    assert decode_batch(batch(1, entry(bytes.fromhex(key), b""))) == [(text, b"")]


def test_key_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="surrogates not allowed"):
        encode_batch([("\ud800", b"")])


@pytest.mark.parametrize("data", [bytearray(b"v"), memoryview(b"v"), "v", None])
def test_data_that_is_not_bytes_is_refused(data: object) -> None:
    with pytest.raises(InvalidInputError, match="must be bytes"):
        encode_batch([("k", data)])  # type: ignore[list-item]  # the mistake under test


def test_writer_and_reader_count_against_the_limit_alike() -> None:
    entries = [("key", b"data"), ("é", b"")]
    cost = 2 * ENTRY_COST_BYTES + KEY_COST_FACTOR * (3 + 2) + 4
    payload = encode_batch(entries, max_bytes=cost)
    assert decode_batch(payload, max_bytes=cost) == entries
    with pytest.raises(InvalidInputError) as refused:
        encode_batch(entries, max_bytes=cost - 1)
    assert (refused.value.code, refused.value.expected, refused.value.found) == (
        ErrorCode.NUMBER_TOO_LARGE,
        cost - 1,
        cost,
    )
    with pytest.raises(FormatError) as unread:
        decode_batch(payload, max_bytes=cost - 1)
    assert (unread.value.code, unread.value.expected, unread.value.found) == (
        ErrorCode.FORMAT_TOO_LARGE,
        cost - 1,
        cost,
    )


def test_default_limit_refuses_an_entry_over_it_without_copying_it() -> None:
    # Never touched pages: zeroed memory of this size costs address space only.
    with pytest.raises(InvalidInputError) as caught:
        encode_batch([("k", bytes(MAX_BATCH_BYTES))])
    assert caught.value.expected == MAX_BATCH_BYTES


def test_limit_above_what_a_block_holds_is_lowered_to_it() -> None:
    with pytest.raises(InvalidInputError) as caught:
        encode_batch((("k", one) for one in [bytes(2**30)] * 5), max_bytes=2**40)
    assert caught.value.expected == 0x7E000000
