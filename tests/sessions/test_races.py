"""Sessions that overlap, in threads and in processes: as if one had run after the other, and every loser is told."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.positions import KEYS
from laminar_delta.catalog.sessions import Session
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.answer import HistoryEntry
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence, Merge
from laminar_delta.engine.settle import HISTORY_WINDOW, FenceRefused, Settled, WriteConflict
from laminar_delta.errors import CommitUnknownError, ConflictError, FencedError, SessionStateError, StorageError
from tests.sessions.support import Opener, StoreOpener, at, commit_as_statement
from tests.support.catalogs import ON_DISK, ready_made
from tests.support.faults import failing_merges, unanswered_merges, unheard_merges
from tests.support.session_races import Done, State, assert_serial, race, watch

THREADS = 8
ROUNDS = 3
ROOT = Path(__file__).parents[2]


def test_eight_threads_come_out_as_if_one_after_the_other(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    generation = store.take_generation()
    together, stop = threading.Barrier(THREADS), threading.Event()
    seen: list[State] = []
    reader = threading.Thread(target=lambda: seen.extend(watch(open_store(), stop)))
    reader.start()
    # Half of them share one store, half have their own.
    stores = [store if number % 2 else open_store(generation=generation) for number in range(THREADS)]

    def run(number: int) -> list[Done]:
        return race(stores[number], f"t{number}" + "x" * number, ROUNDS, together)

    with ThreadPoolExecutor(THREADS) as pool:
        done = [one for racer in pool.map(run, range(THREADS)) for one in racer]
    stop.set()
    reader.join()
    assert len(done) == THREADS * ROUNDS
    # In each round all began before any committed: all but one were told at least once.
    assert sum(one.lost == 0 for one in done) == ROUNDS
    assert seen
    assert_serial(store, done, seen)


@pytest.mark.processes
@pytest.mark.parametrize("engine", ON_DISK)
def test_two_processes_come_out_as_if_one_after_the_other(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    catalog = ready_made(engine, tmp_path / "catalog", request)()
    # There each try takes a second, and one of all comes through.
    threads = 2 if engine == "spark" else THREADS // 2
    store = ld.SourceCheckpointStore(catalog, "orders")
    order = {
        "location": str(tmp_path / "catalog"),
        "engine": engine,
        "pipeline": "orders",
        "generation": store.take_generation(),
        "threads": threads,
        "rounds": ROUNDS,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.session_races", json.dumps({**order, "name": f"p{number}"})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for number in range(2)
    ]
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch, store, stop)
        try:
            answers = _run_together(processes)
        finally:
            stop.set()
        seen = watching.result()
    done = [Done(**one) for answer in answers for one in answer]
    assert [len(answer) for answer in answers] == [threads * ROUNDS] * 2
    # In each round all of both processes began before any committed: all but one were told, and came through by another try.
    assert sum(one.lost == 0 for one in done) == ROUNDS
    assert_serial(store, done, seen)


def _run_together(processes: list[subprocess.Popen[str]]) -> list[list[dict[str, Any]]]:
    """Lets them go on when both are ready: all have begun, or all have committed, twice in each round."""
    for _ in range(2 * ROUNDS):
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
    answers = [process.communicate(timeout=900)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return [json.loads(answer) for answer in answers]


def test_a_zombie_never_gets_in_beside_a_takeover(open_store: StoreOpener) -> None:
    """Whoever comes first: what the zombie was told holds, and the successor starts from what is there."""
    for _ in range(6):
        zombie, successor = open_store(), open_store()
        session = zombie.session()
        before = zombie.read_checkpoint("kafka")
        number = 1 if before is None else before.sequence + 1
        session.stage("kafka", number)
        start = threading.Barrier(2)

        def commit(start: threading.Barrier = start, run: Callable[[], object] = session.commit) -> bool:
            start.wait()
            try:
                run()
            except FencedError:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            told = pool.submit(commit)
            taken = pool.submit(commit, run=successor.take_generation)
            assert taken.result()
            found = successor.read_checkpoint("kafka")
        assert found == (at(number) if told.result() else before)


def test_a_commit_whose_answer_was_lost_is_found(open_again: Opener, pipeline: str) -> None:
    catalog = open_again()
    store = ld.SourceCheckpointStore(catalog, pipeline)
    store.stage_checkpoint("kafka", 1)
    session = store.session()
    session.stage("kafka", 2)
    with unheard_merges(catalog.engine, SOURCE_CHECKPOINTS.name), pytest.raises(CommitUnknownError):
        session.commit()
    with pytest.raises(SessionStateError, match="may be committed"):
        session.rollback()
    assert session.retry().replayed
    assert store.read_checkpoint("kafka") == at(2)
    assert len(store.history()) == 2


def test_a_commit_that_arrives_late_is_committed_once(open_again: Opener, pipeline: str) -> None:
    """Sent, not heard of, tried again, and then the first one arrives."""
    catalog = open_again()
    store = ld.SourceCheckpointStore(catalog, pipeline)
    store.stage_checkpoint("kafka", 1)
    session = store.session()
    session.stage("kafka", 2)
    with unanswered_merges(catalog.engine, SOURCE_CHECKPOINTS.name) as late, pytest.raises(CommitUnknownError):
        session.commit()
    assert not session.retry().replayed
    store.stage_checkpoint("kafka", 3)
    (arrive,) = late
    with contextlib.suppress(FenceRefused):
        assert arrive().version is None
    assert store.read_checkpoint("kafka") == at(3)
    assert len(store.history()) == 3


def test_a_commit_is_found_however_much_others_committed_since(
    open_again: Opener, open_store: StoreOpener, pipeline: str
) -> None:
    """The table is shared by all pipelines: what others commit is no reason to commit a session twice."""
    catalog = open_again()
    store = ld.SourceCheckpointStore(catalog, pipeline)
    token = store.session().token

    def task() -> Session:
        session = open_store(generation=token.generation).session(token)
        session.stage("files", 1)
        return session

    task().commit()
    unheard = store.session()
    unheard.stage("kafka", 2)
    with unheard_merges(catalog.engine, SOURCE_CHECKPOINTS.name), pytest.raises(CommitUnknownError):
        unheard.commit()
    made = store.history()[0].version
    with store.session() as later:
        later.stage("kafka", 3)
        later.stage("files", 3)
    for number in range(1, HISTORY_WINDOW + 5):
        catalog.engine.raise_fence(SOURCE_CHECKPOINTS.name, Fence(f"others than {pipeline}", number))
    found = unheard.retry()
    assert (found.replayed, found.version) == (True, made)
    assert task().commit().replayed
    # Also when another writer took over since.
    open_store().take_generation()
    assert task().commit().replayed
    assert store.read_all_checkpoints() == {"kafka": at(3), "files": at(3)}
    assert len(store.history()) == 3


def test_a_log_entry_of_a_session_that_wrote_nothing_is_no_commit_of_it(catalog: ld.Catalog, pipeline: str) -> None:
    """As Spark made it of a MERGE that a statement overtook: the fence alone, under the session's name."""
    store = ld.SourceCheckpointStore(catalog, pipeline)
    session = store.session()
    session.stage("files", 7, b"7")
    engine, token = catalog.engine, session.token
    other: list[dict[str, object]] = [{"pipeline": f"not {pipeline}", "kind": "source", "source": "x"}]
    rows = pa.Table.from_pylist(other, schema=SOURCE_CHECKPOINTS.schema)
    said = {"operation": "session", "pipeline": pipeline, "session": session.id, "generation": 1, "ordinal": 1}
    real = engine._merge

    def overtaken(*given: Any) -> Settled:
        with patch.object(engine, "_merge", real):
            commit_as_statement(catalog, pipeline, "notebook")
            made = engine.merge(SOURCE_CHECKPOINTS.name, rows, Merge(keys=KEYS), metadata=said)
        return Settled(made.version, inserted=0, updated=0, deleted=0)

    with patch.object(engine, "_merge", overtaken), pytest.raises(ConflictError, match="came first"):
        session.commit()
    assert store.history()[0].session_id == token.session_id
    assert store.read_all_checkpoints() == {"kafka": at(1)}
    assert not session.retry().replayed
    assert store.read_all_checkpoints() == {"kafka": at(1), "files": at(7, b"7")}
    catalog.engine.delete(SOURCE_CHECKPOINTS.name, col("pipeline").eq(f"not {pipeline}"))


