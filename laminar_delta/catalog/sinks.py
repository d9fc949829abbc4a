"""Exactly-once sinks: what users supply, and the one place where their code is called.

A sink keeps what an epoch wrote invisible until it is told to show it. Between the two stands the catalog's save, the single
decision: an epoch with a saved checkpoint is to be shown, one without never is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar, runtime_checkable

from laminar_delta.errors import FormatError, InvalidInputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SinkEpoch:
    """An epoch as sinks know it. Under one generation a number is used once; a later generation may use it again.

    So a sink that tells epochs apart by the number alone can mistake a zombie's output for its successor's: name
    transactions, files and the like by `key`.
    """

    number: int
    generation: int
    """Of the writer that had it pre-committed."""

    @property
    def key(self) -> str:
        """A name for it, fit for files, in order of the numbers."""
        return f"{self.number:019}-{self.generation}"

    @classmethod
    def from_key(cls, key: str) -> SinkEpoch:
        """The epoch of a key. Raises `FormatError` for any other text."""
        number, _, generation = key.partition("-")
        if not (number.isdecimal() and generation.isdecimal()):
            raise FormatError(f"{key!r} is not the key of an epoch", expected="<number>-<generation>", found=key)
        return cls(number=int(number), generation=int(generation))


@runtime_checkable
class ExactlyOnceSink(Protocol):
    """A sink that shows an epoch's output once or not at all. Whatever it raises is taken as the failure of that call.

    It belongs to one pipeline. What is written to it belongs to the next epoch that is pre-committed.
    """

    @property
    def name(self) -> str:
        """Unique in the pipeline, and the same after a restart."""

    def pre_commit(self, epoch: SinkEpoch) -> None:
        """Makes durable, and keeps invisible, what was written. From here on `commit` has to be able to succeed."""

    def commit(self, epoch: SinkEpoch) -> None:
        """Shows a pre-committed epoch. Repeating it changes nothing."""

    def abort(self, epoch: SinkEpoch) -> None:
        """Drops the epoch's output unless it is shown already, and everything written since.

        What is dropped can never be shown any more: not by this process, and not by the late `commit` of another one that
        was paused. An epoch the sink never heard of is no error.
        """

    def landed(self, epoch: SinkEpoch) -> bool | None:
        """Whether the epoch is shown; None when the sink has no way to tell. An answer it cannot get now is an exception."""


@runtime_checkable
class RedrivableSink(ExactlyOnceSink, Protocol):
    """A sink whose pre-committed output outlives the process, so that another one can show or drop it.

    Any number of these deliver exactly once. Of sinks without this ability one is as safe, because it is committed first; with
    two, a crash between their commits leaves the first with output that is delivered again.
    """

    def prepared(self) -> Iterable[SinkEpoch]:
        """The epochs it holds pre-committed, by whichever process, neither shown nor dropped."""


class Step(str, Enum):
    """What a coordinator does to storage and sinks, one by one: the points at which a process can die."""

    SETTLE = "settle"
    """Makes final what became of a save whose answer was lost."""
    ASK = "ask"
    """Asks a sink what it has."""
    PRE_COMMIT = "pre-commit"
    SAVE = "save"
    COMMIT = "commit"
    RECORD = "record"
    """Writes down the statuses of a checkpoint's sinks."""
    ABORT = "abort"
    RECOVER = "recover"

    def __str__(self) -> str:
        return self.value


class When(str, Enum):
    """On which side of a step; `AFTER` whatever came of it."""

    BEFORE = "before"
    AFTER = "after"


Observe = Callable[[Step, When], None]
"""Told of each step as it is taken, from the thread that takes it. For tests and progress; what it raises is not caught."""


