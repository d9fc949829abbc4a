"""Sessions: what is staged is one's own until the commit, and the commit is everything or nothing."""

import pickle
import threading
from collections.abc import Callable

import pytest

import laminar_delta as ld
from laminar_delta.catalog.buffer import Buffer
from laminar_delta.catalog.positions import compare_and_set, read_positions
from laminar_delta.catalog.session_commit import SessionToken
from laminar_delta.catalog.sessions import Session, SessionState
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.errors import ConflictError, FencedError, InvalidInputError, SessionStateError
from tests.sessions.support import EventError, StoreOpener, at, commits, raw


def test_everything_staged_is_one_commit(store: ld.SourceCheckpointStore, catalog: ld.Catalog) -> None:
    store.take_generation()
    before = commits(catalog)
    with store.session() as s:
        s.stage("kafka", 1, b"x")
        s.stage("files", 2)
        s.write_config_hash(5)
        s.write_result_sequence("q", 6)
    assert commits(catalog) == before + 1
    assert store.read_all_checkpoints() == {"kafka": at(1, b"x"), "files": at(2)}
    assert (store.read_config_hash(), store.read_result_sequence("q")) == (5, 6)


def test_a_session_reads_its_own_writes(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("kept", 1, b"old")
        s.stage("changed", 1, b"old")
        s.write_config_hash(5)
        s.write_result_sequence("q", 6)
    with store.session() as s:
        assert s.read("kept") == at(1, b"old")
        s.stage("changed", 2, None)
        s.stage("new", 3, b"new")
        assert s.read("changed") == at(2)
        assert s.read_all() == {"kept": at(1, b"old"), "changed": at(2), "new": at(3, b"new")}
        assert (s.read_config_hash(), s.read_result_sequence("q")) == (5, 6)
        s.write_config_hash(7)
        s.write_result_sequence("q", 8)
        assert (s.read_config_hash(), s.read_result_sequence("q")) == (7, 8)
        s.clear()
        assert (s.read_all(), s.read_config_hash(), s.read_result_sequence("q")) == ({}, None, None)
        assert s.is_empty()
        s.stage("after", 1)
        assert s.read_all() == {"after": at(1)}
    assert store.read_all_checkpoints() == {"after": at(1)}
    assert store.read_config_hash() is None


def test_nothing_is_visible_outside_before_the_commit(store: ld.SourceCheckpointStore, open_store: StoreOpener) -> None:
    store.stage_checkpoint("kafka", 1, b"committed")
    s = store.session()
    s.stage("kafka", 2, b"staged")
    s.write_config_hash(5)
    for reader in (store, open_store()):
        assert reader.read_checkpoint("kafka") == at(1, b"committed")
        assert reader.read_all_checkpoints() == {"kafka": at(1, b"committed")}
        assert reader.read_config_hash() is None
    s.commit()
    assert open_store().read_checkpoint("kafka") == at(2, b"staged")


def test_a_rollback_or_an_exception_leaves_everything_as_it_was(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog
) -> None:
    store.stage_checkpoint("kafka", 1, b"committed")
    before = commits(catalog)
    s = store.session()
    s.clear()
    s.stage("kafka", 2)
    s.rollback()
    s.rollback()
    assert s.state is SessionState.ROLLED_BACK
    with pytest.raises(EventError), store.session() as s:
        s.stage("kafka", 3)
        raise EventError
    with store.session() as s:
        s.stage("kafka", 4)
        s.rollback()
    assert commits(catalog) == before
    assert store.read_all_checkpoints() == {"kafka": at(1, b"committed")}


def test_a_session_that_ended_is_of_no_more_use(store: ld.SourceCheckpointStore) -> None:
    committed = store.session()
    committed.stage("kafka", 1)
    committed.commit()
    rolled_back = store.session()
    rolled_back.rollback()
    uses: list[Callable[[Session], object]] = [
        lambda s: s.stage("kafka", 2),
        lambda s: s.advance("kafka", 2),
        lambda s: s.read("kafka"),
        lambda s: s.read_all(),
        lambda s: s.read_config_hash(),
        lambda s: s.read_result_sequence("q"),
        lambda s: s.write_config_hash(1),
        lambda s: s.write_result_sequence("q", 1),
        lambda s: s.stage_table([]),
        lambda s: s.take_steps(),
        lambda s: s.is_empty(),
        lambda s: s.clear(),
        lambda s: s.commit(),
        lambda s: s.retry(),
        lambda s: s.nested().__enter__(),
        lambda s: s.__enter__(),
    ]
    for s in (committed, rolled_back):
        for use in uses:
            with pytest.raises(SessionStateError):
                use(s)
    with pytest.raises(SessionStateError, match="cannot be undone"):
        committed.rollback()
    assert store.read_all_checkpoints() == {"kafka": at(1)}


def test_nothing_staged_commits_nothing(store: ld.SourceCheckpointStore, catalog: ld.Catalog) -> None:
    store.take_generation()
    before = commits(catalog)
    with store.session():
        pass
    assert store.session().commit().version is None
    assert commits(catalog) == before


def test_sessions_do_not_nest_unless_asked_to(store: ld.SourceCheckpointStore, catalog: ld.Catalog) -> None:
    with store.session() as s:
        s.stage("kafka", 1)
        with pytest.raises(SessionStateError, match="nested"):
            store.session()
        with pytest.raises(SessionStateError), s:
            pass
        with s.nested():
            s.stage("files", 1)
        with pytest.raises(EventError), s.nested():
            s.clear()
            s.stage("lost", 1)
            with s.nested():
                s.stage("lost too", 1)
            raise EventError
        assert s.read_all() == {"kafka": at(1), "files": at(1)}
        before = commits(catalog)
        with s.nested(), pytest.raises(SessionStateError, match="nested part"):
            s.commit()
        assert commits(catalog) == before
    assert store.read_all_checkpoints() == {"kafka": at(1), "files": at(1)}


def test_a_rollback_inside_a_nested_part_ends_the_whole_session(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("kafka", 1)
        with s.nested():
            s.stage("files", 1)
            s.rollback()
    assert s.state is SessionState.ROLLED_BACK
    assert store.read_all_checkpoints() == {}


def test_a_session_dropped_without_an_end_is_no_obstacle(store: ld.SourceCheckpointStore) -> None:
    store.session().stage("kafka", 1)
    with store.session() as s:
        s.stage("files", 1)
    assert store.read_all_checkpoints() == {"files": at(1)}


def test_another_thread_has_sessions_of_its_own(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("kafka", 1)
        seen: list[object] = []

        def elsewhere() -> None:
            seen.append(store.read_all_checkpoints())
            other = store.session()
            seen.append(other.read_all())
            other.rollback()

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen == [{}, {}]


@pytest.mark.also_on_spark
def test_the_first_to_commit_wins_and_the_other_is_told_and_can_try_again(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    store.stage_checkpoint("kafka", 1, b"one")
    rival = open_store(generation=store.take_generation())
    first, second = store.session(), rival.session()
    first.stage("kafka", 2, b"two")
    second.stage("files", 9, b"nine")
    second.advance("kafka", 3)
    first.commit()
    with pytest.raises(ConflictError, match=r"began after commit 1 .* commit 2 came first") as lost:
        second.commit()
    assert not isinstance(lost.value, FencedError)
    assert (lost.value.expected, lost.value.found) == (1, 2)
    assert lost.value.details["winner"] == first.id
    with pytest.raises(SessionStateError, match="retry"):
        second.stage("more", 1)
    assert second.retry().version is not None
    # What was staged stands; what was left as it is, is what it is by now.
    assert store.read_all_checkpoints() == {"kafka": at(3, b"two"), "files": at(9, b"nine")}


def test_what_a_session_read_did_not_change_until_its_commit(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    """Two that each read both sources and write one: they cannot both have seen the other's as it was before."""
    with store.session() as s:
        s.stage("a", 1)
        s.stage("b", 1)
    rival = open_store(generation=store.take_generation())
    first, second = store.session(), rival.session()
    for s, name in ((first, "a"), (second, "b")):
        s.stage(name, sum(found.sequence for found in s.read_all().values()))
    first.commit()
    assert second.read("a") == at(1)
    with pytest.raises(ConflictError):
        second.commit()
    assert store.read_all_checkpoints() == {"a": at(2), "b": at(1)}


@pytest.mark.also_on_spark
def test_a_zombies_session_is_told_both_generations_and_writes_nothing(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str
) -> None:
    store.stage_checkpoint("kafka", 1, b"one")
    zombie = store.session()
    zombie.stage("kafka", 2, b"late")
    successor = open_store(owner="successor")
    successor.take_generation()
    before = raw(catalog, pipeline)
    with pytest.raises(FencedError) as fenced:
        zombie.commit()
    assert (fenced.value.expected, fenced.value.found) == (1, 2)
    assert zombie.state is SessionState.FENCED
    with pytest.raises(SessionStateError):
        zombie.retry()
    with pytest.raises(FencedError):
        store.session()
    with pytest.raises(FencedError):
        store.clear_checkpoints()
    assert raw(catalog, pipeline) == before
    successor.stage_checkpoint("kafka", 3)
    assert successor.read_all_checkpoints() == {"kafka": at(3)}


def test_the_head_row_fences_also_without_a_transaction_identifier(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str
) -> None:
    """What a statement in a notebook has to go by."""
    began = [_as_statement(catalog, store.take_generation(), pipeline)]
    store.stage_checkpoint("kafka", 1)
    head = raw(catalog, pipeline)["head", ""]
    assert (head["generation"], head["ordinal"]) == (1, 1)
    began.append(_as_statement(catalog, 1, pipeline))
    successor = open_store()
    successor.take_generation()
    head = raw(catalog, pipeline)["head", ""]
    assert (head["generation"], head["ordinal"]) == (2, 0)
    # The number of the commit alone would let the first one in.
    began.append(_as_statement(catalog, 2, pipeline))
    before = commits(catalog)
    assert [commit() for commit in began[:2]] == [None, None]
    successor.stage_checkpoint("files", 1)
    assert began[2]() is None, "another session committed first"
    assert commits(catalog) == before + 1
    assert store.read_all_checkpoints() == {"kafka": at(1), "files": at(1)}
    assert _as_statement(catalog, 2, pipeline)() == before + 2
    catalog.writer(pipeline).close()
    assert raw(catalog, pipeline)["head", ""]["generation"] == 3


def _as_statement(catalog: ld.Catalog, generation: int, pipeline: str) -> Callable[[], int | None]:
    """Begins a session, to be committed later by the merge of a session commit without its fence; the version that makes."""
    base, buffer = read_positions(catalog.reading, pipeline), Buffer()
    buffer.stage("kafka", 100, None)
    rows, merge = buffer.rows(base, "notebook's", "notebook"), compare_and_set(pipeline, generation, base.ordinal)
    return lambda: catalog.engine.merge(SOURCE_CHECKPOINTS.name, rows, merge).version


def test_a_generation_that_nobody_took_here_is_told_as_that(open_store: StoreOpener) -> None:
    """The wrong catalog, or a slip in the pipeline's name: nobody restored anything."""
    with pytest.raises(FencedError, match="has no generation in this catalog") as told:
        open_store(generation=1).session()
    assert (told.value.expected, told.value.found) == (1, None)
    assert "Check the catalog, the pipeline" in str(told.value.next_step)
    with pytest.raises(FencedError, match="has no generation"):
        open_store(generation=1).stage_checkpoint("kafka", 1)


def test_a_writer_and_a_store_share_a_generation(open_store: StoreOpener, catalog: ld.Catalog, pipeline: str) -> None:
    with catalog.writer(pipeline) as writer:
        store = open_store(generation=writer.generation)
        store.stage_checkpoint("kafka", 1)
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": "1"})
        store.stage_checkpoint("kafka", 2)
        store.close()
        store_again = open_store(generation=writer.generation)
        assert store_again.take_generation() == writer.generation
    with pytest.raises(FencedError):
        open_store(generation=writer.generation + 1).session()


def test_restoring_the_table_does_not_let_a_zombie_in(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog
) -> None:
    """Rows go back with a RESTORE, the fence does not."""
    store.stage_checkpoint("kafka", 1, b"one")
    version = commits(catalog)
    zombie = store.session()
    zombie.stage("kafka", 2, b"late")
    successor = open_store()
    successor.stage_checkpoint("kafka", 5, b"five")
    catalog.engine.restore(SOURCE_CHECKPOINTS.name, version)
    with pytest.raises(FencedError):
        zombie.commit()
    # The successor is not in step with the rows either, and is told what to do.
    with pytest.raises(FencedError, match="Open a new store"):
        successor.stage_checkpoint("kafka", 6)
    third = open_store()
    assert third.read_checkpoint("kafka") == at(1, b"one")
    third.stage_checkpoint("kafka", 2, b"two")
    assert third.read_checkpoint("kafka") == at(2, b"two")


def test_a_session_goes_from_process_to_process_as_a_token(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    begun = store.session()
    token = SessionToken(**begun.token.to_dict())  # type: ignore[arg-type]  # plain values
    assert pickle.loads(pickle.dumps(token)) == begun.token
    elsewhere = open_store(generation=token.generation)
    with elsewhere.session(token) as s:
        assert s.id == begun.id
        s.stage("kafka", 1)
    assert store.read_all_checkpoints() == {"kafka": at(1)}
    # The same once more, as a task that is repeated does it: it is recognised.
    again = open_store(generation=token.generation).session(token)
    again.stage("kafka", 1)
    assert again.commit().replayed
    with pytest.raises(InvalidInputError, match="another pipeline or generation"):
        open_store().session(token)
