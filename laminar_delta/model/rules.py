"""What a field takes: one rule per annotation, used alike for JSON documents and for Python callers.

A rule is a function from what was given to what is kept; it raises `Mismatch` for anything else. `rule_for` derives it
from the field's annotation, so a dataclass is the only place where a field's type is written down. The two sides differ in
one point, `typed`: a document holds objects, arrays and base64 text where a Python caller passes instances and bytes.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import index
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from laminar_delta.model.base64text import decode_base64
from laminar_delta.model.jsontext import Inexact, RepeatedKeys, require_utf8
from laminar_delta.model.mismatch import Mismatch

Rule = Callable[[Any], Any]

SHOWN_CHARACTERS = 60
"""How much of a refused text an error quotes; operator state can be megabytes of it."""


class Form:
    """An annotation's marker that brings its own rule, as in `Annotated[int, IntRange(...)]`."""

    __slots__ = ()

    def rule(self, *, typed: bool) -> Rule:
        """The rule for documents, or for Python callers when `typed`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class IntRange(Form):
    """An integer from `low` to `high`, both included."""

    low: int
    high: int

    def rule(self, *, typed: bool) -> Rule:  # noqa: ARG002 - an integer is the same on both sides
        """See `Form.rule`."""
        return self.take

    def take(self, raw: Any) -> int:
        """Return the integer, or raise `Mismatch` for another type or an integer out of range."""
        if type(raw) is not int:
            try:
                number = None if isinstance(raw, bool) else index(raw)
            except TypeError:
                number = None
            if number is None:
                raise refusal(self.describe(), raw)
        else:
            number = raw
        if self.low <= number <= self.high:
            return number
        found = number if number.bit_length() <= 128 else f"an integer of {number.bit_length()} bits"
        raise Mismatch(self.describe(), found, (self.low, self.high))

    def describe(self) -> str:
        """The words of error messages."""
        return f"an integer from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Base64(Form):
    """Bytes that a document holds as base64 text."""

    limit: int
    """The longest that is taken, in bytes."""

    def rule(self, *, typed: bool) -> Rule:
        """See `Form.rule`."""
        return self._from_python if typed else self._from_document

    def _from_python(self, raw: Any) -> bytes:
        if not isinstance(raw, (bytes, bytearray, memoryview)):
            raise refusal("bytes", raw)
        data = bytes(raw)
        if len(data) > self.limit:
            raise Mismatch(f"at most {self.limit} bytes", f"{len(data)} bytes")
        return data

    def _from_document(self, raw: Any) -> bytes:
        try:
            data = decode_base64(take_text(raw))
        except ValueError as error:
            raise Mismatch("padded, canonical base64", str(error)) from None
        return self._from_python(data)


U16_RANGE = IntRange(0, 2**16 - 1)
U32_RANGE = IntRange(0, 2**32 - 1)
U64_RANGE = IntRange(0, 2**64 - 1)
I32_RANGE = IntRange(-(2**31), 2**31 - 1)
I64_RANGE = IntRange(-(2**63), 2**63 - 1)

U16 = Annotated[int, U16_RANGE]
U32 = Annotated[int, U32_RANGE]
U64 = Annotated[int, U64_RANGE]
I32 = Annotated[int, I32_RANGE]
I64 = Annotated[int, I64_RANGE]


def rule_for(annotation: Any, *, typed: bool) -> Rule:
    """Derive the rule of a field from its annotation.

    Raises:
        TypeError: The annotation is of a kind that no document can hold; a mistake in the dataclass.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated and isinstance(arguments[1], Form):
        return arguments[1].rule(typed=typed)
    if origin in (Union, UnionType) and len(arguments) == 2 and arguments[1] is NoneType:
        return _optional(rule_for(arguments[0], typed=typed))
    if origin is tuple and arguments[1:] == (...,):
        return _sequence(rule_for(arguments[0], typed=typed))
    if origin is Mapping and arguments[0] is str:
        return _mapping(rule_for(arguments[1], typed=typed))
    if annotation is str:
        return take_text
    if annotation is bool:
        return _take_bool
    if isinstance(annotation, type):
        if typed:
            return _instance(annotation)
        if issubclass(annotation, Enum):
            return _variant(annotation)
        from_plain: Rule | None = getattr(annotation, "_from_plain", None)
        if from_plain is not None:
            return from_plain
    raise TypeError(f"no document holds a {annotation!r}")


