"""A batch that some sinks have and others do not: whoever comes next completes it, and gives nobody a record twice."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.catalog.sinks import SinkEpoch, Step, When
from laminar_delta.errors import ConflictError, StorageError
from laminar_delta.streaming import BatchStep, Delivery, DeltaSink, Line, Written, files_read, starting_options
from tests.support.damage import data_files
from tests.support.stream_plans import DeltaFrame, FailingFrame
from tests.support.table_query import FIRST_SHOWN, KilledError, Query

FOUND, WRITTEN = Written.FOUND, Written.WRITTEN


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


def test_a_first_batch_that_a_table_has_is_not_given_to_it_again(query: Query) -> None:
    """Nothing of the pipeline is delivered yet: also then it is the query that was before that completes the batch."""
    with pytest.raises(KilledError):
        query.run(query.planned, 0, at=FIRST_SHOWN)
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"'out' the records of checkpoint 1 .* from no checkpoint") as caught:
            query.run(query.at("second"), 0, 1)
        assert "Run query first once more" in caught.value.next_step
        assert "rewind" not in caught.value.next_step
        assert (caught.value.expected, caught.value.found) == ("first", "second")
    assert query.run(query.planned, 0).sinks == {"out": FOUND, "more": WRITTEN}
    assert query.shown() == [[1], [1]]


def test_a_first_batch_that_a_table_has_is_read_again_by_who_says_so(query: Query) -> None:
    with pytest.raises(KilledError):
        query.run(query.planned, 0, at=FIRST_SHOWN)
    assert query.run(query.at("second"), 0, 1, after_reset="fresh").delivery is Delivery.FRESH
    assert query.shown() == [[1, 1], [1]]


def test_who_starts_over_above_damage_is_not_kept_from_it_by_what_was_delivered(tmp_path: Path) -> None:
    query = Query(ld.open_catalog(tmp_path / "catalog"), tmp_path)
    query.run(query.planned, 0)
    (offsets,) = data_files(query.catalog.reading.engine, "source_offsets")
    with offsets.missing():
        for at in ((BatchStep.FUNCTION, When.BEFORE), None):  # also when it is started again
            with pytest.raises(KilledError) if at else nullcontext():
                query.run(query.at("second"), 0, 1, at=at, start_over=True)
    assert query.shown() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("at", [Step.SAVE, BatchStep.FUNCTION], ids=str)
@pytest.mark.parametrize("how", ["restored", "begun anew"])
def test_a_driver_that_was_paused_shows_its_batch_before_its_line_is_closed(
    catalog: ld.Catalog, tmp_path: Path, how: str, at: Any
) -> None:
    """The sinks were asked when it had not shown it yet. Nothing of the next line is shown before they were asked again."""
    query = Query(catalog, tmp_path, ("out",))
    query.run(query.planned, 0)
    with query.paused((Step.COMMIT, When.BEFORE), query.planned, 1) as wake:

        def let_it(step: Any, when: When) -> None:
            if (step, when) == (at, When.AFTER):
                wake()

        second = query.again(1, "second", new_query=True) if how == "restored" else query.at("second")
        batch = 1 if how == "restored" else 0
        for point in (let_it, None):  # also when it is started again
            with pytest.raises(ConflictError, match=r"sink.* checkpoint 2 .* again"):
                query.run(second, batch, 2, at=point)
        assert query.shown() == [[1, 2]]
        (error,) = wake()
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
