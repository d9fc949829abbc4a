"""Bytes on their way into a file: known by length and digest, handed out in pieces, never held as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import IO

PIECE_BYTES = 1 << 20
SPOOLED_BYTES = 16 << 20
"""Up to this size what is cut up stays in memory; above, it is in a temporary file meanwhile."""

Piece = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Content:
    """What a file is to hold."""

    length: int
    sha256: str
    _again: Callable[[], Iterator[Piece]] = field(repr=False)

    @classmethod
    def measured(cls, again: Callable[[], Iterator[Piece]]) -> Content:
        """Reads bytes to their end to learn what they are.

        Args:
            again: Gives the same bytes each time: now to be measured, later to be written.
        """
        length, digest = 0, hashlib.sha256()
        for piece in again():
            length += len(piece)
            digest.update(piece)
        return cls(length, digest.hexdigest(), again)

    @classmethod
    def of(cls, data: bytes) -> Content:
        """Bytes that are here already, because they are few."""
        return cls(len(data), hashlib.sha256(data).hexdigest(), lambda: iter((data,)))

    def pieces(self) -> Iterator[Piece]:
        """The bytes, in order."""
        return self._again()


def joined(parts: list[Callable[[], Iterator[Piece]]]) -> Content:
    """One after another, measured as a whole."""
    return Content.measured(lambda: chain.from_iterable(part() for part in parts))


class Ranges:
    """Bytes that are cut up into ranges, in any order and as often as wanted. Close it to let go of its file."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=SPOOLED_BYTES)  # noqa: SIM115 - `close` closes it
        self.length = 0
        try:
            for piece in pieces:
                self._file.write(piece)
                self.length += len(piece)
        except BaseException:
            self.close()
            raise

    def content(self, offset: int, length: int) -> Content:
        """A range that is all there."""

        def pieces() -> Iterator[Piece]:
            at, end = offset, offset + length
            while at < end:
                self._file.seek(at)
                piece = self._file.read(min(PIECE_BYTES, end - at))
                at += len(piece)
                yield piece

        return Content.measured(pieces)

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()
