"""Values of several types, told apart in JSON by a `type` field beside their own (serde: internally tagged)."""

from collections.abc import Mapping
from typing import Any

from laminar_delta.model.jsontext import RepeatedKeys, require_representable
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import refusal
from laminar_delta.model.wire import M, layout_of, read_record

TAG = "type"


def read_tagged(kinds: Mapping[str, type[M]], raw: Any) -> M:
    """Read an object with a tag, or an array that begins with one.

    Such a value is buffered whole until its type is known, so unlike elsewhere nothing in it is skipped unread, and an array
    has to give every field.
    """
    fields: Any
    if isinstance(raw, (list, tuple)) and raw:
        tag, fields = raw[0], raw[1:]
    elif isinstance(raw, Mapping) and TAG in raw:
        if isinstance(raw, RepeatedKeys) and TAG in raw.repeated():
            raise Mismatch(f"one {TAG}", "the field more than once")
        tag, fields = raw[TAG], raw
    else:
        raise refusal(f"an object with a {TAG}", raw)
    kind = kinds.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise refusal(f"a {TAG} of {', '.join(kinds)}", tag)
    size = len(layout_of(kind).from_document)
    if fields is not raw and len(fields) != size:
        raise Mismatch(f"{size} elements after the {TAG}", f"{len(fields)} elements")
    require_representable(fields)
    return read_record(kind, fields)
