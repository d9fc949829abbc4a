"""LCB1, LaminarDB's batch of checkpoint entries, read and written byte for byte.

    offset  size  field (little-endian)
    0       4     magic "LCB1"
    4       4     version, 1 or 2; 2 is written
    8       4     number of entries
    12      4     raw length of the body; informational, never trusted
    16      4     CRC-32C of everything after the header (version 2 only)
    16/20   rest  body: raw length u32, one LZ4 block

    body = entries back to back: key length u32, key UTF-8, data length u32, data

Order is kept, and the same key may occur twice. The CRC does not cover the header, so a damaged entry count would
silently drop entries, and LaminarDB's own reader allocates whatever it says. This reader therefore also demands that
the entries end exactly where the body ends. That and `max_bytes` are the deliberate differences.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from laminar_delta.codec.checksum import crc32c
from laminar_delta.codec.lz4block import MAX_RAW_BYTES, compress_prefixed, decompress_prefixed
from laminar_delta.errors import CorruptionError, ErrorCode, FormatError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = b"LCB1"
WRITTEN_VERSION = 2

MAX_BATCH_BYTES = 1 << 30
"""Default limit for writing and reading alike, so that what is written can be read back. LaminarDB flushes at 8 MiB."""

ENTRY_COST_BYTES = 256
KEY_COST_FACTOR = 8
"""What an entry counts for against the limit: this many bytes, its data, and its key this many times.

