"""Storage that does not answer, told from storage that answers with damage: by the system's own words, alike on all engines.

The difference matters to recovery: a checkpoint whose file has rotted is passed over for good, one that a network or a
permission keeps from being read now is not.
"""

from __future__ import annotations

from laminar_delta.errors import ErrorCode, StorageError

_WORDS = (
    "connection refused",
    "connection reset",
    "connection closed",
    "error sending request",
    "dns error",
    "unknownhostexception",
    "network is unreachable",
    "no route to host",
    "timed out",
    "timeout",
    "permission denied",
    "access denied",
    "accessdenied",
    "accesscontrolexception",
    "403 forbidden",
    "401 unauthorized",
    "status: 503",
    "503 service unavailable",
    "slowdown",
    "too many open files",
    "cannot allocate memory",
)


def says_unreachable(text: str) -> bool:
    """Whether an error's words are about reaching the data, and not about the data."""
    lower = text.lower()
    return any(words in lower for words in _WORDS)


def unreachable(table: str, text: str) -> StorageError:
    """The error for it."""
    return StorageError(
        f"table {table!r} cannot be reached: {text}",
        code=ErrorCode.UNREACHABLE,
        found=text,
        next_step="Mend the connection or the permission and try again: nothing is known to be lost.",
    )
