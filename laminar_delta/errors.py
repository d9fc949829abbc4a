"""The error tree: grouped by what the handler does, never by which part failed.

    LaminarDeltaError
    ├── ConflictError        someone else committed; read again, then decide
    │   └── FencedError      a newer generation holds the fence; stop, do not retry
    ├── CommitUnknownError   the outcome cannot be read back; read before doing anything
    ├── NotFoundError        (also KeyError) no such table, version, checkpoint or pipeline
    ├── InvalidInputError    (also ValueError) the call is wrong; nothing was written
    ├── CorruptionError      stored bytes are not what was written
    ├── FormatError          bytes in a form this version does not read
    ├── SessionStateError    used after its end, nested, or read-only
    ├── StorageError         a disk, an object store, Spark or Delta failed; cause attached
    └── NotInstalledError    (also ImportError) names the extra to install

Every error has a stable `code`, both sides of the comparison in `expected` and `found` where there was one, further facts in
`details`, and the next step in its text. Errors pickle with all of it, because they cross executors.
This module imports nothing of the package, so that everything can import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar


class ErrorCode(str, Enum):
    """Stable names for what went wrong: safe to match in code, logs and alerts. Append only; a code is never reused."""

    CONFLICT = "conflict"
    FENCED = "fenced"
    COMMIT_UNKNOWN = "commit-unknown"
    NOT_FOUND = "not-found"
    VERSION_GONE = "version-gone"
    INVALID_INPUT = "invalid-input"
    NUMBER_TOO_LARGE = "number-too-large"
    UNSUPPORTED = "unsupported"
    CORRUPTION = "corruption"
    CHECKSUM_MISMATCH = "checksum-mismatch"
    FILE_MISSING = "file-missing"
    FORMAT = "format"
    FORMAT_TOO_LARGE = "format-too-large"
    SESSION_STATE = "session-state"
    STORAGE = "storage"
    LOCKED = "locked"
    LOG_DAMAGED = "log-damaged"
    NOT_INSTALLED = "not-installed"
    UNREACHABLE = "unreachable"
    POSITION_UNAVAILABLE = "position-unavailable"

    def __str__(self) -> str:
        return self.value


class LaminarDeltaError(Exception):
    """Base of everything raised on purpose.

    `str(error)` reads `message. next step.`; handlers use the fields.
    """

    default_code: ClassVar[ErrorCode]
    default_next_step: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        expected: object = None,
        found: object = None,
        next_step: str | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.expected = expected
        """What the caller had or asked for."""
        self.found = found
        """What was there instead."""
        self.next_step = self.default_next_step if next_step is None else next_step
        self.details: dict[str, object] = dict(details or {})

    def __str__(self) -> str:
        text = self.message
        if self.next_step:
            text = f"{text.rstrip('.')}. {self.next_step}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the message alone and lose the keyword-only fields.
        return (_rebuild, (type(self), self.message, self._fields()))

    def _fields(self) -> dict[str, object]:
        return {
            "code": self.code,
            "expected": self.expected,
            "found": self.found,
            "next_step": self.next_step,
            "details": self.details,
        }


def _rebuild(kind: type[LaminarDeltaError], message: str, fields: dict[str, Any]) -> LaminarDeltaError:
    return kind(message, **fields)


class ConflictError(LaminarDeltaError):
    """Another commit came first. Nothing of this call was written."""

    default_code = ErrorCode.CONFLICT
    default_next_step = "Read the current state and decide again."


class FencedError(ConflictError):
    """A newer writer holds the fence: `expected` is what this caller held, `found` what stands now."""

    default_code = ErrorCode.FENCED
    default_next_step = "Stop this writer: another one took over. Do not retry."


class CommitUnknownError(LaminarDeltaError):
    """The commit may or may not have happened, and reading back could not tell; or it has, and what follows it could not
    be done: the text says which.
    """

    default_code = ErrorCode.COMMIT_UNKNOWN
    default_next_step = "Read back by the key in `details` once the storage answers, before doing anything else."


def is_certain(error: BaseException) -> bool:
    """Whether what a committing call raised says that nothing was committed: only an answer of ours does.

    Anything else may have come between the commit and its answer: an interrupt, or an `Exception` that a signal handler raised,
    as the time limits of task queues do. What was to be committed is then in doubt.
    """
    return isinstance(error, LaminarDeltaError) and not isinstance(error, CommitUnknownError)


class NotFoundError(LaminarDeltaError, KeyError):
    """What was asked for does not exist (any more)."""

    default_code = ErrorCode.NOT_FOUND
    default_next_step = "Check the name or number."

    # KeyError.__str__ would print the repr of the message.
    __str__ = LaminarDeltaError.__str__


class InvalidInputError(LaminarDeltaError, ValueError):
    """The call itself is wrong. Nothing was written."""

    default_code = ErrorCode.INVALID_INPUT
    default_next_step = "Correct the value and call again."


class CorruptionError(LaminarDeltaError):
    """Stored bytes are not the bytes that were written: `expected` and `found` are the two checksums or lengths."""

    default_code = ErrorCode.CORRUPTION
    default_next_step = "Recover from another checkpoint; keep the damaged file for examination."


class FormatError(LaminarDeltaError):
    """Bytes or documents in a form this version does not read."""

    default_code = ErrorCode.FORMAT
    default_next_step = "Check what wrote it; a newer format needs a newer laminar_delta."


class SessionStateError(LaminarDeltaError):
    """A session or builder was used outside its life."""

    default_code = ErrorCode.SESSION_STATE
    default_next_step = "Open a new one."


class StorageError(LaminarDeltaError):
    """A disk, an object store, Spark or Delta failed; the cause is chained."""

    default_code = ErrorCode.STORAGE
    default_next_step = "See the cause; the call can be repeated when the storage works again."


class NotInstalledError(LaminarDeltaError, ImportError):
    """An optional part is missing; the text names the extra that brings it."""

    default_code = ErrorCode.NOT_INSTALLED
    default_next_step = "Install the extra named above."
