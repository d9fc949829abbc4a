"""A batch that some sinks have and others do not: whoever comes next completes it, and gives nobody a record twice."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.catalog.sinks import SinkEpoch, Step, When
from laminar_delta.errors import ConflictError, StorageError
from laminar_delta.streaming import (
    BatchResult,
    BatchStep,
    Delivery,
    DeltaSink,
    Line,
    Written,
    files_read,
    restore_spark_checkpoint,
    starting_options,
)
from tests.support.stream_plans import DeltaFrame, FailingFrame, Planned, numbers_in

FOUND, WRITTEN = Written.FOUND, Written.WRITTEN
FIRST_SHOWN = (Step.COMMIT, When.AFTER)


class KilledError(BaseException):
    """Ends a batch where it is."""


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

        sinks = [DeltaSink(str(self.home / name)) for name in self.names]
        frame = frames(*(numbers or (batch + 1,)))
        return planned.run(self.catalog, batch, frame, to_all, sinks, observe=observe, **options)

    def partly(self) -> None:
        """Batch 0 is delivered, and of batch 1 only the first table was told to show it."""
        self.run(self.planned, 0)
        with pytest.raises(KilledError):
            self.run(self.planned, 1, at=FIRST_SHOWN)
        assert self.shown() == [[1, 2], [1]]

    def shown(self) -> list[list[int]]:
        return [numbers_in(str(self.home / name)) for name in self.names]


@pytest.fixture
def catalog() -> ld.Catalog:
    return ld.open_catalog("memory", engine="memory")


@pytest.fixture
def query(catalog: ld.Catalog, tmp_path: Path) -> Query:
    return Query(catalog, tmp_path)


def test_a_restored_directory_goes_on_under_the_query_whose_batch_a_table_has(query: Query) -> None:
    """By its number and query the table recognises the batch. Under a new id it would take it for another one."""
    query.partly()
    again = query.again(1, "again")
    assert again.query_id == query.planned.query_id
    completed = query.run(again, 1)
    assert (completed.delivery, completed.sinks) == (Delivery.REPLAYED_WRITTEN, {"out": FOUND, "more": WRITTEN})
    assert query.shown() == [[1, 2], [1, 2]]
    # Now the batch is there, and who goes back before it runs its number anew.
    assert query.again(1, "back").query_id != query.planned.query_id


def test_under_a_new_id_a_restored_query_does_not_give_a_table_what_it_has(query: Query) -> None:
    query.partly()
    again = query.again(1, "again", new_query=True)
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"'out' the records of checkpoint 2 .* again") as caught:
            query.run(again, 1)
        assert "new_query=False" in caught.value.next_step
        assert (caught.value.expected, caught.value.found) == ("first", again.query_id)
    assert query.shown() == [[1, 2], [1]]
    assert query.run(query.again(1, "as told", new_query=False), 1).sinks == {"out": FOUND, "more": WRITTEN}
    assert query.shown() == [[1, 2], [1, 2]]


def test_a_batch_that_no_table_has_is_run_under_a_new_id_too(query: Query) -> None:
    query.run(query.planned, 0)
    with pytest.raises(StorageError):
        query.run(query.planned, 1, frames=FailingFrame)
    assert query.run(query.again(1, "again", new_query=True), 1).delivery is Delivery.FRESH
    assert query.shown() == [[1, 2], [1, 2]]


def test_a_rewind_gives_up_what_a_table_has(query: Query) -> None:
    """Whoever rewinds takes the sinks back too: only he knows whether that was done."""
    query.partly()
    with query.catalog.writer("orders") as writer:
        number = writer.rewind(1, reason="again").checkpoint_id
    assert query.run(query.again(number, "again", new_query=True), 1).delivery is Delivery.FRESH
    assert query.shown() == [[1, 2, 2], [1, 2]]


def test_no_options_begin_behind_a_batch_that_a_table_has(query: Query) -> None:
    """The sinks were asked by a run that died before its function: one has the batch, and recovery passed over it."""
    query.partly()
    with pytest.raises(KilledError):
        query.run(query.planned, 1, at=(BatchStep.FUNCTION, When.BEFORE))
    for asked in (starting_options, files_read):
        with pytest.raises(ConflictError, match="sink 'out' has checkpoint 2, which was passed over") as caught:
            asked(query.catalog, "orders", "source-0")
        assert "once more in its own directory" in caught.value.next_step
        assert (caught.value.found, caught.value.details["sinks"]) == ([2], ["out"])
    # Options from before, or of a checkpoint that was named, are found out by the query they were given to.
    assert starting_options(query.catalog, "orders", "source-0", 1) == {"startingOffsets": '{"orders":{"0":10}}'}
    with pytest.raises(ConflictError, match=r"'out' the records of checkpoint 2 .* again"):
        query.run(query.at("second"), 0, 2, 3)
    assert query.shown() == [[1, 2], [1]]
    query.run(query.planned, 1)
    assert starting_options(query.catalog, "orders", "source-0") == {"startingOffsets": '{"orders":{"0":20}}'}
    query.run(query.at("third"), 0, 3)
    assert query.shown() == [[1, 2, 3], [1, 2, 3]]


def test_a_query_that_reads_everything_again_says_so(query: Query) -> None:
    query.partly()
    with pytest.raises(ConflictError):
        query.run(query.at("second"), 0, 1, 2)
    assert query.run(query.at("third"), 0, 1, 2, after_reset="fresh").delivery is Delivery.FRESH
    assert query.shown() == [[1, 1, 2, 2], [1, 1, 2]]


@pytest.mark.parametrize("at", [Step.SAVE, BatchStep.FUNCTION], ids=str)
@pytest.mark.parametrize("how", ["restored", "begun anew"])
def test_a_driver_that_was_paused_shows_its_batch_before_its_line_is_closed(
    catalog: ld.Catalog, tmp_path: Path, how: str, at: Any
) -> None:
    """The sinks were asked when it had not shown it yet. Nothing of the next line is shown before they were asked again."""
    query = Query(catalog, tmp_path, ("out",))
    query.run(query.planned, 0)
    paused, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def pause(step: Any, when: When) -> None:
        if (step, when) == (Step.COMMIT, When.BEFORE):
            paused.set()
            assert go_on.wait(60)

    def live() -> None:
        try:
            query.run(query.planned, 1, at=pause)
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    before = threading.Thread(target=live)
    before.start()
    assert paused.wait(60)

    def let_it(step: Any, when: When) -> None:
        if (step, when) == (at, When.AFTER):
            go_on.set()
            before.join()

    second = query.again(1, "second", new_query=True) if how == "restored" else query.at("second")
    batch = 1 if how == "restored" else 0
    for point in (let_it, None):  # also when it is started again
        with pytest.raises(ConflictError, match=r"sink.* checkpoint 2 .* again"):
            query.run(second, batch, 2, at=point)
    assert query.shown() == [[1, 2]]
    (error,) = errors
    assert isinstance(error, ld.FencedError)
    assert query.run(query.planned, 1).sinks == {"out": FOUND}


def test_what_is_shown_between_two_starts_is_found_before_the_line_is_closed(
    catalog: ld.Catalog, tmp_path: Path
) -> None:
    query = Query(catalog, tmp_path, ("out",))
    query.run(query.planned, 0)
    with pytest.raises(KilledError):
        query.run(query.planned, 1, at=(Step.COMMIT, When.BEFORE))
    second = query.again(1, "second", new_query=True)
    with pytest.raises(KilledError):
        query.run(second, 1, at=(BatchStep.FUNCTION, When.BEFORE))
    line = Line(pipeline="orders", query_id="first")
    late = DeltaSink(str(tmp_path / "out"))
    late.follow(DeltaFrame().sparkSession, "orders", line, {})  # type: ignore[arg-type]  # stands in for Spark's
    late.write(DeltaFrame(2))  # type: ignore[arg-type]
    epoch = SinkEpoch(number=2, generation=2)
    late.pre_commit(epoch)
    late.commit(epoch)
    with pytest.raises(ConflictError, match=r"'out' the records of checkpoint 2 .* again"):
        query.run(second, 1)
    assert query.shown() == [[1, 2]]
