"""How sessions end: what is visible is never told as rolled back, and nothing is committed after the store was closed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

import laminar_delta as ld
from laminar_delta.catalog.sessions import Session, SessionState
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.errors import CommitUnknownError, ConflictError, FencedError, SessionStateError, StorageError
from tests.sessions.support import EventError, Opener, StoreOpener, at
from tests.support.faults import INTERRUPTS, failing_merges, unanswered_merges


@contextmanager
def _interrupted(store: ld.SourceCheckpointStore, error: type[BaseException]) -> Iterator[None]:
    """Within: a merge is made, and Ctrl-C comes before its answer, or what a task's time limit raises."""
    engine = store.session()._engine
    real = engine.merge

    def merge(*given: Any, **named: Any) -> object:
        real(*given, **named)
        raise error

    with patch.object(engine, "merge", merge):
        yield


@pytest.mark.parametrize("error", INTERRUPTS)
@pytest.mark.parametrize("in_block", [True, False])
def test_an_interrupted_commit_is_in_doubt_and_not_rolled_back(
    store: ld.SourceCheckpointStore, in_block: bool, error: type[BaseException]
) -> None:
    store.take_generation()
    with _interrupted(store, error), pytest.raises(error):
        if in_block:
            with store.session() as s:
                s.stage("kafka", 1, b"1")
        else:
            s = store.session()
            s.stage("kafka", 1, b"1")
            s.commit()
    assert store.read_all_checkpoints() == {"kafka": at(1, b"1")}
    with pytest.raises(SessionStateError, match="is in doubt: what may be committed cannot be undone"):
        s.rollback()
    assert s.retry().replayed
    assert s.state is SessionState.COMMITTED


def test_a_commit_that_is_interrupted_once_it_is_answered_is_in_doubt_too(
    store: ld.SourceCheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = [KeyboardInterrupt()]

    def interrupted(self: Session, name: str, value: object) -> None:
        if value is SessionState.COMMITTED and interrupts:
            raise interrupts.pop()
        object.__setattr__(self, name, value)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "__setattr__", interrupted)
        with pytest.raises(KeyboardInterrupt), store.session() as s:
            s.stage("kafka", 1, b"1")
    assert store.read_all_checkpoints() == {"kafka": at(1, b"1")}
    assert s.state is SessionState.IN_DOUBT
    assert s.retry().replayed


def test_storage_that_fails_at_the_end_of_a_block_does_not_keep_the_thread_out(
    open_again: Opener, pipeline: str
) -> None:
    catalog = open_again()
    store = ld.SourceCheckpointStore(catalog, pipeline)
    store.take_generation()
    with failing_merges(catalog.engine, SOURCE_CHECKPOINTS.name), pytest.raises(StorageError), store.session() as s:
        s.stage("kafka", 1)
    assert s.state is SessionState.UNCOMMITTED
    with pytest.raises(SessionStateError, match="`retry`"):
        s.stage("kafka", 2)
    # The session is still held here, and is in nobody's way.
    store.stage_checkpoint("files", 1)
    with store.session() as other:
        other.stage("clock", 1)
    s.retry()
    assert store.read_all_checkpoints() == {"kafka": at(1), "files": at(1), "clock": at(1)}


def test_a_block_whose_store_was_closed_does_not_end_as_if_it_had_committed(open_store: StoreOpener) -> None:
    store = open_store()
    with pytest.raises(SessionStateError, match="nothing that it staged is committed") as told, store.session() as s:
        s.stage("kafka", 1)
        store.close()
    assert told.value.found == "rolled back"
    assert s.state is SessionState.ROLLED_BACK
    # What its own code raised is told, and what its user rolled back, or never staged, is no loss.
    store = open_store()
    with pytest.raises(EventError), store.session() as s:
        s.stage("kafka", 1)
        store.close()
        raise EventError
    store = open_store()
    with store.session() as s:
        s.stage("kafka", 1)
        s.rollback()
        store.close()
    store = open_store()
    with store.session():
        store.close()
    assert open_store().read_all_checkpoints() == {}


def test_a_session_whose_block_was_left_uncommitted_is_rolled_back_or_closed(
    open_again: Opener, open_store: StoreOpener, pipeline: str
) -> None:
    catalog = open_again()
    store = ld.SourceCheckpointStore(catalog, pipeline)
    store.take_generation()
    left = []
    for _ in range(2):
        with failing_merges(catalog.engine, SOURCE_CHECKPOINTS.name), pytest.raises(StorageError), store.session() as s:
            s.stage("kafka", 1)
        left.append(s)
    left[0].rollback()
    store.close()
    for one in left:
        assert one.state is SessionState.ROLLED_BACK
        with pytest.raises(SessionStateError, match="rolled back"):
            one.retry()
    assert open_store().read_all_checkpoints() == {}


def test_a_start_that_storage_failed_can_be_tried_again_while_its_error_is_kept(
    open_again: Opener, pipeline: str
) -> None:
    catalog = open_again()
    store = ld.SourceCheckpointStore(catalog, pipeline)
    store.take_generation()
    with patch.object(type(catalog.engine), "persistent", True):
        with failing_merges(catalog.engine, SOURCE_CHECKPOINTS.name), pytest.raises(StorageError) as kept:
            store.start(5)
        assert not store.start(5).resumed
        store.stage_checkpoint("kafka", 1)
        assert store.start(5).resumed
    assert "no space" in str(kept.value)


def test_a_block_left_inside_a_nested_part_commits_nothing(store: ld.SourceCheckpointStore) -> None:
    with pytest.raises(SessionStateError, match="nested part open"), store.session() as s:
        part = s.nested()
        part.__enter__()
        s.stage("kafka", 1)
    with pytest.raises(SessionStateError, match="nested part open"):
        s.retry()
    part.__exit__(None, None, None)
    s.retry()
    assert store.read_all_checkpoints() == {"kafka": at(1)}


