"""The only place that knows the exceptions of PySpark, py4j, gRPC and Delta on Spark, and what each means to the caller.

An error from the JVM arrives as a class of PySpark's, as one of Delta's, or as a bare `Py4JJavaError` whose text is the whole
Java stack trace, depending on which call met it. What they have in common is Spark's error condition in brackets, so that is
what is looked at, along the chain of causes. `tests/spark/test_faults.py` provokes each case for real and fails when the words
change.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
)
from pyspark.logger import PySparkLogger

from laminar_delta.engine.settle import FenceRefused, OutcomeUnknown, WriteConflict
from laminar_delta.engine.spark.merge import GUARD_FAILED
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

CONFLICTS = (
    # None inherits from the first, in spite of its name; Connect's and classic's inherit from these.
    DeltaConcurrentModificationException,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)

_CONDITION = re.compile(r"(?:^|[:\s])\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]", re.MULTILINE)

_CONFLICT_WORDS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_NO_TABLE = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_TABLE_ONLY_OPERATION",
    "PATH_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
)
_NO_CATALOG = ("CATALOG_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE")
"""Of a name in three parts the first is a catalog; Spark takes one it does not know for a schema of the current catalog."""
_NO_VERSION = (
    "DELTA_CANNOT_RESTORE_TABLE_VERSION",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
)
_NO_FILE = ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND")
_NOT_FITTING = (
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
    "DELTA_FAILED_TO_MERGE_FIELDS",
    "DELTA_METADATA_MISMATCH",
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    "DELTA_SCHEMA_CHANGED",
    "DELTA_VIOLATE_CONSTRAINT",
    "UNRESOLVED_COLUMN",
)
_NOT_POSSIBLE = (
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME",
    "DELTA_UNKNOWN_CONFIGURATION",
    "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED",
    "DELTA_ZORDERING_",
    "DELTA_ZORDER_",
)
"""Definitions and orders that Delta does not take."""
_NOT_READABLE_HERE = ("DELTA_INVALID_PROTOCOL_VERSION", "DELTA_UNSUPPORTED_FEATURES_FOR")
_NO_DELTA = (
    "DATA_SOURCE_NOT_FOUND",
    "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG",
    "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY",
)
_BEFORE_COMMIT = ("FAILED_READ_FILE", "TASK_WRITE_FAILED", "PARSE_SYNTAX_ERROR")
"""What goes wrong while files are read or written: the commit comes after that."""
_BEING_CREATED = (
    "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
    "DELTA_TABLE_ALREADY_EXISTS",
    "SCHEMA_ALREADY_EXISTS",
    "TABLE_OR_VIEW_ALREADY_EXISTS",
)

_QUERYS_FAULT = (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
)

_TEXT_LIMIT = 600


class GuardFailed(Exception):  # noqa: N818  # a signal inside this engine, never an answer
    """Signal: the guard of a fenced merge was false in the version that it read. Nothing was committed, its fence neither."""


@contextmanager
def reading(table: str, version: int | None = None) -> Iterator[None]:
    """Translates what goes wrong while opening or reading."""
    try:
        with quietly():
            yield
    except Exception as error:
        translated = _as_read_error(error, table, version)
        if translated is None:
            raise
        raise translated from error


@contextmanager
def answering(tables: Sequence[str], known: Sequence[str]) -> Iterator[None]:
    """Translates what goes wrong with a user's query over these tables. `known` is for the message."""
    try:
        with reading(", ".join(tables)):
            yield
    except LaminarDeltaError as error:
        cause = error.__cause__
        if isinstance(cause, _QUERYS_FAULT) and not _has(cause, "FAILED_READ_FILE", "DELTA_"):
            raise not_a_query(summary(cause), known) from error
        raise


@contextmanager
def committing(table: str, *, local: bool) -> Iterator[None]:
    """Translates what goes wrong in a commit call into `settle`'s signals.

    Args:
        table: The table's name.
        local: The commit is a file on this machine's disk: once the JVM has answered, nothing is under way.
    """
    try:
        with quietly():
            yield
    except Exception as error:
        if _is_ours(error) or not _is_foreign(error):
            raise
        text = summary(error)
        if _has(error, "USER_RAISED_EXCEPTION") and any(GUARD_FAILED in str(link) for link in _chain(error)):
            raise GuardFailed(text) from error
        if is_conflict(error):
            raise WriteConflict(text) from error
        if _has(error, *_NOT_FITTING):
            raise InvalidInputError(f"rows do not fit table {table!r}: {text}", found=text) from error
        if _has(error, *_NO_TABLE) and isinstance(error, AnalysisException):
            raise _no_table(table, text) from error
        finished = not _is_network(error) and (local or _has(error, *_BEFORE_COMMIT))
        raise OutcomeUnknown(text, may_still_land=not finished) from error


def is_conflict(error: BaseException) -> bool:
    """Whether another commit came between."""
    return any(isinstance(link, CONFLICTS) for link in _chain(error)) or _has(error, *_CONFLICT_WORDS)


