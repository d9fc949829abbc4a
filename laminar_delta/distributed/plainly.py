"""Errors of tasks as errors of ours: Spark hands on their text, inside an error of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from laminar_delta.errors import CorruptionError, InvalidInputError, LaminarDeltaError, NotFoundError, StorageError

_KINDS: tuple[type[LaminarDeltaError], ...] = (CorruptionError, InvalidInputError, NotFoundError, StorageError)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Within: what goes wrong in tasks that load state is raised as what it is, and not as Spark's `PythonException`.

    A frame is loaded when something is done with it, so put that inside: `frame.collect()`, or a write. Other errors of Spark's
    stay as they are.

    Raises:
        CorruptionError: A state is not what was saved; the words name operator, partition, checkpoint and chunk.
        InvalidInputError: A state that deltas make does not fit into a cell.
        NotFoundError: The function that applies a delta is not known.
        StorageError: Storage does not answer.
    """
    try:
        yield
    except PySparkException as error:
        line = last_line(error)
        for kind in _KINDS:
            _, named, words = line.partition(f"{kind.__module__}.{kind.__name__}: ")
            if named:
                # The words have their next step already.
                raise kind(words, next_step="") from error
        raise


def last_line(error: Exception) -> str:
    """The last line of an error's text that names an error: what was raised last in the task."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line]
    return (named or lines)[-1]
