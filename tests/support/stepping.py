"""Two sides of a race, stepped through it: one stops at a named call, the other runs, then the first goes on.

The real call is cut, nothing is replaced: only the stopped side's own thread stops there, everybody else passes. There is no
sleeping and no luck, so a test that passed once passes always.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar
from unittest.mock import patch

T = TypeVar("T")

STEPS = ("_append", "_commit_fence", "_merge", "_delete", "scan", "history")
"""The calls of an engine that read or write: all that one side of a race can see of the other happens in one of them."""

_DEADLOCK_S = 120
"""When to give up on a side that waits for what the other one holds: only a broken test gets here."""


class NeverCame(AssertionError):  # noqa: N818  # how a loop over all steps ends, no mistake
    """The side that was to be stopped ended first. At every step of something in turn: there are no more steps."""


class Side(Generic[T]):
    """One side of a race, in a thread of its own. What it came to is told by `result`, once it was let go on."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._at_gate, self._go_on, self._moved = threading.Event(), threading.Event(), threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def result(self) -> T:
        """What the work returned; raises what it raised."""
        assert not self._thread.is_alive(), "still at the gate: leave the `with` block first"
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # there is no error, so it is what the work returned

    @property
    def is_current(self) -> bool:
        """Whether this is the thread that runs the work."""
        return threading.current_thread() is self._thread

    def stop_here(self) -> None:
        """Called by the work's own thread: waits to be let go on."""
        self._at_gate.set()
        self._moved.set()
        assert self._go_on.wait(_DEADLOCK_S), "nobody let this side go on"

    def start(self) -> None:
        """Runs up to the gate. Fails when the work ends without having come to it."""
        self._thread.start()
        assert self._moved.wait(_DEADLOCK_S), "this side neither ended nor came to its gate"
        if not self._at_gate.is_set():
            self._thread.join()
            raise NeverCame("this side ended without coming to its gate") from self._error

    def finish(self) -> None:
        """Lets it go on, to its end."""
        self._go_on.set()
        self._thread.join(_DEADLOCK_S)
        assert not self._thread.is_alive(), "this side does not end"

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001  # handed over to whoever asks for the result
            self._error = error
        finally:
            self._moved.set()


@contextmanager
def stopped(
    work: Callable[[], T], owner: Any, *calls: str, table: str | None = None, after: bool = False, nth: int = 1
) -> Iterator[Side[T]]:
    """Runs `work` up to a call and holds it there while the block runs; at the block's end it goes on and ends.

    Args:
        work: The side that is stopped.
        owner: Whose call: an engine, or a class or module from below one.
        calls: Which, such as `_append`; whatever `owner` has. Several stand for any of them.
        table: Only calls for that table, which is their first argument.
        after: Stop when the call has been made and its answer is on the way, rather than before it.
        nth: At the how many-th such call.
    """
    side = Side(work)
    seen = 0
    inside = False

    def cut(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal seen, inside
        # What a call makes of the engine itself is part of it, under the lock it holds: nobody can come in between there.
        if inside or not side.is_current or (table is not None and args[0] != table):
            return real(*args, **kwargs)
        seen += 1
        here = seen == nth
        if here and not after:
            side.stop_here()
        inside = True
        try:
            answer = real(*args, **kwargs)
        finally:
            inside = False
        if here and after:
            side.stop_here()
        return answer

    with _cutting(owner, calls, cut):
        side.start()
        try:
            yield side
        finally:
            side.finish()


@contextmanager
def _cutting(owner: Any, calls: Sequence[str], cut: Callable[..., Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for call in calls:
            real = getattr(owner, call)

            def through(*args: Any, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
                return cut(real, *args, **kwargs)

            stack.enter_context(patch.object(owner, call, through))
        yield
