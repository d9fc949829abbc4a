"""What people say of what they do, for whoever reads it later: who they are, and why."""

from __future__ import annotations

import datetime as dt

from laminar_delta.errors import InvalidInputError


def check_reason(what: str, reason: str | None) -> None:
    """Whoever looks at it later finds nothing else that says why. Raises `InvalidInputError` without a reason."""
    check_said(reason=reason)
    if reason is None or not reason.strip():
        raise InvalidInputError(f"{what} needs a reason", expected="a reason", found=reason)


def check_moment(moment: object) -> None:
    """Raises `InvalidInputError` for what is no moment in time."""
    if not isinstance(moment, dt.datetime):
        raise InvalidInputError(f"{moment!r} is no moment", expected="a datetime.datetime", found=type(moment).__name__)


def storable(text: str) -> str:
    """A text of somebody else's that a table can keep: what UTF-8 cannot hold, as half of a character, is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def check_said(**texts: object) -> None:
    """Raises `InvalidInputError`, naming it, for what is no text, and for a text that no table can keep: half of a character,
    as an argument that is not UTF-8 has them.
    """
    for name, text in texts.items():
        if text is None:
            continue
        if not isinstance(text, str):
            raise InvalidInputError(
                f"{name} is no text: {type(text).__name__}", expected="a text", found=type(text).__name__
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"{name} {text!r} is no text that UTF-8 can hold: see character {error.start}",
                expected="UTF-8",
                found=ascii(text),
            ) from None
