"""Names as callers give them, in the one form that rows have: plain text that UTF-8 can hold."""

from __future__ import annotations

from laminar_delta.errors import InvalidInputError
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import take_text


def check_text(what: str, text: object) -> str:
    """The text, plain also when an enum's member or another kind of `str` was given.

    Raises:
        InvalidInputError: It is no text, or none that UTF-8 can hold.
    """
    try:
        return take_text(text)
    except Mismatch as mismatch:
        raise mismatch.as_input_error(what) from None


def check_name(what: str, name: object) -> str:
    """The same, for what must be called something."""
    text = check_text(f"name of {what}", name)
    if not text:
        raise InvalidInputError(f"{what} has no name", expected="at least one character", found="")
    return text