def test_a_task_that_lost_finds_what_its_repetition_committed(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    token = store.session().token
    store.stage_checkpoint("files", 1)
    first, second = (open_store(generation=token.generation).session(token) for _ in range(2))
    for session in (first, second):
        session.stage("kafka", 1)
        with pytest.raises(ld.ConflictError):
            session.commit()
    assert not second.retry().replayed
    store.stage_checkpoint("kafka", 2)
    assert first.retry().replayed
    assert store.read_checkpoint("kafka") == at(2)
    assert len(store.history()) == 3


def test_a_commit_that_arrives_while_it_is_looked_for_is_committed_once(open_again: Opener, pipeline: str) -> None:
    catalog = open_again()
    engine = catalog.engine
    store = ld.SourceCheckpointStore(catalog, pipeline)
    session = store.session()
    session.stage("kafka", 1)
    with unanswered_merges(engine, SOURCE_CHECKPOINTS.name) as late, pytest.raises(CommitUnknownError):
        session.commit()
    look = engine.history

    def arriving(table: str, **arguments: Any) -> list[HistoryEntry]:
        told = look(table, **arguments)
        while late:
            assert late.pop()().version is not None
        return told

    with patch.object(engine, "history", arriving):
        assert session.retry().replayed
    assert len(store.history()) == 1


def test_a_commit_that_said_nothing_about_itself_is_found_in_the_version_it_made(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str
) -> None:
    token = store.session().token

    other = open_store(generation=token.generation).session()
    other.stage("files", 1)
    versions = [commit_as_statement(catalog, pipeline, name) for name in ("one", token.session_id, "two")]
    store.stage_checkpoint("kafka", 4)
    repeated = open_store(generation=token.generation).session(token)
    repeated.stage("kafka", 2)
    found = repeated.commit()
    assert (found.replayed, found.version) == (True, versions[1])
    # A session that is none of them is told that it lost, and goes on from there.
    with pytest.raises(ld.ConflictError, match="commit 4 came first"):
        other.commit()
    other.retry()
    assert store.read_all_checkpoints() == {"kafka": at(4), "files": at(1)}


def test_a_session_is_not_committed_when_nobody_can_tell_any_more_whether_it_was(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str
) -> None:
    session = open_store(generation=store.take_generation()).session()
    session.stage("kafka", 9)
    for name in ("one", "two"):
        commit_as_statement(catalog, pipeline, name)
    catalog.engine.vacuum(SOURCE_CHECKPOINTS.name, older_than_hours=0, dry_run=False)
    for go_on in (session.commit, session.retry):
        with pytest.raises(CommitUnknownError, match="who made commit 1 of generation 1"):
            go_on()
    assert store.read_all_checkpoints() == {"kafka": at(2)}


def test_storage_that_fails_leaves_the_session_as_it_was(open_again: Opener, pipeline: str) -> None:
    catalog = open_again()
    store = ld.SourceCheckpointStore(catalog, pipeline)
    session = store.session()
    session.stage("kafka", 1)
    with failing_merges(catalog.engine, SOURCE_CHECKPOINTS.name), pytest.raises(StorageError):
        session.commit()
    assert store.read_all_checkpoints() == {}
    session.stage("files", 1)
    session.commit()
    assert store.read_all_checkpoints() == {"kafka": at(1), "files": at(1)}


def test_a_conflict_with_nobodys_session_says_so(open_again: Opener, pipeline: str) -> None:
    """A compaction, for one: no session came first."""
    catalog = open_again()
    store = ld.SourceCheckpointStore(catalog, pipeline)
    store.stage_checkpoint("kafka", 1)
    session = store.session()
    session.stage("kafka", 2)
    conflict = WriteConflict("files were rewritten")
    with patch.object(catalog.engine, "_merge", side_effect=conflict), pytest.raises(ld.ConflictError) as told:
        session.commit()
    assert "came first" not in str(told.value)
    assert "no session" in str(told.value)
    session.retry()
    assert store.read_all_checkpoints() == {"kafka": at(2)}
