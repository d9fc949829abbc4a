"""A driver that was only paused, and goes on when others have gone on in its place: nothing more of it is shown."""

from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.sinks import Step, When
from laminar_delta.errors import ConflictError, FencedError
from laminar_delta.streaming import Delivery
from laminar_delta.streaming.delta_sink import CLOSED
from tests.support.stream_plans import DeltaFrame, said_by
from tests.support.table_query import KilledError, Query

SHOWING = (Step.COMMIT, When.BEFORE)
SAVED = (Step.SAVE, When.AFTER)


@pytest.fixture
def catalog() -> ld.Catalog:
    return ld.open_catalog("memory", engine="memory")


@pytest.fixture
def query(catalog: ld.Catalog, tmp_path: Path) -> Query:
    return Query(catalog, tmp_path, ("out",))


def check_fenced(wake: Callable[[], list[BaseException]]) -> None:
    (error,) = wake()
    assert isinstance(error, FencedError)


def test_of_a_query_that_was_never_gone_on_from(query: Query) -> None:
    query.run(query.planned, 0)
    with query.paused(SHOWING, query.at("second"), 0, 1, 2, after_reset="fresh") as wake:
        assert query.run(query.at("third"), 0, 1, 2, after_reset="fresh").delivery is Delivery.FRESH
        check_fenced(wake)
    assert query.shown() == [[1, 1, 2]]


def test_of_a_restored_directory_when_another_one_goes_on(query: Query) -> None:
    query.run(query.planned, 0)
    with query.paused(SHOWING, query.again(1, "second", new_query=True), 1) as wake:
        assert query.run(query.again(1, "third", new_query=True), 1).delivery is Delivery.FRESH
        check_fenced(wake)
    assert query.shown() == [[1, 2]]


def test_of_a_restored_directory_when_the_first_query_goes_on_after_all(query: Query) -> None:
    """Its line was closed, and it is told to rewind."""
    query.run(query.planned, 0)
    with query.paused(SHOWING, query.again(1, "second", new_query=True), 1) as wake:
        with pytest.raises(ConflictError) as caught:
            query.run(query.planned, 1)
        assert "writer.rewind(1" in caught.value.next_step
        with query.catalog.writer("orders") as writer:
            writer.rewind(1, reason="as told")
        assert query.run(query.planned, 1).delivery is Delivery.FRESH
        check_fenced(wake)
    assert query.shown() == [[1, 2]]


def test_from_before_two_rewinds_of_which_the_first_came_to_nothing(query: Query) -> None:
    query.run(query.planned, 0)
    with query.paused(SHOWING, query.planned, 1) as wake:
        for at in (SAVED, None):
            with query.catalog.writer("orders") as writer:
                writer.rewind(1, reason="again")
            if at is None:
                assert query.run(query.planned, 1).delivery is Delivery.FRESH
            else:
                with pytest.raises(KilledError):
                    query.run(query.planned, 1, at=at)
        check_fenced(wake)
    assert query.shown() == [[1, 2]]


def test_that_was_fenced_off_before_it_closed_a_line_leaves_that_of_its_successor_open(query: Query) -> None:
    query.run(query.planned, 0)
    with query.paused(SAVED, query.again(1, "second", new_query=True), 1) as wake:
        assert query.run(query.planned, 1).delivery is Delivery.FRESH
        check_fenced(wake)
    assert query.run(query.planned, 2).delivery is Delivery.FRESH
    assert query.shown() == [[1, 2, 3]]


def test_of_a_first_batch_when_there_is_no_table_yet(query: Query) -> None:
    """The commit that closes its line makes the table."""
    with query.paused(SHOWING, query.planned, 0) as wake:
        assert query.run(query.at("second"), 0).delivery is Delivery.FRESH
        check_fenced(wake)
    assert query.shown() == [[1]]
    assert [one["batch"] for one in said_by(str(query.home / "out"))] == [CLOSED, 0]


def test_of_a_line_that_gave_the_table_nothing_when_the_next_one_does_not_either_at_first(query: Query) -> None:
    """As long as there is no table its line cannot be closed, which is made up for when the first rows come."""
    query.begin_nothing()
    with query.paused(SHOWING, query.planned, 1) as wake:
        second, sinks = query.at("second"), query.sinks()
        second.plan(0)
        second.plan(1)
        given = {0: None, 1: DeltaFrame(1, 2)}
        deliver = second.deliver(
            query.catalog, lambda frame, batch: given[batch.id], sinks, after_reset="fresh", observe=None
        )
        for batch in given:
            deliver(DeltaFrame(1), batch)  # type: ignore[arg-type]  # stands in for Spark's
        check_fenced(wake)
    assert query.shown() == [[1, 2]]


def test_that_is_back_when_nothing_is_delivered_is_told_to_begin_anew(query: Query) -> None:
    """There is no checkpoint to rewind to."""
    for planned in (query.planned, query.at("second")):
        with pytest.raises(KilledError):
            query.run(planned, 0, at=SHOWING)
    with pytest.raises(ConflictError, match="its line was closed") as caught:
        query.run(query.planned, 0)
    assert "begin it anew" in caught.value.next_step
    assert caught.value.details["checkpoint_id"] is None
    assert query.run(query.at("third"), 0, after_reset="fresh").delivery is Delivery.FRESH
    assert query.shown() == [[1]]
