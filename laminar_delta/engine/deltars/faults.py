"""The only place that knows delta-rs's exceptions: what each means to the caller, by class first and by text where it must.

delta-rs raises one class for every lost commit and plain `Exception` for what DataFusion could not read, so some cases are
told apart by words; `tests/embedded/test_faults.py` provokes each of them for real and fails when the words change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from laminar_delta.engine.deltars.process import check_not_forked
from laminar_delta.engine.settle import FenceRefused, OutcomeUnknown, WriteConflict
from laminar_delta.engine.sql import not_a_query
from laminar_delta.engine.unreachable import says_unreachable, unreachable
from laminar_delta.errors import (
    ErrorCode,
    FormatError,
    InvalidInputError,
    LaminarDeltaError,
    NotFoundError,
    StorageError,
)

_DRAWING = re.compile("\x1b\\[[0-9;]*m|↳")
_VERSION_WORDS = ("LogSegment end version", "Invalid table version", "No files in log segment", "before the earliest")
_QUERY_WORDS = (
    "SQL error: ",
    "Schema error: ",
    "Error during planning: ",
    "This feature is not implemented: ",
    # And what only the values show.
    "Arrow error: Divide by zero",
    "Arrow error: Cast error",
    "Arrow error: Arithmetic overflow",
)
_MISSING_FILE_WORDS = ("No such file or directory", "not found: No such", "Find missing file")


@contextmanager
def reading(table: str, version: int | None = None) -> Iterator[None]:
    """Translates what goes wrong while opening or reading."""
    check_not_forked()
    try:
        yield
    except BaseException as error:  # delta-rs panics are BaseException
        translated = _as_read_error(error, table, version)
        if translated is None:
            raise
        raise translated from error


@contextmanager
def answering(tables: Sequence[str], known: Sequence[str]) -> Iterator[None]:
    """Translates what goes wrong with a user's query over these tables. `known` is for the message."""
    check_not_forked()
    try:
        yield
    except BaseException as error:
        translated = _as_read_error(error, ", ".join(tables), None)
        if translated is None:
            raise
        text = _plain(error)
        if any(words in text for words in _QUERY_WORDS):
            raise not_a_query(text, known) from error
        raise translated from error


@contextmanager
def committing(table: str, *, may_still_land: bool) -> Iterator[None]:
    """Translates what goes wrong in a commit call into `settle`'s signals."""
    check_not_forked()
    try:
        yield
    except CommitFailedError as error:
        raise WriteConflict(_plain(error)) from error
    except SchemaMismatchError as error:
        raise InvalidInputError(f"rows do not fit table {table!r}: {_plain(error)}") from error
    except BaseException as error:
        if _is_ours(error) or not _is_foreign(error):
            raise
        raise OutcomeUnknown(_plain(error), may_still_land=may_still_land) from error


def _as_read_error(error: BaseException, table: str, version: int | None) -> LaminarDeltaError | None:
    if _is_ours(error) or not _is_foreign(error):
        return None
    text = _plain(error)
    if version is not None and any(words in text for words in _VERSION_WORDS):
        return NotFoundError(
            f"table {table!r} has no version {version} (any more)",
            code=ErrorCode.VERSION_GONE,
            expected=version,
            next_step="Ask for a version that `history` lists: older log entries are cleaned away.",
        )
    if isinstance(error, TableNotFoundError):
        return NotFoundError(f"there is no table {table!r}: {text}", found=text, next_step="Create the catalog first.")
    if isinstance(error, DeltaProtocolError):
        return FormatError(f"table {table!r} uses Delta features this engine does not read: {text}", found=text)
    if any(words in text for words in _MISSING_FILE_WORDS):
        return StorageError(
            f"a data file of table {table!r} is missing: {text}",
            code=ErrorCode.FILE_MISSING,
            found=text,
            next_step="Read an earlier version or another checkpoint; find out who removed the file.",
        )
    if says_unreachable(text):
        return unreachable(table, text)
    return StorageError(f"table {table!r} cannot be read: {text}", found=text)


def _plain(error: BaseException) -> str:
    """The error's words on one line: delta-rs draws its chain of causes as a coloured tree."""
    return " ".join(_DRAWING.sub(" ", str(error)).split())


def _is_ours(error: BaseException) -> bool:
    return isinstance(error, (LaminarDeltaError, FenceRefused, WriteConflict, OutcomeUnknown))


def _is_foreign(error: BaseException) -> bool:
    """Whether delta-rs or the system raised it. DataFusion's errors are bare `Exception`, Rust panics `PanicException`."""
    kind = type(error)
    return (
        isinstance(error, (DeltaError, OSError, ValueError)) or kind is Exception or kind.__name__ == "PanicException"
    )
