"""Cutting state into blocks: the same as slicing, for any source and any pieces."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_delta.codec import BLOCK_BYTES, Block, BlockCutter, block_name, xxh3_hex
from laminar_delta.errors import InvalidInputError, SessionStateError


class ShortReads:
    """A file that gives less than was asked for, as pipes and sockets do."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = [piece for piece in pieces if piece]

    def read(self, size: int, /) -> bytes:
        if not self.pieces:
            return b""
        piece = self.pieces.pop(0)
        if len(piece) > size:
            self.pieces.insert(0, piece[size:])
        return piece[:size]


class ShortReadsInto(ShortReads):
    """The same, into room that the reader brings."""

    def readinto(self, room: memoryview, /) -> int:
        piece = self.read(len(room))
        room[: len(piece)] = piece
        return len(piece)


class NothingYet(io.RawIOBase):
    """A file that does not wait for what is to come."""

    def readable(self) -> bool:
        return True

    def readinto(self, room: object, /) -> None:
        return None


def sliced(data: bytes, size: int) -> list[Block]:
    cuts = [data[at : at + size] for at in range(0, len(data), size)]
    return [Block(index=index, name=block_name(cut), data=cut) for index, cut in enumerate(cuts)]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 70))
def test_cutting_equals_slicing_whatever_the_pieces(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    expected = sliced(data, size)
    for source in (
        data,
        bytearray(data),
        memoryview(data),
        pieces,
        iter(pieces),
        [memoryview(bytearray(piece)) for piece in pieces],
        io.BytesIO(data),
        ShortReads(pieces),
        ShortReadsInto(pieces),
    ):
        cutter = BlockCutter(source, block_bytes=size)
        assert list(cutter) == expected
        assert cutter.checksum == xxh3_hex(data)
        assert cutter.length == len(data)


@pytest.mark.parametrize("length", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
def test_only_the_last_block_is_shorter_and_none_is_empty(length: int) -> None:
    cutter = BlockCutter(bytes(length))
    lengths = [block.raw_length for block in cutter]
    assert sum(lengths) == length
    assert all(one == BLOCK_BYTES for one in lengths[:-1])
    assert 0 not in lengths


def test_file_on_disk_is_read_to_its_end_and_left_open(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(bytes(range(256)) * 1000)
    for buffering in (0, -1):
        with path.open("rb", buffering=buffering) as file:
            assert list(BlockCutter(file, block_bytes=1000)) == sliced(path.read_bytes(), 1000)
            assert not file.closed


def test_array_is_cut_as_the_bytes_it_holds() -> None:
    numbers = array("I", range(100))
    expected = sliced(numbers.tobytes(), 64)
    assert list(BlockCutter(memoryview(numbers), block_bytes=64)) == expected
    # An array is iterable too, as numbers; it must not be taken for pieces.
    cutter = BlockCutter(numbers, block_bytes=64)  # type: ignore[arg-type]  # buffers have no common type before 3.12
    assert list(cutter) == expected


def test_source_is_read_only_as_far_as_blocks_are_asked_for() -> None:
    given_out = 0

    def pieces() -> Iterator[bytes]:
        nonlocal given_out
        for _ in range(100):
            given_out += 1
            yield b"x" * 10

    cutter = BlockCutter(pieces(), block_bytes=25)
    assert given_out == 0
    next(cutter)
    assert given_out == 3


def test_buffer_may_be_reused_for_the_next_piece() -> None:
    def pieces() -> Iterator[bytearray]:
        buffer = bytearray(10)
        for fill in range(7):
            buffer[:] = bytes([fill]) * 10
            yield buffer

    expected = b"".join(bytes([fill]) * 10 for fill in range(7))
    assert b"".join(block.data for block in BlockCutter(pieces(), block_bytes=16)) == expected


def test_whole_stream_facts_are_refused_before_the_end() -> None:
    cutter = BlockCutter(b"abcdef", block_bytes=4)
    next(cutter)
    next(cutter)
    for name in ("checksum", "length"):
        with pytest.raises(SessionStateError, match="not been cut to its end"):
            getattr(cutter, name)
    assert next(cutter, None) is None
    assert cutter.checksum == xxh3_hex(b"abcdef")


def test_failing_source_leaves_no_checksum_behind() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"abcd"
        raise OSError("gone")

    cutter = BlockCutter(pieces(), block_bytes=4)
    assert next(cutter).data == b"abcd"
    with pytest.raises(OSError, match="gone"):
        next(cutter)
    assert next(cutter, None) is None
    with pytest.raises(SessionStateError):
        _ = cutter.checksum


@pytest.mark.parametrize("source", ["text", 7, None])
def test_source_that_is_not_bytes_is_refused_at_once(source: object) -> None:
    with pytest.raises(InvalidInputError):
        BlockCutter(source)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("source", [["text"], [1, 2], io.StringIO("text"), [None]])
def test_piece_that_is_not_bytes_is_refused_when_it_comes(source: object) -> None:
    with pytest.raises(InvalidInputError):
        list(BlockCutter(source))  # type: ignore[arg-type]  # the mistake under test


def test_file_that_has_nothing_yet_is_not_taken_for_one_at_its_end() -> None:
    with pytest.raises(InvalidInputError, match="nothing to read yet"):
        list(BlockCutter(NothingYet()))


def test_a_block_of_a_file_that_comes_in_crumbs_keeps_nothing_but_full_pieces() -> None:
    data = bytes(range(256)) * 8192
    crumbs = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    blocks = list(BlockCutter(ShortReadsInto(crumbs)))
    assert b"".join(block.data for block in blocks) == data
    assert len({id(block.span.whole) for block in blocks if block.span is not None}) == 2


@pytest.mark.parametrize("size", [0, -1])
def test_block_size_below_one_is_refused(size: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        BlockCutter(b"", block_bytes=size)
    assert caught.value.found == size


def test_block_does_not_print_its_data() -> None:
    (block,) = BlockCutter(b"secret")
    assert "secret" not in repr(block)


def test_only_what_may_change_is_copied() -> None:
    fixed = bytes(range(256))
    for source in (fixed, memoryview(fixed), [fixed]):
        views = [block.data for block in BlockCutter(source, block_bytes=128)]
        assert [view.obj for view in views if isinstance(view, memoryview)] == [fixed, fixed]
    buffer = bytearray(fixed)
    first, *_ = BlockCutter(buffer, block_bytes=128)
    buffer[0] ^= 1
    assert block_name(first.data) == first.name
