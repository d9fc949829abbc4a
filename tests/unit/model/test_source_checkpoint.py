import pytest

from laminar_delta.errors import ErrorCode, FormatError, InvalidInputError
from laminar_delta.model import MAX_POSITION_BYTES, SourceCheckpoint


def test_position_is_base64_in_json() -> None:
    assert SourceCheckpoint(sequence=5, position=b"\x00\xff").to_json() == b'{"sequence":5,"position":"AP8="}'
    assert SourceCheckpoint(sequence=5).to_json() == b'{"sequence":5,"position":null}'


def test_empty_position_is_not_the_absence_of_one() -> None:
    empty = SourceCheckpoint(sequence=1, position=b"")
    assert empty != SourceCheckpoint(sequence=1)
    assert SourceCheckpoint.from_json(empty.to_json()).position == b""
    assert SourceCheckpoint.from_json('{"sequence":1}').position is None


def test_limit_is_inclusive() -> None:
    largest = b"x" * MAX_POSITION_BYTES
    assert SourceCheckpoint.from_json(SourceCheckpoint(sequence=0, position=largest).to_json()).position == largest
    with pytest.raises(InvalidInputError, match="65536") as caught:
        SourceCheckpoint(sequence=0, position=largest + b"x")
    assert (caught.value.expected, caught.value.found) == ("at most 65536 bytes", "65537 bytes")
    assert caught.value.details["field"] == "position"
    assert caught.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("position", ['"QR=="', '"!"', "[1]", "5", '"ü"'])
def test_document_needs_canonical_base64(position: str) -> None:
    with pytest.raises(FormatError):
        SourceCheckpoint.from_json(f'{{"sequence":1,"position":{position}}}')


def test_document_with_a_position_too_long_is_refused() -> None:
    with pytest.raises(FormatError, match="65536"):
        SourceCheckpoint.from_json('{"sequence":1,"position":"' + "AAAA" * 21846 + '"}')


def test_other_byte_types_are_copied() -> None:
    position = bytearray(b"ab")
    checkpoint = SourceCheckpoint(sequence=1, position=position)  # type: ignore[arg-type]  # works all the same
    position[0] = 0
    assert checkpoint.position == b"ab"
    with pytest.raises(InvalidInputError):
        SourceCheckpoint(sequence=1, position="ab")  # type: ignore[arg-type]  # what is tested
