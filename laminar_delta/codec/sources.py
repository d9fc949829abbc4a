"""Where state comes from: bytes in memory, an open file or pieces, taken apart into pieces of bytes.

A file or an iterator is used up by being read. Read a second time it gives nothing, or what is left, and nobody could tell that
from a state that is empty or short. So what was begun here is remembered for as long as it lives, and refused the next time. A
file that stands where it was begun, because its owner put it back, is read again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple, Protocol, TypeAlias

from laminar_delta.codec.buffers import BytesLike, flat_view
from laminar_delta.errors import InvalidInputError, SessionStateError

HELD = 64
"""Iterators such as `map` cannot be referred to weakly: so many of them, the last ones begun, are kept to be known again."""


class ReadableFile(Protocol):
    """A file opened for reading bytes; short reads are fine, an empty one is the end."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes."""
        ...


StateSource: TypeAlias = BytesLike | ReadableFile | Iterable[BytesLike]
"""Where state comes from: bytes in memory, an open file, or pieces of any size."""


class _Begun(NamedTuple):
    """A source that was read from."""

    source: Callable[[], object]
    position: int | None
    """Where a file stood; None when it does not say, or is none."""


_begun: dict[int, _Begun] = {}
_held: deque[object] = deque()


def is_buffer(source: Any) -> bool:
    """Whether it has its bytes in memory, or mapped into it, and can be read any number of times."""
    try:
        memoryview(source)
    except TypeError:
        return False
    except (BufferError, ValueError):
        # It has some that Python cannot see; `flat_view` says so.
        return True
    return True


def is_read_once(source: Any) -> bool:
    """Whether reading uses it up: an open file, or an iterator. A list of pieces begins anew each time."""
    return not is_buffer(source) and (_is_file(source) or isinstance(source, Iterator))


def is_used_up(source: Any) -> bool:
    """Whether it was read from here before and, if it is a file, was not put back to where it stood then."""
    if not is_read_once(source):
        return False
    found = _begun.get(id(source))
    if found is None or found.source() is not source:
        return False
    return found.position is None or found.position != _position(source)


def check_source(source: Any) -> None:
    """Raises `InvalidInputError` for what is neither bytes, nor a file, nor pieces in order. Those are seen as they come."""
    if not is_buffer(source) and _is_file(source):
        return
    if isinstance(source, Mapping | Set) or hasattr(source, "columns"):
        # Iterable, but over its keys, in any order, or over the names of columns: whoever loaded that had lost the state.
        kind = type(source).__name__
        raise InvalidInputError(
            f"bytes are needed, or pieces of them in order, not a {kind}",
            expected="bytes, an open file, or pieces in order",
            found=kind,
            next_step="Turn it into bytes, in a form that you can read again.",
        )
    if isinstance(source, str) or is_buffer(source) or not isinstance(source, Iterable):
        flat_view(source)


def pieces_of(source: Any, size: int) -> Iterator[tuple[memoryview, bool]]:
    """A source in pieces; with each, whether nobody can change it, so that it need not be copied to be stored as it is.

    Args:
        source: Is begun: a file or an iterator can be read only once.
        size: How much is asked of a file at a time.

    Raises:
        InvalidInputError: It is none; see `check_source`. From iteration: a piece is not bytes.
        SessionStateError: It is used up.
    """
    check_source(source)
    # Before files: one that is mapped into memory is both, and as bytes it is all there, wherever it was read to.
    if is_buffer(source):
        return iter((_given(source),))
    if _is_file(source):
        _begin(source, _position(source))
        if hasattr(source, "readinto"):
            return ((piece, True) for piece in _read_pieces(source, size))
        return map(_given, iter(lambda: source.read(size), b""))
    pieces = iter(source)
    # Of pieces that begin anew each time, this iterator is another one each time.
    _begin(pieces, None, can_come_again=pieces is source)
    return map(_given, pieces)


def _begin(source: Any, position: int | None, *, can_come_again: bool = True) -> None:
    """Remembers a source, unless nobody has it but us. Raises `SessionStateError` when it is used up."""
    try:
        known_by: Callable[[], object] = weakref.ref(source, _forgetting(id(source)))
    except TypeError:
        if not can_come_again:
            return
        known_by = lambda: source  # noqa: E731
        _held.append(source)
        if len(_held) > HELD:
            _begun.pop(id(_held.popleft()), None)
    own = _Begun(known_by, position)
    # One step, so that of two threads only one begins it.
    found = _begun.setdefault(id(source), own)
    if found is not own and (position is None or position != found.position):
        raise SessionStateError(
            "the source of a state can be read only once, and was",
            expected="bytes, or a source that was not read from yet",
            found=type(source).__name__,
            next_step="Give it anew, or put the file back to where it was.",
        )


def _forgetting(key: int) -> Callable[[object], None]:
    def forget(_: object) -> None:
        _begun.pop(key, None)

    return forget


def _position(file: Any) -> int | None:
    try:
        return int(file.tell())
    except Exception:  # noqa: BLE001  # a pipe, or no such method: whatever keeps it from saying
        return None


def _is_file(source: Any) -> bool:
    return hasattr(source, "readinto") or hasattr(source, "read")


def _given(piece: Any) -> tuple[memoryview, bool]:
    view = flat_view(piece)
    return view, type(view.obj) is bytes


def _read_pieces(file: Any, size: int) -> Iterator[memoryview]:
    """A file into memory that Arrow uses again. However little comes at a time, each piece but the last is full: a block keeps
    the whole piece in memory that it lies in.
    """
    import pyarrow as pa

    filled = size
    while filled == size:
        room = memoryview(pa.allocate_buffer(size)).cast("B")
        filled = 0
        while filled < size and (count := _read_into(file, room[filled:])):
            filled += count
        if filled:
            yield room[:filled]


def _read_into(file: Any, room: memoryview) -> int:
    count = file.readinto(room)
    if count is None:
        # Not the end: whoever took it for that would store a part of the state as the whole.
        raise InvalidInputError(
            "the file has nothing to read yet",
            expected="bytes, or the end",
            found=None,
            next_step="Open it so that reading waits.",
        )
    if not isinstance(count, int) or not 0 <= count <= len(room):
        # What it says it has written there, and what was there before, nobody can tell apart.
        raise InvalidInputError(
            "the file does not say how much it read", expected=f"0 to {len(room)} bytes", found=type(count).__name__
        )
    return count
