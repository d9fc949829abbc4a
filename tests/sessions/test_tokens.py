"""A session that several have the token of: whoever is told that it was committed has what it staged in it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

import laminar_delta as ld
from laminar_delta.catalog.buffer import Buffer
from laminar_delta.catalog.session_commit import SessionCommit, SessionToken
from laminar_delta.catalog.session_steps import check_same_steps
from laminar_delta.catalog.sessions import Session, SessionState
from laminar_delta.errors import CommitUnknownError, ConflictError, FencedError
from tests.sessions.support import StoreOpener, at


def test_another_holders_steps_are_not_told_as_ones_own(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    mine = store.session()
    mine.stage("mine", 1, b"m")
    theirs = open_store(generation=mine.token.generation).session(mine.token)
    theirs.stage("theirs", 1, b"t")
    theirs.commit()
    for call in (mine.commit, mine.retry):
        with pytest.raises(ConflictError, match="committed with other steps"):
            call()
    assert mine.state is SessionState.LOST
    assert store.read_all_checkpoints() == {"theirs": at(1, b"t")}


@pytest.mark.parametrize(
    "steps",
    [
        [{"source": "late", "sequence": 5}],
        [{"source": "kafka", "sequence": 2, "position": b"x"}],
        [{"source": "kafka", "sequence": 1, "position": b"y"}],
        [{"source": "kafka", "sequence": 1, "position": b"x"}, {"source": "late", "sequence": 5}],
        [{"source": "kafka", "sequence": 1, "position": b"x"}, {"kind": "config", "config_hash": 6}],
        [{"kind": "clear"}],
        [{"kind": "clear"}, {"source": "kafka", "sequence": 1, "position": b"x"}],
        [
            {"kind": "clear"},
            {"source": "kafka", "sequence": 1, "position": b"x"},
            {"kind": "config", "config_hash": 5},
        ],
    ],
)
def test_a_committed_session_takes_no_other_steps(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, steps: list[dict[str, object]]
) -> None:
    store.stage_checkpoint("files", 5, b"f")
    begun = store.session()
    begun.stage("kafka", 1, b"x")
    begun.write_config_hash(5)
    begun.commit()
    late = open_store(generation=begun.token.generation).session(begun.token)
    late.stage_table(steps)
    with pytest.raises(ConflictError, match="committed with other steps"):
        late.commit()
    assert store.read_all_checkpoints() == {"files": at(5, b"f"), "kafka": at(1, b"x")}
    assert store.read_config_hash() == 5


def test_a_clear_without_a_hash_is_another_step_than_none(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    store.write_config_hash(5)
    begun = store.session()
    begun.stage("kafka", 1, b"x")
    begun.commit()
    late = open_store(generation=begun.token.generation).session(begun.token)
    late.clear()
    late.stage("kafka", 1, b"x")
    with pytest.raises(ConflictError, match="committed with other steps"):
        late.commit()
    assert store.read_config_hash() == 5


def test_the_same_steps_are_recognised_however_much_was_committed_since(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    begun = store.session()
    steps = [{"source": "kafka", "sequence": 1, "position": b"x"}, {"kind": "result", "source": "q", "sequence": 4}]
    begun.stage_table(steps)
    begun.commit()
    store.stage_checkpoint("kafka", 2, b"y")
    store.write_result_sequence("q", 9)
    again = open_store(generation=begun.token.generation).session(begun.token)
    again.stage_table(steps)
    assert again.commit().replayed
    assert store.read_all_checkpoints() == {"kafka": at(2, b"y")}


def test_where_nobody_can_tell_any_more_it_is_said(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = store.session()
    staged = Buffer()
    for stage in (begun.stage, staged.stage):
        stage("kafka", 1, b"x")
        stage("files", 1, None)
    begun.commit()
    store.stage_checkpoint("kafka", 2, b"y")
    # The log is cleaned up to here: only the rows are left.
    monkeypatch.setattr(type(catalog.engine), "history", lambda *_, **__: [])
    with pytest.raises(CommitUnknownError, match="tell any more"):
        check_same_steps(catalog.engine, pipeline, begun.id, staged, version=None, sent=False)
    # One whose try was under way has it from the row that is left.
    check_same_steps(catalog.engine, pipeline, begun.id, staged, version=None, sent=True)
    staged.stage("files", 2, None)
    with pytest.raises(ConflictError, match="committed with other steps"):
        check_same_steps(catalog.engine, pipeline, begun.id, staged, version=None, sent=True)


@pytest.mark.parametrize("step", [lambda s: s.write_config_hash(9), lambda s: s.clear()])
def test_a_hash_or_a_clear_of_which_nothing_tells_any_more_is_not_taken_for_committed(
    store: ld.SourceCheckpointStore,
    open_store: StoreOpener,
    catalog: ld.Catalog,
    step: Callable[[Session], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = store.session()
    begun.stage("kafka", 1, b"x")
    begun.commit()
    store.stage_checkpoint("files", 1)
    # The row of the source is left, the head row is another session's, and the log is cleaned up to here.
    monkeypatch.setattr(type(catalog.engine), "history", lambda *_, **__: [])
    with pytest.raises(CommitUnknownError, match="tell any more"):
        _again(open_store, begun.token, step, lambda s: s.stage("kafka", 1, b"x"))
    assert _again(open_store, begun.token, lambda s: s.stage("kafka", 1, b"x")).replayed


def _again(open_store: StoreOpener, token: SessionToken, *stage: Callable[[Session], object]) -> SessionCommit:
    """What a task does that is repeated: in a process of its own, the same once more."""
    session = open_store(generation=token.generation).session(token)
    for step in stage:
        step(session)
    return session.commit()


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.advance("kafka", 2),
        lambda s: s.stage("kafka", 2, b"b", after=1),
        lambda s: s.advance("kafka", 2, after=1),
        lambda s: s.write_result_sequence("q", 5),
        lambda s: s.stage_table([{"kind": "result", "source": "q", "sequence": 5}]),
        lambda s: s.clear(),
        lambda s: s.take_steps(),
    ],
)
def test_a_repetition_is_recognised_whatever_its_steps_go_by(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, step: Callable[[Session], object]
) -> None:
    with store.session() as s:
        s.stage("kafka", 1, b"a")
        s.write_result_sequence("q", 4)
    token = store.session().token
    store.stage_steps(token, [{"source": "kafka", "sequence": 10}])
    first = _again(open_store, token, step)
    assert not first.replayed
    assert _again(open_store, token, step) == replace(first, replayed=True)
    with store.session() as s:
        s.stage("kafka", 30, b"c")
        s.write_result_sequence("q", 9)
    before = store.read_all_checkpoints()
    assert _again(open_store, token, step) == replace(first, replayed=True)
    # Also when the rows are gone that it took, and when another writer has taken over.
    store.remove_steps()
    assert _again(open_store, token, step) == replace(first, replayed=True)
    open_store().take_generation()
    assert _again(open_store, token, step) == replace(first, replayed=True)
    assert store.read_all_checkpoints() == before


def test_a_repetition_that_says_something_else_is_told_so(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    store.stage_checkpoint("kafka", 1, b"a")
    token = store.session().token
    _again(open_store, token, lambda s: s.advance("kafka", 2))
    store.stage_checkpoint("kafka", 9, b"c")
    for other in (
        lambda s: s.advance("kafka", 3),
        lambda s: s.stage("kafka", 2, b"z"),
        lambda s: s.advance("files", 2),
    ):
        with pytest.raises(ConflictError, match="committed with other steps"):
            _again(open_store, token, other)
    assert store.read_all_checkpoints() == {"kafka": at(9, b"c")}


def test_a_token_that_was_never_committed_is_held_to_its_conditions(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    store.stage_checkpoint("kafka", 1, b"a")
    token = store.session().token
    store.stage_checkpoint("kafka", 2, b"b")
    with pytest.raises(ConflictError, match="stands at sequence 2, not at 1"):
        _again(open_store, token, lambda s: s.stage("kafka", 3, after=1))
    open_store().take_generation()
    with pytest.raises(FencedError):
        _again(open_store, token, lambda s: s.stage("kafka", 3))
