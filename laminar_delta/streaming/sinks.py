"""Sinks of micro-batches: what users supply for anything that is not a Delta table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from laminar_delta.catalog.sinks import ExactlyOnceSink, SinkEpoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from laminar_delta.streaming.batch import Written
    from laminar_delta.streaming.lines import Line


@runtime_checkable
class FrameSink(ExactlyOnceSink, Protocol):
    """An exactly-once sink that takes frames; see `ExactlyOnceSink` for the two phases.

    A batch that Spark runs again comes under a later generation, so under another `SinkEpoch.key`: the sink is asked first what
    it has of the earlier try, and told to drop what must not be shown. A sink whose pre-committed output outlives the process
    has `prepared` too (`RedrivableSink`). Of sinks without it, and other than Delta tables, a pipeline may have one.
    """

    def write(self, frame: DataFrame) -> None:
        """Takes what the next epoch that is pre-committed consists of; called once for it, or not at all."""


@runtime_checkable
class LineSink(FrameSink, Protocol):
    """A sink that tells batches apart by their line and number, so that a batch that comes again is recognised by itself."""

    def follow(
        self, spark: SparkSession, pipeline: str, line: Line | None, batches: Mapping[SinkEpoch, tuple[Line, int]]
    ) -> None:
        """Says what epochs are: those of earlier tries in `batches`; others are batches of `line`, one below their number.

        Raises:
            SessionStateError: It is the sink of another pipeline.
        """

    def close_line(self, line: Line) -> None:
        """Sees to it that nothing of a line that was left can be shown any more, by whichever process."""

    def outcome(self, epoch: SinkEpoch) -> Written:
        """What the commit of the last epoch came to."""


def in_order(sinks: Iterable[FrameSink]) -> tuple[FrameSink, ...]:
    """Sinks in the order they are to show a batch: those that recognise it when it comes again first.

    Then one that can neither recognise it nor be asked shows it only when they all have it, and a crash in between costs it
    nothing.
    """
    return tuple(sorted(sinks, key=lambda sink: not isinstance(sink, LineSink)))