Entries of a dozen bytes become Python objects of up to 187 (measured), and decoding a key can take 6 times its length,
because one emoji widens all its characters to four bytes. Were only the bytes of the body counted, a batch of 1 MB
could take 3 GB.
"""

_FIELDS = struct.Struct("<4sIII")
_U32 = struct.Struct("<I")
_MIN_BATCH_BYTES = _FIELDS.size + _U32.size


class BatchEntry(NamedTuple):
    """One entry; a tuple, so that decoded entries can be given to `encode_batch` and batches of many stay small."""

    key: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """What a batch says about itself, not yet compared with its body."""

    version: int
    """1 or 2."""
    entry_count: int
    raw_length: int
    """Length of the uncompressed body in bytes, as the writer noted it."""
    crc: int | None
    """CRC-32C of everything after the header; None in version 1, which has none."""

    @property
    def size(self) -> int:
        """Bytes the header takes, where the body begins."""
        return _FIELDS.size if self.crc is None else _FIELDS.size + _U32.size


def encode_batch(entries: Iterable[tuple[str, bytes]], *, max_bytes: int = MAX_BATCH_BYTES) -> bytes:
    """Write entries as one batch of version 2, in the order given.

    Args:
        entries: keys and data; either may be empty, keys may repeat.
        max_bytes: limit on the entries, counted as `decode_batch` counts it; never above what an LZ4 block holds.

    Raises:
        InvalidInputError: over the limit, a key that is no valid Unicode, or data that is not bytes.
    """
    budget = _Budget(max_bytes)
    parts: list[bytes] = []
    count = 0
    for key, data in entries:
        key_bytes = _key_bytes(key)
        if not isinstance(data, bytes):
            # A view's len() need not be its number of bytes, and would be written as the length.
            raise InvalidInputError(f"data of {key!r} must be bytes", expected="bytes", found=type(data).__name__)
        if not budget.take(len(key_bytes), len(data)):
            raise InvalidInputError(
                f"batch is over its limit of {budget.limit} bytes at entry {count}, key {key[:100]!r}",
                code=ErrorCode.NUMBER_TOO_LARGE,
                expected=budget.limit,
                found=budget.taken,
                next_step="Split the entries over several batches.",
            )
        parts += (_U32.pack(len(key_bytes)), key_bytes, _U32.pack(len(data)), data)
        count += 1
    body = b"".join(parts)
    compressed = compress_prefixed(body)
    return _FIELDS.pack(MAGIC, WRITTEN_VERSION, count, len(body)) + _U32.pack(crc32c(compressed)) + compressed


def parse_header(data: bytes) -> BatchHeader:
    """Read the header of a batch, of which at least the first 20 bytes are given.

    Raises:
        CorruptionError: shorter than 20 bytes. That goes for version 1 too, whose header has 16: with prefix and block
            no batch is shorter than 21.
        FormatError: another magic or version.
    """
    if len(data) < _MIN_BATCH_BYTES:
        raise CorruptionError("batch too short for header", expected=_MIN_BATCH_BYTES, found=len(data))
    magic, version, entry_count, raw_length = _FIELDS.unpack_from(data)
    if magic != MAGIC:
        raise FormatError("invalid batch magic", expected=MAGIC, found=magic)
    if version not in (1, 2):
        raise FormatError(f"unsupported batch version {version}", expected=(1, 2), found=version)
    crc = _U32.unpack_from(data, _FIELDS.size)[0] if version == 2 else None
    return BatchHeader(version=version, entry_count=entry_count, raw_length=raw_length, crc=crc)


def decode_batch(data: bytes, *, max_bytes: int = MAX_BATCH_BYTES) -> list[BatchEntry]:
    """Read a batch of version 1 or 2.

    Memory stays under `2 * max_bytes`, and until the body has been decoded under `510 * len(data)`, whatever the
    bytes say. Keys that are not UTF-8 get replacement characters, as in LaminarDB.

    Args:
        data: the whole batch.
        max_bytes: limit on body and entries, an entry counting as ENTRY_COST_BYTES says.

    Raises:
        FormatError: another magic or version; or over the limit, with code FORMAT_TOO_LARGE.
        CorruptionError: truncated, damaged, or the entry count does not agree with the body.
    """
    header = parse_header(data)
    compressed = memoryview(data)[header.size :]
    if header.crc is not None:
        _check_crc(header.crc, crc32c(compressed))
    budget = _Budget(max_bytes)
    body = decompress_prefixed(compressed, max_bytes=budget.limit)
    entries: list[BatchEntry] = []
    end = 0
    # The count decides when to stop, never how much to allocate: every round consumes at least 8 bytes of the body.
    for _ in range(header.entry_count):
        key_start, key_end = _span(body, end, "key length", "key data")
        start, end = _span(body, key_end, "data length", "data")
        if not budget.take(key_end - key_start, end - start):
            raise FormatError(
                f"batch entries are over the limit of {budget.limit} bytes at entry {len(entries)}",
                code=ErrorCode.FORMAT_TOO_LARGE,
                expected=budget.limit,
                found=budget.taken,
                next_step="Check where the batch comes from; raise `max_bytes` if it is to be trusted.",
            )
        key = str(memoryview(body)[key_start:key_end], "utf-8", "replace")
        entries.append(BatchEntry(key, body[start:end]))
    if end != len(body):
        raise CorruptionError(
            f"batch count and body do not agree: {header.entry_count} entries end at byte {end} of {len(body)}",
            expected=end,
            found=len(body),
            details={"entry_count": header.entry_count},
        )
    return entries


class _Budget:
    """What entries have cost so far, of what they may; see ENTRY_COST_BYTES."""

    __slots__ = ("limit", "taken")

    def __init__(self, max_bytes: int) -> None:
        self.limit = min(max_bytes, MAX_RAW_BYTES)
        self.taken = 0

    def take(self, key_bytes: int, data_bytes: int) -> bool:
        self.taken += ENTRY_COST_BYTES + KEY_COST_FACTOR * key_bytes + data_bytes
        return self.taken <= self.limit


def _key_bytes(key: str) -> bytes:
    try:
        return key.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"key {key!r} is no valid Unicode: {error.reason}", found=key) from error


def _check_crc(expected: int, found: int) -> None:
    if expected != found:
        raise CorruptionError(
            f"batch CRC32C mismatch: expected 0x{expected:08x}, actual 0x{found:08x}",
            code=ErrorCode.CHECKSUM_MISMATCH,
            expected=f"0x{expected:08x}",
            found=f"0x{found:08x}",
        )


def _span(body: bytes, at: int, length_name: str, content_name: str) -> tuple[int, int]:
    """Where the length-prefixed field at `at` has its content."""
    start = at + _U32.size
    if start > len(body):
        raise _truncated(length_name, start, body)
    end = start + int(_U32.unpack_from(body, at)[0])
    if end > len(body):
        raise _truncated(content_name, end, body)
    return start, end


def _truncated(part: str, needed: int, body: bytes) -> CorruptionError:
    return CorruptionError(f"truncated batch entry ({part})", expected=needed, found=len(body))