def take_text(raw: Any) -> str:
    """The rule of `str`: any text that UTF-8 can hold."""
    if not isinstance(raw, str):
        raise refusal("a string", raw)
    text = raw if type(raw) is str else str.__str__(raw)  # a str enum's member becomes plain text
    require_utf8(text)
    return text


def refusal(expected: str, raw: object) -> Mismatch:
    """A `Mismatch` on a value from outside, described without risk: never all of it, never by its own `repr`."""
    if raw is None or isinstance(raw, bool):
        return Mismatch(expected, {None: "null", True: "true", False: "false"}[raw])
    if type(raw) is int and raw.bit_length() <= 128:
        return Mismatch(expected, raw)
    if isinstance(raw, str):
        return Mismatch(expected, quoted(raw))
    if isinstance(raw, Inexact):
        return Mismatch(expected, raw.digits[:SHOWN_CHARACTERS])
    kinds: dict[type, str] = {dict: "an object", RepeatedKeys: "an object", list: "an array"}
    return Mismatch(expected, kinds.get(type(raw), f"a {type(raw).__name__}"))


def quoted(text: str) -> str:
    """The text as an error shows it: cut, in quotes, and printable even with lone surrogates."""
    shown = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
    return json.dumps(shown, ensure_ascii=False).encode("utf-8", "backslashreplace").decode("utf-8")


def _take_bool(raw: Any) -> bool:
    if raw is True or raw is False:
        return bool(raw)
    raise refusal("true or false", raw)


def _optional(rule: Rule) -> Rule:
    return lambda raw: None if raw is None else rule(raw)


def _instance(kind: type) -> Rule:
    def take(raw: Any) -> Any:
        if isinstance(raw, kind):
            return raw
        raise refusal(f"a {kind.__name__}", raw)

    return take


def _variant(kind: type[Enum]) -> Rule:
    """A variant by its name, bare or as the only key of an object that holds null."""
    members = {member.value: member for member in kind}
    expected = "one of " + ", ".join(f'"{value}"' for value in members)

    def take(raw: Any) -> Enum:
        name = raw
        if isinstance(raw, Mapping) and not isinstance(raw, RepeatedKeys) and list(raw.values()) == [None]:
            name = next(iter(raw))
        if isinstance(name, str) and name in members:
            return members[name]
        raise refusal(expected, raw)

    return take


def _sequence(rule: Rule) -> Rule:
    def take(raw: Any) -> tuple[Any, ...]:
        if not isinstance(raw, (list, tuple)):
            raise refusal("an array", raw)
        position = 0
        kept = []
        try:
            for position, item in enumerate(raw):  # noqa: B007 - the handler says which item it was
                kept.append(rule(item))
        except Mismatch as mismatch:
            mismatch.under(f"[{position}]")
            raise
        return tuple(kept)

    return take


def _mapping(rule: Rule) -> Rule:
    def take(raw: Any) -> dict[str, Any]:
        if not isinstance(raw, Mapping):
            raise refusal("an object", raw)
        kept: dict[str, Any] = {}
        key: Any = None
        try:
            # Every value has to be good, also one that a later value of the same key replaces.
            for key, item in raw.pairs if isinstance(raw, RepeatedKeys) else raw.items():
                kept[take_text(key)] = rule(item)
        except Mismatch as mismatch:
            mismatch.under(f"[{quoted(key) if isinstance(key, str) else type(key).__name__}]")
            raise
        return kept

    return take
