"""What Drasi's stores get wrong, one test for each quirk that concerns a store: here it is right.

More of Q-35 and Q-36 is in `test_starting.py`.
Q-37 is about reactions, which acknowledge before they deliver; no store can tell.
"""

import pytest

import laminar_delta as ld
from laminar_delta.errors import ConflictError, InvalidInputError, SessionStateError
from tests.sessions.support import EventError, StoreOpener, at, commits


def test_q30_sessions_are_objects_that_nobody_else_sees_or_commits(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    mine = store.session()
    mine.stage("kafka", 1, b"mine")
    other = open_store(generation=store.take_generation())
    assert other.read_all_checkpoints() == {}
    theirs = other.session()
    theirs.stage("files", 2, b"theirs")
    mine.rollback()
    # A stale commit does not commit somebody else's session.
    with pytest.raises(SessionStateError):
        mine.commit()
    assert store.read_all_checkpoints() == {}
    theirs.commit()
    assert store.read_all_checkpoints() == {"files": at(2, b"theirs")}


def test_q30_a_nested_part_that_fails_takes_only_itself_back(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("outer", 1)
        with pytest.raises(EventError), s.nested():
            s.stage("inner", 1)
            raise EventError
        s.stage("outer too", 1)
    assert store.read_all_checkpoints() == {"outer": at(1), "outer too": at(1)}


@pytest.mark.also_on_spark
def test_q31_nothing_goes_around_an_open_session(store: ld.SourceCheckpointStore, catalog: ld.Catalog) -> None:
    with store.session() as s:
        s.stage("kafka", 1)
        s.write_config_hash(5)
    before = commits(catalog)
    with pytest.raises(EventError), store.session() as s:
        for write in (
            store.clear_checkpoints,
            lambda: store.write_config_hash(6),
            lambda: store.stage_checkpoint("kafka", 2),
            lambda: store.write_result_sequence("q", 1),
        ):
            with pytest.raises(SessionStateError, match="write through it"):
                write()
        s.clear()
        s.write_config_hash(6)
        raise EventError
    assert commits(catalog) == before
    assert (store.read_all_checkpoints(), store.read_config_hash()) == ({"kafka": at(1)}, 5)


def test_q31_clearing_many_is_one_commit_that_happens_or_does_not(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    with store.session() as s:
        for number in range(50):
            s.stage(f"source {number}", number, b"x")
        s.write_config_hash(5)
    rival = open_store(generation=store.take_generation())
    clearing = rival.session()
    clearing.clear()
    store.stage_checkpoint("source 7", 70, b"y")
    with pytest.raises(ConflictError):
        clearing.commit()
    assert len(store.read_all_checkpoints()) == 50
    clearing.retry()
    assert (store.read_all_checkpoints(), store.read_config_hash()) == ({}, None)


def test_q32_what_is_added_and_removed_in_one_session_is_removed(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("kafka", 1, b"committed")
        s.stage("files", 1, b"committed")
    with store.session() as s:
        s.stage("kafka", 2, b"added")
        s.stage("kafka", 3, None)
        assert s.read("kafka") == at(3)
    assert store.read_checkpoint("kafka") == at(3)
    with store.session() as s:
        s.stage("files", 2, b"added")
        s.clear()
    assert store.read_all_checkpoints() == {}


def test_q33_an_event_that_failed_is_not_passed_over_in_silence(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("kafka", 1, b"1", after=0)
    with pytest.raises(EventError), store.session() as s:
        s.stage("kafka", 2, b"2", after=1)
        raise EventError
    with pytest.raises(ConflictError, match="stands at sequence 1, not at 2") as told, store.session() as s:
        s.stage("kafka", 3, b"3", after=2)
    assert (told.value.expected, told.value.found) == (2, 1)
    assert store.read_checkpoint("kafka") == at(1, b"1")
    with store.session() as s:
        s.stage("kafka", 2, b"2", after=1)
        s.advance("kafka", 3, after=2)
    assert store.read_checkpoint("kafka") == at(3, b"2")


def test_q33_a_second_try_asks_again_where_the_source_stands(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    store.stage_checkpoint("kafka", 1)
    first, second = store.session(), open_store(generation=store.take_generation()).session()
    first.stage("kafka", 2, after=1)
    second.stage("kafka", 2, after=1)
    first.commit()
    with pytest.raises(ConflictError, match="came first"):
        second.commit()
    with pytest.raises(ConflictError, match="stands at sequence 2, not at 1"):
        second.retry()


def test_q34_a_position_beyond_the_limit_keeps_the_last_good_one(store: ld.SourceCheckpointStore) -> None:
    store.stage_checkpoint("kafka", 1, b"good")
    too_long = b"x" * 65_537
    with store.session() as s:
        with pytest.raises(InvalidInputError):
            s.stage("kafka", 2, too_long)
        assert s.read("kafka") == at(1, b"good")
        # The event is processed all the same: its sequence moves on.
        s.advance("kafka", 2)
    assert store.read_checkpoint("kafka") == at(2, b"good")
    with store.session() as s:
        s.advance("new", 1)
        s.clear()
        s.advance("kafka", 3)
    assert store.read_all_checkpoints() == {"kafka": at(3)}


def test_q35_positions_without_a_hash_are_cleared_and_the_hash_written(
    persistent_store: ld.SourceCheckpointStore, catalog: ld.Catalog
) -> None:
    store = persistent_store
    store.stage_checkpoint("kafka", 7, b"old")
    before = commits(catalog)
    started = store.start(5)
    assert (started.resumed, dict(started.positions)) == (False, {})
    assert commits(catalog) == before + 1
    assert (store.read_all_checkpoints(), store.read_config_hash()) == ({}, 5)


def test_q36_clearing_takes_the_result_sequence_along(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("kafka", 1)
        s.write_result_sequence("q", 100)
        s.write_config_hash(5)
    store.clear_checkpoints()
    assert store.read_result_sequence("q") is None
    assert store.read_config_hash() is None


def test_q38_a_result_sequence_goes_on_from_where_it_was_and_never_back(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    store.write_result_sequence("q", 100)
    store.close()
    restarted = open_store()
    assert restarted.read_result_sequence("q") == 100
    with pytest.raises(ConflictError, match="go back from 100 to 1") as told:
        restarted.write_result_sequence("q", 1)
    assert (told.value.expected, told.value.found) == (1, 100)
    restarted.write_result_sequence("q", 100)
    restarted.write_result_sequence("q", 101)
    assert restarted.read_result_sequence("q") == 101
    with restarted.session() as s:
        s.clear()
        s.write_result_sequence("q", 1)
    assert restarted.read_result_sequence("q") == 1


def test_q38_a_second_try_does_not_lower_what_another_wrote(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    first, second = store.session(), open_store(generation=store.take_generation()).session()
    first.write_result_sequence("q", 20)
    second.write_result_sequence("q", 10)
    first.commit()
    with pytest.raises(ConflictError, match="came first"):
        second.commit()
    with pytest.raises(ConflictError, match="go back from 20 to 10"):
        second.retry()
    assert store.read_result_sequence("q") == 20
