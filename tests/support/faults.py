"""Storage that fails at one table and one moment, on any engine: the real call, cut off before or after it happened."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from laminar_delta.engine.answer import HistoryEntry
from laminar_delta.engine.base import Engine
from laminar_delta.engine.settle import OutcomeUnknown, Settled
from laminar_delta.errors import ErrorCode, StorageError
from tests.support.stepping import NeverCame

_CATALOG = str(Path("laminar_delta", "catalog"))


@contextmanager
def failing_appends(engine: Engine, table: str) -> Iterator[None]:
    """Within: appends to the table fail before anything is written."""

    def refuse() -> int:
        raise StorageError(f"no space left for {table!r}")

    with _append_to(engine, table, lambda real: refuse()):
        yield


@contextmanager
def unanswered_appends(engine: Engine, table: str) -> Iterator[list[Callable[[], int]]]:
    """Within: appends to the table are under way and nobody hears of them. Calling what is yielded lets them arrive, late."""
    late: list[Callable[[], int]] = []

    def hold(real: Callable[[], int]) -> int:
        late.append(real)
        raise OutcomeUnknown("the line went dead", may_still_land=True)

    with _append_to(engine, table, hold):
        yield late


@contextmanager
def unheard_appends(engine: Engine, table: str) -> Iterator[None]:
    """Within: appends to the table happen, their answer is lost, and the log cannot be read to find out."""

    def lose(real: Callable[[], int]) -> int:
        real()
        raise OutcomeUnknown("the line went dead", may_still_land=True)

    with _append_to(engine, table, lose), patch.object(engine, "history", side_effect=StorageError("no log")):
        yield


class TimeLimit(Exception):  # noqa: N818  # named as task queues name theirs: it is no error of ours
    """What task queues raise from a signal handler when a task's time is up: an `Exception`, and as sudden as an interrupt."""


INTERRUPTS = [KeyboardInterrupt, TimeLimit]


@contextmanager
def interrupted_appends(engine: Engine, table: str, error: type[BaseException]) -> Iterator[None]:
    """Within: appends to the table happen, and the error comes in place of their answer."""

    def interrupt(real: Callable[[], int]) -> int:
        real()
        raise error

    with _append_to(engine, table, interrupt):
        yield


@contextmanager
def interrupted_after_append(
    engine: Engine, table: str, place: int, error: type[BaseException] = KeyboardInterrupt
) -> Iterator[None]:
    """Within: the error comes at one of the places where a signal can, once an append to the table is answered: at the begin
    and at the end of each function of the catalog that this thread runs.

    Raises:
        NeverCame: There are not so many.
    """
    before, left = sys.gettrace(), place
    answered = False

    def answer(real: Callable[[], int]) -> int:
        nonlocal answered
        version = real()
        answered = True
        return version

    def step(frame: FrameType, event: str, given: Any) -> Any:  # a trace function is given it
        nonlocal left
        if _CATALOG not in frame.f_code.co_filename:
            return None
        # What a generator yields to is no end.
        if answered and (event == "call" or (event == "return" and not frame.f_code.co_flags & CO_GENERATOR)):
            left -= 1
            if left == 0:
                raise error
        frame.f_trace_lines = False
        return step

    try:
        with _append_to(engine, table, answer):
            sys.settrace(step)
            yield
    finally:
        sys.settrace(before)
    if left > 0:
        raise NeverCame


@contextmanager
def unreadable(engine: Engine, table: str, *, code: ErrorCode = ErrorCode.STORAGE) -> Iterator[None]:
    """Within: the table cannot be read; nor its log, where its place does not answer at all."""
    real, told = engine.scan, engine.history

    def scan(name: str, **arguments: Any) -> pa.RecordBatchReader:
        if name == table:
            raise StorageError(f"table {name!r} cannot be read", code=code)
        return real(name, **arguments)

    def history(name: str, **arguments: Any) -> list[HistoryEntry]:
        if name == table and code is ErrorCode.UNREACHABLE:
            raise StorageError(f"table {name!r} cannot be read", code=code)
        return told(name, **arguments)

    with patch.object(engine, "scan", scan), patch.object(engine, "history", history):
        yield


@contextmanager
def unreadable_after_appends(
    engine: Engine, table: str, *, times: int, error: type[BaseException] = StorageError
) -> Iterator[None]:
    """Within: once an append to the table was answered, the next reads of it fail, so many times."""
    real = engine.scan
    left = 0

    def answer(append: Callable[[], int]) -> int:
        nonlocal left
        version = append()
        left = times
        return version

    def scan(name: str, **arguments: Any) -> pa.RecordBatchReader:
        nonlocal left
        if name == table and left:
            left -= 1
            raise error(f"table {name!r} cannot be read")
        return real(name, **arguments)

    with _append_to(engine, table, answer), patch.object(engine, "scan", scan):
        yield


@contextmanager
def failing_merges(engine: Engine, table: str) -> Iterator[None]:
    """Within: merges into the table fail before anything is written."""

    def refuse() -> Settled:
        raise StorageError(f"no space left for {table!r}")

    with _calls(engine, "_merge", table, lambda real: refuse()):
        yield


@contextmanager
def unanswered_merges(engine: Engine, table: str) -> Iterator[list[Callable[[], Settled]]]:
    """Within: merges into the table are under way and nobody hears of them. Calling what is yielded lets them arrive, late."""
    late: list[Callable[[], Settled]] = []

    def hold(real: Callable[[], Settled]) -> Settled:
        late.append(real)
        raise OutcomeUnknown("the line went dead", may_still_land=True)

    with _calls(engine, "_merge", table, hold):
        yield late


@contextmanager
def unheard_merges(engine: Engine, table: str) -> Iterator[None]:
    """Within: merges into the table happen, their answer is lost, and the log cannot be read to find out."""

    def lose(real: Callable[[], Settled]) -> Settled:
        real()
        raise OutcomeUnknown("the line went dead", may_still_land=True)

    with _calls(engine, "_merge", table, lose), patch.object(engine, "history", side_effect=StorageError("no log")):
        yield


@contextmanager
def _append_to(engine: Engine, table: str, react: Callable[[Callable[[], int]], int]) -> Iterator[None]:
    with _calls(engine, "_append", table, react):
        yield


@contextmanager
def _calls(engine: Engine, method: str, table: str, react: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    real = getattr(engine, method)

    def call(name: str, *arguments: Any) -> Any:
        return react(lambda: real(name, *arguments)) if name == table else real(name, *arguments)

    with patch.object(engine, method, call):
        yield
