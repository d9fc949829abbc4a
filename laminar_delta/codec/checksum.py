"""Checksums: what they are for, and which one where.

    xxh3-128   whole states and streams, as the text `xxh3:<32 hex digits>`
    xxh3-128   one block of a state, as 16 bytes: its name, by which equal blocks are stored once
    xxh3-64    a chunk of blocks as stored, as an integer 0 to 2^64-1
    CRC-32C    LCB1 batches, because the format says so

A whole-state checksum also answers "is this the same content?" between any two checkpoints ever saved, and a block's name
between any two blocks of a state and its forerunners, so they must survive a catalog's worth of pairs: at 64 bits a chance
collision becomes likely near 2^32 of them, at 128 bits it does not. A chunk's hash only tells whether it is as it was written:
64 bits are enough.

None of these withstands someone who forges data on purpose; they detect damage. SHA-256, which other systems ask for,
is computed where states are exported, and where a checksum that came with a manifest is compared: see `foreign`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import xxhash

from laminar_delta.codec.buffers import flat_view
from laminar_delta.errors import CorruptionError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laminar_delta.codec.buffers import BytesLike

XXH3_PREFIX = "xxh3:"

_CRC_CHUNK_BYTES = 1 << 20


def xxh3_hex(data: BytesLike) -> str:
    """The checksum of a whole state, in the form the manifest's `state_checksum` has."""
    return XXH3_PREFIX + xxhash.xxh3_128_hexdigest(flat_view(data))


def block_hash(data: BytesLike) -> int:
    """The xxh3-64 of one block, 0 to 2^64-1."""
    return xxhash.xxh3_64_intdigest(flat_view(data))


def block_name(data: BytesLike) -> bytes:
    """The xxh3-128 of one block as 16 bytes: what a block is known by among all of a state and its forerunners."""
    return xxhash.xxh3_128_digest(flat_view(data))


def crc32c(data: BytesLike) -> int:
    """The CRC-32C (Castagnoli) of `data`, 0 to 2^32-1."""
    if isinstance(data, bytes):
        whole: int = google_crc32c.value(data)
        return whole
    # The library takes nothing but bytes: copying piece by piece keeps a large view from being copied whole.
    view = flat_view(data)
    crc = 0
    for start in range(0, len(view), _CRC_CHUNK_BYTES):
        crc = google_crc32c.extend(crc, bytes(view[start : start + _CRC_CHUNK_BYTES]))
    return crc


class StreamDigest:
    """The checksum of a state that arrives in pieces: `xxh3_hex` of the pieces joined, however they were cut."""

    __slots__ = ("_hasher", "_length")

    def __init__(self) -> None:
        self._hasher = xxhash.xxh3_128()
        self._length = 0

    def update(self, data: BytesLike) -> None:
        """Take the next piece."""
        view = flat_view(data)
        self._hasher.update(view)
        self._length += len(view)

    @property
    def length(self) -> int:
        """Bytes taken so far."""
        return self._length

    @property
    def checksum(self) -> str:
        """`xxh3:<hex>` of the bytes taken so far; more may follow."""
        return XXH3_PREFIX + self._hasher.hexdigest()


def verify(subject: str, *, expected: str | int, found: str | int, details: Mapping[str, object] | None = None) -> None:
    """Compare a stored checksum with the one computed from what was read.

    Args:
        subject: what was read, as the reader of the message knows it: `state of operator 'window-agg', partition 3`.
        expected: the stored checksum, a `state_checksum` text or a block hash.
        found: the computed one, of the same kind.
        details: further facts for the handler (operator, partition, checkpoint).

    Raises:
        CorruptionError: they differ; code CHECKSUM_MISMATCH. Both are given as text, because a 64-bit integer does not
            survive every JSON log.
    """
    if expected == found:
        return
    expected_text, found_text = _text(expected), _text(found)
    raise CorruptionError(
        f"{subject} does not match its checksum: expected {expected_text}, found {found_text}",
        code=ErrorCode.CHECKSUM_MISMATCH,
        expected=expected_text,
        found=found_text,
        details=details,
    )


def _text(checksum: str | int) -> str:
    return checksum if isinstance(checksum, str) else f"0x{checksum:016x}"
