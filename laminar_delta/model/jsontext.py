"""JSON text in and out, as strictly as the Rust readers and writers of these documents.

The standard library's parser is lenient where serde is not: it takes `NaN`, keeps the last of two equal keys, reads `-0`
as the integer 0 and guesses the encoding of bytes. The hooks below close those gaps without parsing anything twice:

- an object with a repeated key comes out as `RepeatedKeys`: a record refuses that, in a map the last one wins;
- a number that is no 64-bit integer comes out as `Inexact`: fine in a field that is ignored, refused in one that is used.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from laminar_delta.errors import InvalidInputError
from laminar_delta.model.mismatch import Mismatch

LONGEST_INTEGER = 20
"""Characters of the longest 64-bit integer. Longer ones are never converted: it is slow, and Python limits it."""


class RepeatedKeys(dict[str, Any]):
    """A JSON object that named a key more than once; `pairs` still has every value."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    def repeated(self) -> set[str]:
        """The keys that occur more than once."""
        once: set[str] = set()
        repeated: set[str] = set()
        for key, _ in self.pairs:
            (repeated if key in once else once).add(key)
        return repeated


@dataclass(frozen=True, slots=True)
class Inexact:
    """A JSON number that is no 64-bit integer: a fraction, an exponent, `-0`, or too many digits."""

    digits: str


def parse_json(document: bytes | bytearray | memoryview | str) -> Any:
    """Parse one JSON value that fills the whole document.

    Raises:
        Mismatch: It is not UTF-8, not JSON, has something before or after the value, or is nested too deep to parse.
        InvalidInputError: It is neither bytes nor str.
    """
    if isinstance(document, str):
        text = document
        require_utf8(text)
    elif isinstance(document, (bytes, bytearray, memoryview)):
        try:
            text = str(document, "utf-8")
        except UnicodeDecodeError as error:
            raise Mismatch("UTF-8", f"{error.reason} at byte {error.start}") from None
    else:
        raise InvalidInputError(
            "A document is given as bytes or str", expected="bytes or str", found=type(document).__name__
        )
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise Mismatch("one JSON value", "one that is nested too deep") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise Mismatch("one JSON value", f"a syntax error ({error.msg}, {place})") from None


def render_json(plain: object, *, pretty: bool) -> bytes:
    """Write dicts, lists and scalars: indented by two or without any space, non-ASCII as it is, no newline at the end."""
    encoder = _PRETTY if pretty else _COMPACT
    return encoder.encode(plain).encode("utf-8")


def require_utf8(text: str) -> None:
    """Refuse lone surrogates, which JSON can spell and nothing can store.

    Raises:
        Mismatch: There is one.
    """
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Mismatch("text that UTF-8 can hold", f"a lone surrogate at character {error.start}") from None


def require_representable(parsed: Any) -> None:
    """Refuse text and numbers that no program could hold, at any depth.

    Readers that buffer a value whole stumble over these even in fields they would ignore.

    Raises:
        Mismatch: There is a lone surrogate, or a number beyond the range of a double.
    """
    waiting = [parsed]
    while waiting:
        value = waiting.pop()
        if isinstance(value, RepeatedKeys):
            waiting.extend(part for pair in value.pairs for part in pair)
        elif isinstance(value, Mapping):
            waiting.extend(value.keys())
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif isinstance(value, str):
            require_utf8(value)
        elif isinstance(value, Inexact) and abs(float(value.digits)) == float("inf"):
            raise Mismatch("a number that a double can hold", value.digits[:LONGEST_INTEGER])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else RepeatedKeys(pairs)


def _integer(digits: str) -> int | Inexact:
    if len(digits) > LONGEST_INTEGER or digits == "-0":
        return Inexact(digits)
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise Mismatch("one JSON value", name)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=Inexact, parse_constant=_constant
)
_PRETTY = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=2, separators=(",", ": "))
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