def test_closing_a_store_rolls_back_what_was_not_committed(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    opened = store.session()
    opened.stage("kafka", 1)
    store.close()
    assert opened.state is SessionState.ROLLED_BACK
    with pytest.raises(SessionStateError, match="rolled back"):
        opened.commit()
    assert open_store().read_all_checkpoints() == {}


def test_closing_a_store_ends_a_session_that_lost(store: ld.SourceCheckpointStore, open_store: StoreOpener) -> None:
    other = open_store(generation=store.take_generation())
    lost, won = store.session(), other.session()
    lost.stage("kafka", 1)
    won.stage("files", 1)
    won.commit()
    with pytest.raises(ConflictError):
        lost.commit()
    store.close()
    with pytest.raises(SessionStateError, match="rolled back"):
        lost.retry()
    assert other.read_all_checkpoints() == {"files": at(1)}


def test_a_session_that_is_committing_is_not_rolled_back_by_closing(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be told that it is committed, and there would be nothing."""
    s = store.session()
    s.stage("kafka", 1)
    arrived = threading.Event()
    closing = threading.Thread(target=store.close)
    close, commit = Session.close, Session._commit

    def arrive(self: Session) -> None:
        arrived.set()
        close(self)

    def while_closing(self: Session) -> object:
        closing.start()
        arrived.wait()
        return commit(self)

    monkeypatch.setattr(Session, "close", arrive)
    monkeypatch.setattr(Session, "_commit", while_closing)
    assert s.commit().version is not None
    closing.join()
    assert s.state is SessionState.COMMITTED
    assert open_store().read_all_checkpoints() == {"kafka": at(1)}


def test_a_session_in_doubt_whose_store_is_closed_is_only_looked_for(
    open_again: Opener, open_store: StoreOpener, pipeline: str
) -> None:
    catalog = open_again()

    def in_doubt(store: ld.SourceCheckpointStore) -> tuple[Session, list[Any]]:
        s = store.session()
        s.stage("kafka", 1)
        with unanswered_merges(catalog.engine, SOURCE_CHECKPOINTS.name) as late, pytest.raises(CommitUnknownError):
            s.commit()
        store.close()
        return s, late

    landed, late = in_doubt(ld.SourceCheckpointStore(catalog, pipeline))
    with pytest.raises(SessionStateError, match="not committed by now, and its store is closed"):
        landed.retry()
    # It may be under way still.
    assert landed.state is SessionState.IN_DOUBT
    late[0]()
    assert landed.retry().replayed
    shared = ld.SourceCheckpointStore(catalog, pipeline)
    other = open_store(generation=shared.take_generation())
    overtaken, _ = in_doubt(shared)
    other.stage_checkpoint("kafka", 2)
    with pytest.raises(SessionStateError, match="its store is closed"):
        overtaken.retry()
    assert overtaken.state is SessionState.ROLLED_BACK
    fenced, _ = in_doubt(ld.SourceCheckpointStore(catalog, pipeline))
    open_store().stage_checkpoint("kafka", 3)
    with pytest.raises(FencedError):
        fenced.retry()
    assert other.read_all_checkpoints() == {"kafka": at(3)}


def test_a_session_begun_while_its_store_is_closed_is_none(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would roll it back any more."""
    real = store._begin

    def begin(*given: Any) -> object:
        begun = real(*given)
        store.close()
        return begun

    monkeypatch.setattr(store, "_begin", begin)
    with pytest.raises(SessionStateError, match="is closed"):
        store.session()


def test_a_step_by_itself_is_not_committed_once_its_store_is_closed(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Session.commit

    def late(self: Session) -> object:
        closing = threading.Thread(target=store.close)
        closing.start()
        closing.join()
        return real(self)

    monkeypatch.setattr(Session, "commit", late)
    with pytest.raises(SessionStateError, match="rolled back"):
        store.stage_checkpoint("kafka", 1)
    assert open_store().read_all_checkpoints() == {}


def test_a_loser_with_result_rows_tries_again_over_a_higher_one(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    """As the shipped SQL does it: of rows the highest counts."""
    other = open_store(generation=store.take_generation())
    lost, won = store.session(), other.session()
    lost.stage_table([{"kind": "result", "source": "q", "sequence": 5}, {"source": "kafka", "sequence": 1}])
    won.write_result_sequence("q", 9)
    won.commit()
    with pytest.raises(ConflictError):
        lost.commit()
    lost.retry()
    assert (store.read_result_sequence("q"), store.read_all_checkpoints()) == (9, {"kafka": at(1)})
    # What was written as a number of one's own still only rises.
    lost, won = store.session(), other.session()
    lost.stage_table([{"kind": "result", "source": "q", "sequence": 5}])
    lost.write_result_sequence("q", 10)
    won.write_result_sequence("q", 11)
    won.commit()
    with pytest.raises(ConflictError, match="came first"):
        lost.commit()
    with pytest.raises(ConflictError, match="would go back"):
        lost.retry()


def test_the_history_of_a_catalog_as_it_was_ends_there(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    first = store.stage_checkpoint("kafka", 1).version
    assert first is not None
    second = store.stage_checkpoint("kafka", 2).version
    then = ld.SourceCheckpointStore(catalog.as_of(versions={"source_checkpoints": first}), pipeline)
    assert [record.version for record in then.history()] == [first]
    assert [record.version for record in then.history(limit=1)] == [first]
    assert [record.version for record in store.history()][:2] == [second, first]
