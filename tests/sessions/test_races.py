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

import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.settle import FenceRefused
from laminar_delta.errors import CommitUnknownError, FencedError, SessionStateError, StorageError
from tests.sessions.support import Opener, StoreOpener, at
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
def test_two_processes_come_out_as_if_one_after_the_other(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    store = ld.SourceCheckpointStore(catalog, "orders")
    order = {
        "location": str(tmp_path / "catalog"),
        "pipeline": "orders",
        "generation": store.take_generation(),
        "threads": THREADS // 2,
        "rounds": 4,
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
        answers = _run_together(processes)
        stop.set()
        seen = watching.result()
    done = [Done(**one) for answer in answers for one in answer]
    assert len(done) == THREADS * 4
    assert_serial(store, done, seen)


def _run_together(processes: list[subprocess.Popen[str]]) -> list[list[dict[str, Any]]]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=300)[0] for process in processes]
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
