import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from laminar_delta.engine.local.lock import HOLDER_FILE, CatalogLock, Process
from laminar_delta.errors import ErrorCode, StorageError


def _held_elsewhere(root: Path) -> bool:
    try:
        with CatalogLock(root, timeout_s=0.05).held():
            return False
    except StorageError:
        return True


def test_a_second_holder_is_refused_after_its_timeout_and_told(tmp_path: Path) -> None:
    with CatalogLock(tmp_path).held():
        with pytest.raises(StorageError, match="another process") as caught, CatalogLock(tmp_path, 0.05).held():
            pass
        assert caught.value.code is ErrorCode.LOCKED
    assert not _held_elsewhere(tmp_path)


def test_threads_of_one_engine_take_turns(tmp_path: Path) -> None:
    lock = CatalogLock(tmp_path)
    inside: list[int] = []

    def work() -> None:
        for _ in range(20):
            with lock.held():
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), CatalogLock(tmp_path).held():
        raise ZeroDivisionError
    assert not _held_elsewhere(tmp_path)


def test_a_busy_holder_lets_others_in(tmp_path: Path) -> None:
    """The turnstile: a holder that asks again at once comes after those who wait already."""
    busy, patient = CatalogLock(tmp_path), CatalogLock(tmp_path)
    turns = 0
    stop, waiting = threading.Event(), threading.Event()

    def hog() -> None:
        nonlocal turns
        while not stop.is_set():
            with busy.held():
                turns += 1
                waiting.wait(0.01)

    thread = threading.Thread(target=hog)
    thread.start()
    seen: list[int] = []
    for _ in range(10):
        before = turns
        with patient.held():
            seen.append(turns - before)
    stop.set()
    thread.join()
    assert max(seen) < 50


def test_a_killed_holder_leaves_the_lock_free(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from laminar_delta.engine.local.lock import CatalogLock
with CatalogLock(Path({str(tmp_path)!r})).held():
    print("held", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert _held_elsewhere(tmp_path)
        process.kill()
        process.wait()
    assert not _held_elsewhere(tmp_path)


def test_a_forked_child_does_not_keep_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    code = f"""
import os, time
from pathlib import Path
from laminar_delta.engine.local.lock import CatalogLock
with CatalogLock(Path({str(tmp_path)!r})).held():
    if os.fork() == 0:
        time.sleep(60)
    print("held", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, 9)
        process.wait()
        try:
            assert not _held_elsewhere(tmp_path)
        finally:
            os.killpg(process.pid, 9)


def test_the_next_holder_waits_for_a_jvm_left_behind(tmp_path: Path) -> None:
    """The JVM's part is played by any process: what counts is that it runs and is named beside the lock."""
    with subprocess.Popen(["sleep", "60"]) as left_behind:
        lock = CatalogLock(tmp_path)
        lock._remember(Process.of(left_behind.pid))
        with pytest.raises(StorageError, match=f"JVM {left_behind.pid}"), CatalogLock(tmp_path, 0.2).held():
            pass
        left_behind.kill()
        left_behind.wait()
        with CatalogLock(tmp_path, 5).held():
            assert not (tmp_path / HOLDER_FILE).exists()


def test_ones_own_jvm_is_not_waited_for_and_is_forgotten_afterwards(tmp_path: Path) -> None:
    own = Process.of(os.getpid())
    CatalogLock(tmp_path)._remember(own)
    with CatalogLock(tmp_path, 1).held(jvm=own):
        assert (tmp_path / HOLDER_FILE).exists()
    assert not (tmp_path / HOLDER_FILE).exists()


def test_a_later_process_with_the_same_pid_is_another_one(tmp_path: Path) -> None:
    assert Process.of(os.getpid()).alive()
    assert not Process(os.getpid(), "started some other time").alive()
    assert not Process(2**22 + 1, "").alive()


def test_a_torn_record_is_reported(tmp_path: Path) -> None:
    (tmp_path / HOLDER_FILE).write_text('{"pid": 1')
    with pytest.raises(StorageError, match="not readable"), CatalogLock(tmp_path, 0.2).held():
        pass
