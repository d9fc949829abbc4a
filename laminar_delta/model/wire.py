"""The one way in and out for every model type: a frozen dataclass whose annotations are its format.

`from_json` and `from_dict` read what serde would read: unknown fields ignored, missing ones defaulted where the field has
a default, null only for optional fields, an array in place of an object taken by position. `to_json` writes every field in
declaration order. The constructor applies the same rules to Python values, so no instance exists that could not be written
and read back. Documents do not pass through the constructor: their values were checked when they were read.

Modules that declare model types do not postpone the evaluation of annotations: the rules are derived from real objects.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeVar

from laminar_delta.model.base64text import encode_base64
from laminar_delta.model.jsontext import RepeatedKeys, parse_json, render_json, require_utf8
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import Rule, refusal, rule_for

M = TypeVar("M", bound="WireModel")


@dataclass(frozen=True, slots=True, kw_only=True)
class WireModel:
    """Base of the model types.

    A subclass is a dataclass with the same three arguments. One whose document is no object of its fields replaces
    `_from_plain` and `_to_plain`; one whose fields depend on each other adds `_check`.
    """

    pretty_json: ClassVar[bool] = False
    """Whether `to_json` indents unless told otherwise."""

    def __post_init__(self) -> None:
        try:
            for name, rule in layout_of(type(self)).from_python.items():
                _set_field(self, name, rule)
            self._check()
        except Mismatch as mismatch:
            raise mismatch.as_input_error(type(self).__name__) from None

    @classmethod
    def from_json(cls: type[M], document: bytes | str) -> M:
        """Read a JSON document.

        Raises:
            FormatError: It is not JSON, or not a document of this type; the text names the place.
        """
        try:
            return cls._from_plain(parse_json(document))
        except Mismatch as mismatch:
            raise mismatch.as_format_error(cls.__name__) from None

    def to_json(self, *, pretty: bool | None = None) -> bytes:
        """Write the JSON document: indented for manifests, compact for everything else, unless `pretty` says which."""
        return render_json(self._to_plain(), pretty=self.pretty_json if pretty is None else pretty)

    @classmethod
    def from_dict(cls: type[M], document: Any) -> M:
        """Read an already parsed document, by the same rules as `from_json`.

        Raises:
            FormatError: It is not a document of this type; the text names the place.
        """
        try:
            return cls._from_plain(document)
        except Mismatch as mismatch:
            raise mismatch.as_format_error(cls.__name__) from None

    def to_dict(self) -> Any:
        """The document as plain values: a new dict, or a bare string for the types whose JSON is one."""
        return self._to_plain()

    @classmethod
    def _from_plain(cls: type[M], raw: Any) -> M:
        return read_record(cls, raw)

    def _to_plain(self) -> Any:
        return {name: plain(getattr(self, name)) for name in layout_of(type(self)).from_document}

    def _check(self) -> None:
        """Raise `Mismatch` if the fields, each good by itself, do not fit together."""


class Layout(NamedTuple):
    """The fields of a model type, in declaration order."""

    from_document: dict[str, Rule]
    from_python: dict[str, Rule]
    defaults: dict[str, Callable[[], Any]]


_LAYOUTS: dict[type, Layout] = {}


def layout_of(kind: type[WireModel]) -> Layout:
    """The layout of a type, derived at its first use: most programs need few of them."""
    layout = _LAYOUTS.get(kind)
    if layout is None:
        layout = _LAYOUTS[kind] = _derived_layout(kind)
    return layout


def _derived_layout(kind: type[WireModel]) -> Layout:
    layout = Layout({}, {}, {})
    for field in fields(kind):
        layout.from_document[field.name] = rule_for(field.type, typed=False)
        layout.from_python[field.name] = rule_for(field.type, typed=True)
        if field.default_factory is not MISSING:
            layout.defaults[field.name] = field.default_factory
        elif field.default is not MISSING:
            layout.defaults[field.name] = _constant(field.default)
    return layout


def read_record(kind: type[M], raw: Any) -> M:
    """Read an object of the type's fields, or an array of them in order."""
    layout = layout_of(kind)
    if isinstance(raw, (list, tuple)):
        if len(raw) > len(layout.from_document):
            raise Mismatch(f"at most {len(layout.from_document)} elements", f"{len(raw)} elements")
        raw = dict(zip(layout.from_document, raw, strict=False))
    elif not isinstance(raw, Mapping):
        raise refusal(f"an object of {kind.__name__}", raw)
    if isinstance(raw, RepeatedKeys):
        for name in layout.from_document.keys() & raw.repeated():
            raise _at(name, Mismatch("one value", "the field more than once"))
    for name in raw.keys() - layout.from_document.keys():
        if isinstance(name, str):
            require_utf8(name)  # what an unknown field holds does not matter, but its name has to be text
    values: dict[str, Any] = {}
    name = ""
    try:
        for name, rule in layout.from_document.items():
            if name in raw:
                values[name] = rule(raw[name])
            elif name in layout.defaults:
                values[name] = layout.defaults[name]()
            else:
                raise Mismatch("a value", "no such field")
    except Mismatch as mismatch:
        raise _at(name, mismatch) from None
    record = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(record, name, value)
    record._check()
    return record


def plain(value: object) -> Any:
    """A field's value as a document holds it."""
    if isinstance(value, WireModel):
        return value._to_plain()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return encode_base64(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def _set_field(record: WireModel, name: str, rule: Rule) -> None:
    try:
        object.__setattr__(record, name, rule(getattr(record, name)))
    except Mismatch as mismatch:
        raise _at(name, mismatch) from None


def _at(name: str, mismatch: Mismatch) -> Mismatch:
    mismatch.under(f".{name}")
    return mismatch


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value
