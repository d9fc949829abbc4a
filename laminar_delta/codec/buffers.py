"""Bytes that belong to someone else, seen without copying them.

The functions of this package take any contiguous run of bytes. `len()` of a view counts items, not bytes, and a
length taken from it would be written into a file as a byte count: everything that measures or slices its input goes
through `flat_view`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from laminar_delta.errors import InvalidInputError

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""What this package reads from. Other objects with the buffer protocol (Arrow buffers, NumPy arrays) work as well, but
Python before 3.12 has no name for them."""

_FIELD_NAMES = re.compile(":[^:]*:")
"""In the format of a view, as PEP 3118 writes it."""


def flat_view(data: BytesLike) -> memoryview:
    """`data` as one-dimensional bytes, so that `len()` and slices count bytes.

    Only a view with gaps in it is copied.

    Raises:
        InvalidInputError: not bytes at all, such as text, or references to objects, whose bytes are addresses.
    """
    try:
        view = memoryview(data)
    except (BufferError, TypeError, ValueError) as error:
        kind = type(data).__name__
        raise InvalidInputError(f"bytes are needed, not {kind}", expected="bytes", found=kind) from error
    if "O" in view.format and "O" in _FIELD_NAMES.sub("", view.format):
        kind = type(data).__name__
        raise InvalidInputError(
            f"bytes are needed, not references to objects in {kind}",
            expected="bytes",
            found=view.format,
            next_step="Give the bytes of the objects, as pieces or joined.",
        )
    if view.nbytes == 0:
        # Python refuses to cast a view of several dimensions when one of them is zero.
        return memoryview(b"")
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    return view.cast("B")


class Span(NamedTuple):
    """Some bytes where they lie, so that neighbours can be handed on as one."""

    whole: memoryview
    start: int
    end: int

    @property
    def data(self) -> memoryview:
        """The bytes."""
        return self.whole[self.start : self.end]


def runs(spans: Iterable[Span]) -> list[memoryview]:
    """The bytes of spans one after the other, those that lie behind one another as one."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].whole is span.whole and joined[-1].end == span.start:
            joined[-1] = joined[-1]._replace(end=span.end)
        else:
            joined.append(span)
    return [span.data for span in joined]
