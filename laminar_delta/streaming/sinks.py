"""Sinks of micro-batches: what users supply for anything that is not a Delta table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from laminar_delta.catalog.sinks import ExactlyOnceSink, RedrivableSink, SinkEpoch
from laminar_delta.errors import InvalidInputError
from laminar_delta.streaming.batch import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from laminar_delta.streaming.lines import Line


CLOSED_LINE = "closed_line"
"""Among the details of a sink's `ConflictError`, the line of which it takes nothing any more."""
MAY_HAVE = "may_have_it"
"""The same, whether the sink may have the batch from an earlier try all the same."""


@runtime_checkable
class FrameSink(ExactlyOnceSink, Protocol):
    """An exactly-once sink that takes frames; see `ExactlyOnceSink` for the two phases.

    A batch that Spark runs again comes under a later generation, so under another `SinkEpoch.key`: the sink is asked first what
    it has of the earlier try, and told to drop what must not be shown. A sink whose pre-committed output outlives the process
    has `prepared` too (`RedrivableSink`). Of sinks without it, and other than Delta tables, a pipeline may have one. Where its
    `landed` answers None, it may be given a batch twice, which is warned of.
    """

    def write(self, frame: DataFrame) -> None:
        """Takes what the next epoch that is pre-committed consists of; called once for it, or not at all."""


@runtime_checkable
class LineSink(FrameSink, Protocol):
    """A sink that tells batches apart by their line and number, so that a batch that comes again is recognised by itself."""

    def follow(
        self,
        spark: SparkSession,
        pipeline: str,
        line: Line | None,
        batches: Mapping[SinkEpoch, tuple[Line, int]],
        *,
        tried: Collection[tuple[Line, int]] = (),
        may_be_closed: bool = False,
    ) -> None:
        """Says what epochs are: those of earlier tries in `batches`; others are batches of `line`, one below their number.

        It may have the batches in `tried` from an earlier try. With `may_be_closed` others went on in the place of that line
        after it had begun, and may have closed it.

        Raises:
            SessionStateError: It is the sink of another pipeline.
        """

    def close_line(self, line: Line) -> bool:
        """Sees to it that nothing of a line that was left can be shown any more, by whichever process. Safe to repeat.

        Returns:
            Whether that is so now. If not, there is nowhere to say it yet: it is called again with the next batch, after
            `pre_commit` and before `commit`.

        A `commit` of a batch of that line is a `ConflictError` from then on, unless the sink has the batch.
        """

    def outcome(self, epoch: SinkEpoch) -> Written:
        """What the commit of the last epoch came to."""


def check_sinks(sinks: Iterable[object]) -> None:
    """Refuses what is no sink of batches, two of one name, and two that can neither recognise a batch nor show it later.

    Before a driver that is running is fenced off for it.

    Raises:
        InvalidInputError: One of them is not as it has to be.
    """
    seen: set[str] = set()
    plain: list[str] = []
    for sink in sinks:
        if not isinstance(sink, FrameSink):
            raise InvalidInputError(
                f"{type(sink).__name__} is no sink of batches",
                expected="name, write, pre_commit, commit, abort and landed",
                found=type(sink).__name__,
                next_step="Give a `DeltaSink`, or an object that has all of these.",
            )
        if sink.name in seen:
            raise InvalidInputError(
                f"two sinks are called {sink.name!r}",
                expected="a name for each",
                found=sink.name,
                next_step="Name them: a `DeltaSink` without `name` is called like its table.",
            )
        seen.add(sink.name)
        if not isinstance(sink, LineSink | RedrivableSink):
            plain.append(sink.name)
    if len(plain) > 1:
        raise InvalidInputError(
            f"sinks {plain[0]!r} and {plain[1]!r} can neither be asked after a crash nor recognise a batch: after a "
            "crash between them the first would be given it twice",
            expected="one such sink at most",
            found=plain,
            next_step="Give all but one of them `prepared`, with output that outlives the process (`RedrivableSink`), or let "
            "one sink write to both places.",
        )


def addressed(output: Any, sinks: Sequence[FrameSink], pipeline: str) -> dict[str, DataFrame]:
    """What a function gave, by the names of the sinks it is for.

    Args:
        output: A frame for the one sink, or frames by name, or nothing; None under a name is nothing too.
        sinks: All there are.
        pipeline: Whose, for messages.

    Raises:
        InvalidInputError: It does not say for which of several, or names one that is not there.
    """
    names = sorted(sink.name for sink in sinks)
    if output is None:
        return {}
    if not isinstance(output, Mapping):
        if len(names) != 1:
            raise InvalidInputError(
                f"the function gave one frame, and pipeline {pipeline!r} has {len(names)} sinks",
                expected=f"frames by name: {', '.join(names) or 'none'}",
                found=type(output).__name__,
            )
        return {names[0]: output}
    unknown = sorted(set(output) - set(names))
    if unknown:
        raise InvalidInputError(
            f"the function gave a frame for sink {unknown[0]!r}, which pipeline {pipeline!r} does not have",
            expected=names,
            found=unknown,
            next_step="Give `foreach_batch` that sink.",
        )
    return {name: frame for name, frame in output.items() if frame is not None}


def in_order(sinks: Iterable[FrameSink]) -> tuple[FrameSink, ...]:
    """Sinks in the order they are to show a batch: those that recognise it when it comes again first.

    Then one that can neither recognise it nor be asked shows it only when they all have it, and a crash in between costs it
    nothing.
    """
    return tuple(sorted(sinks, key=lambda sink: not isinstance(sink, LineSink)))


def outcome_of(sink: FrameSink, epoch: SinkEpoch, *, is_given: bool) -> Written:
    """What a delivered batch came to in a sink."""
    if isinstance(sink, LineSink):
        return sink.outcome(epoch)
    return Written.WRITTEN if is_given else Written.NOTHING
