"""What people say of what they do, for whoever reads it later: who they are, and why."""

from __future__ import annotations

from laminar_delta.errors import InvalidInputError


def check_reason(what: str, reason: str) -> None:
    """Whoever looks at it later finds nothing else that says why. Raises `InvalidInputError` without a reason."""
    if not reason.strip():
        raise InvalidInputError(f"{what} needs a reason", expected="a reason", found=reason)
    check_said(reason=reason)


def storable(text: str) -> str:
    """A text of somebody else's that a table can keep: what UTF-8 cannot hold, as half of a character, is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def check_said(**texts: str | None) -> None:
    """Raises `InvalidInputError`, naming it, for a text that no table can keep: half of a character, as an argument that is
    not UTF-8 has them.
    """
    for name, text in texts.items():
        try:
            (text or "").encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"{name} {text!r} is no text that UTF-8 can hold: see character {error.start}",
                expected="UTF-8",
                found=ascii(text),
            ) from None