class Sinks:
    """The sinks of one pipeline, called together. What one raises is its answer and does not keep the others from theirs."""

    def __init__(self, sinks: Iterable[ExactlyOnceSink], observe: Observe | None, max_workers: int) -> None:
        self._observe = observe
        self._max_workers = max_workers
        self.by_name: dict[str, ExactlyOnceSink] = {}
        for sink in sinks:
            if not isinstance(sink, ExactlyOnceSink):
                raise InvalidInputError(
                    f"{type(sink).__name__} is no sink that delivers exactly once",
                    expected="name, pre_commit, commit, abort and landed",
                    found=type(sink).__name__,
                )
            if sink.name in self.by_name:
                raise InvalidInputError(
                    f"two sinks are called {sink.name!r}", expected="a name for each", found=sink.name
                )
            self.by_name[sink.name] = sink

    @contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """Tells the observer of a step."""
        if self._observe is not None:
            self._observe(step, When.BEFORE)
        yield
        if self._observe is not None:
            self._observe(step, When.AFTER)

    def each(
        self,
        step: Step,
        call: Callable[[ExactlyOnceSink], T],
        *,
        names: Iterable[str] | None = None,
        all_or_nothing: bool = False,
        most_once: bool = False,
    ) -> dict[str, T | Exception]:
        """Makes a call to all sinks, or to those named; the answers, or what was raised instead.

        Sinks that cannot be asked again after a crash come first: a crash before the others leaves those to be re-driven.

        Args:
            step: What the call is.
            call: The call.
            names: Which sinks; all by default.
            all_or_nothing: Do not go on after a failure; sinks that were not called are not in the answer.
            most_once: Do not go on after a failure of a sink that cannot be asked again: the others would have to show again
                what they show now.
        """

        def guarded(sink: ExactlyOnceSink) -> T | Exception:
            with self.step(step):
                return attempt(lambda: call(sink))

        chosen = [self.by_name[name] for name in (self.by_name if names is None else names)]
        answers: dict[str, T | Exception] = {}
        for redrivable in (False, True):
            turn = [sink for sink in chosen if isinstance(sink, RedrivableSink) is redrivable]
            for batch in [turn] if self._max_workers > 1 else [[sink] for sink in turn]:
                failed = [self.by_name[name] for name in raised(answers)]
                for_good = [sink for sink in failed if not isinstance(sink, RedrivableSink)]
                if (all_or_nothing and failed) or (most_once and for_good):
                    return answers
                answers.update(self._together(guarded, batch))
        return answers

    def prepared(self) -> dict[str, frozenset[SinkEpoch] | Exception]:
        """The epochs each sink holds, for the sinks that can tell."""
        names = [name for name, sink in self.by_name.items() if isinstance(sink, RedrivableSink)]
        return self.each(
            Step.ASK, lambda sink: frozenset(sink.prepared() if isinstance(sink, RedrivableSink) else ()), names=names
        )

    def abort(self, epoch: SinkEpoch, names: Iterable[str] | None = None) -> dict[str, Exception]:
        """Has sinks drop an epoch; those that failed."""
        return raised(self.each(Step.ABORT, lambda sink: sink.abort(epoch), names=names))

    def landed(self, epoch: SinkEpoch, name: str) -> bool | Exception | None:
        """Asks one sink."""
        return self.each(Step.ASK, lambda sink: sink.landed(epoch), names=[name])[name]

    def _together(self, call: Callable[[ExactlyOnceSink], T], batch: list[ExactlyOnceSink]) -> dict[str, T]:
        if len(batch) < 2:
            return {sink.name: call(sink) for sink in batch}
        with ThreadPoolExecutor(min(self._max_workers, len(batch))) as pool:
            return dict(zip((sink.name for sink in batch), pool.map(call, batch), strict=True))


def attempt(call: Callable[[], T]) -> T | Exception:
    """The answer to a call that runs users' code, or what was raised instead: either is an outcome."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - nobody can know what users' code raises
        return error


def raised(answers: Mapping[str, T | Exception]) -> dict[str, Exception]:
    """Of answers the exceptions."""
    return {name: answer for name, answer in answers.items() if isinstance(answer, Exception)}