def may_be_at_work(error: BaseException) -> bool:
    """Whether the JVM may go on committing after this error: the line broke, or Python was interrupted while it waited.

    What is neither an answer of the JVM nor a signal of ours came from elsewhere: Ctrl-C, or a signal handler.
    """
    return not (_is_ours(error) or _is_foreign(error)) or _is_network(error)


def being_created(error: BaseException) -> bool:
    """Whether someone else created the table meanwhile, or is at it."""
    return is_conflict(error) or _has(error, *_BEING_CREATED)


def summary(error: BaseException) -> str:
    """The words that say what went wrong, without the stack trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = next((line.removeprefix(": ") for line in lines if line and not line.startswith("An error occurred")), "")
    said = first or type(error).__name__
    if causes and causes[-1] not in said:
        said = f"{said} ({causes[-1]})"
    return said if len(said) <= _TEXT_LIMIT else f"{said[:_TEXT_LIMIT]}…"


def _as_read_error(error: Exception, table: str, version: int | None) -> LaminarDeltaError | None:
    if _is_ours(error) or not _is_foreign(error):
        return None
    text = summary(error)
    if version is not None and _has(error, *_NO_VERSION):
        return NotFoundError(
            f"table {table!r} has no version {version} (any more)",
            code=ErrorCode.VERSION_GONE,
            expected=version,
            found=text,
            next_step="Ask for a version that `history` lists: older log entries are cleaned away.",
        )
    if _has(error, *_NO_FILE):
        return StorageError(
            f"a data file of table {table!r} is missing: {text}",
            code=ErrorCode.FILE_MISSING,
            found=text,
            next_step="Read an earlier version or another checkpoint; find out who removed the file.",
        )
    if _has(error, *_NO_CATALOG):
        return InvalidInputError(
            f"Spark has no catalog of that name, for table {table!r}: {text}",
            expected="a schema, or a catalog that Spark knows and a schema",
            found=text,
            next_step="SHOW CATALOGS lists those Spark has used; spark.sql.catalog.<name> makes one known.",
        )
    if _has(error, *_NO_TABLE):
        return _no_table(table, text)
    if _has(error, *_NOT_POSSIBLE):
        return InvalidInputError(f"Delta does not take this for table {table!r}: {text}", found=text)
    if _has(error, *_NOT_READABLE_HERE):
        return FormatError(f"table {table!r} uses Delta features this Spark does not read: {text}", found=text)
    if _has(error, *_NO_DELTA):
        return InvalidInputError(
            f"the Spark session does not know Delta: {text}",
            code=ErrorCode.UNSUPPORTED,
            expected="spark.sql.extensions and spark.sql.catalog.spark_catalog set for Delta",
            found=text,
            next_step="Start Spark with delta-spark and its extension and catalog, or leave `spark` out.",
        )
    if _is_network(error) or says_unreachable(str(error)):
        return unreachable(table, text)
    return StorageError(f"table {table!r} cannot be read: {text}", found=text)


def _no_table(table: str, text: str) -> NotFoundError:
    return NotFoundError(f"there is no table {table!r}: {text}", found=text, next_step="Create the catalog first.")


def _has(error: BaseException, *conditions: str) -> bool:
    """Whether a link of the chain names a condition that begins with one of these."""
    return any(found.startswith(conditions) for link in _chain(error) for found in _CONDITION.findall(_own_text(link)))


def _own_text(error: BaseException) -> str:
    # Connect keeps the condition apart from the words; classic has it in the text.
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return f"[{condition}]\n{error}" if condition else str(error)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        # PySpark keeps the cause of a Java exception in an attribute of its own.
        error = getattr(error, "_cause", None) or error.__cause__


def _is_ours(error: BaseException) -> bool:
    return isinstance(error, (LaminarDeltaError, FenceRefused, WriteConflict, OutcomeUnknown, GuardFailed))


def _is_foreign(error: BaseException) -> bool:
    return isinstance(error, (PySparkException, Py4JError, OSError, EOFError)) or _is_grpc(error)


def _is_grpc(error: BaseException) -> bool:
    return any(kind.__module__.split(".", 1)[0] == "grpc" for kind in type(error).__mro__)


def _is_network(error: BaseException) -> bool:
    """Whether the line to the JVM or the server broke: it may be at work still."""
    return any(isinstance(link, (Py4JNetworkError, ConnectionError, EOFError)) for link in _chain(error)) or _is_grpc(
        error
    )


class _Quiet(threading.local):
    depth = 0


_quiet = _Quiet()


@contextmanager
def quietly() -> Iterator[None]:
    """Within, in this thread: PySpark does not log the errors it raises. Each is translated, and either handled or raised."""
    _quiet.depth += 1
    try:
        yield
    finally:
        _quiet.depth -= 1


def _is_wanted(record: logging.LogRecord) -> bool:  # noqa: ARG001  # the thread decides, not the record
    return _quiet.depth == 0


for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    # PySpark prints 10 KB of JSON for every SQL error to a handler of its own, conflicts included. Loggers pass everything
    # on as before outside of `quietly`.
    PySparkLogger.getLogger(_name).addFilter(_is_wanted)
