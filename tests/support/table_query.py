"""A query over Kafka into Delta tables, without a JVM: started again and again, killed or paused at any step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.catalog.sinks import Step, When
from laminar_delta.streaming import BatchResult, DeltaSink, restore_spark_checkpoint
from tests.support.stream_plans import DeltaFrame, Planned, numbers_in

FIRST_SHOWN = (Step.COMMIT, When.AFTER)


class KilledError(BaseException):
    """Ends a batch where it is."""


Wake = Callable[[], list[BaseException]]
"""Lets a driver go on, waits for its end, and says what it ended with."""


@dataclass
class Query:
    """A query over Kafka whose batch n is the number n+1, into two tables; each start has sinks of its own."""

    catalog: ld.Catalog
    home: Path
    names: tuple[str, ...] = ("out", "more")
    planned: Planned = field(init=False)

    def __post_init__(self) -> None:
        self.planned = self.at("first")

    def at(self, name: str, query_id: str | None = None) -> Planned:
        return Planned(self.home / name, query_id or name, offset=lambda batch: f'{{"orders":{{"0":{batch + 1}0}}}}')

    def again(self, checkpoint_id: int, name: str, *, new_query: bool | None = None) -> Planned:
        """A directory made from a checkpoint."""
        made = restore_spark_checkpoint(self.catalog, "orders", checkpoint_id, self.home / name, new_query=new_query)
        return self.at(name, made.query_id)

    def run(
        self, planned: Planned, batch: int, *numbers: int, at: Any = None, frames: Any = DeltaFrame, **options: Any
    ) -> BatchResult:
        """One start that comes to one batch, ended at a point if one is named; what `at` calls, is called there."""

        def observe(step: Any, when: When) -> None:
            if (step, when) == at:
                raise KilledError
            if callable(at):
                at(step, when)

        def to_all(frame: Any, batch: Any) -> Any:
            return dict.fromkeys(self.names, frame)

        frame = frames(*(numbers or (batch + 1,)))
        return planned.run(self.catalog, batch, frame, to_all, self.sinks(), observe=observe, **options)

    def sinks(self) -> list[DeltaSink]:
        """Those of one start."""
        return [DeltaSink(str(self.home / name)) for name in self.names]

    def partly(self) -> None:
        """Batch 0 is delivered, and of batch 1 only the first table was told to show it."""
        self.run(self.planned, 0)
        with pytest.raises(KilledError):
            self.run(self.planned, 1, at=FIRST_SHOWN)
        assert self.shown() == [[1, 2], [1]]

    def shown(self) -> list[list[int]]:
        return [numbers_in(str(self.home / name)) for name in self.names]

    def begin_nothing(self) -> None:
        """Batch 0 gives the tables nothing: they are not made."""
        self.planned.run(self.catalog, 0, DeltaFrame(), lambda frame, batch: None, self.sinks())

    @contextmanager
    def paused(
        self, at: tuple[Any, When], planned: Planned, batch: int, *numbers: int, **options: Any
    ) -> Iterator[Wake]:
        """A driver that has stopped at a step of a batch; let go on by what is given, or in the end."""
        reached, go_on = threading.Event(), threading.Event()
        errors: list[BaseException] = []

        def pause(step: Any, when: When) -> None:
            if (step, when) == at:
                reached.set()
                assert go_on.wait(60)

        def live() -> None:
            try:
                self.run(planned, batch, *numbers, at=pause, **options)
            except BaseException as error:  # noqa: BLE001 - told below
                errors.append(error)
                reached.set()

        def wake() -> list[BaseException]:
            go_on.set()
            thread.join()
            return errors

        thread = threading.Thread(target=live)
        thread.start()
        try:
            assert reached.wait(60)
            yield wake
        finally:
            wake()
