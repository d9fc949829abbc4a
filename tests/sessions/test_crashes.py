"""A process killed at any storage step of a session commit leaves all of the session or nothing of it, and the next goes on."""

import itertools
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import laminar_delta as ld
from tests.sessions.support import at

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
OLD = ({"kafka": at(1, b"old"), "clock": at(1)}, 1, 1)
NEW = ({"kafka": at(2, b"new"), "files": at(2)}, 2, 2)


def _found(store: ld.SourceCheckpointStore) -> tuple[object, object, object]:
    return store.read_all_checkpoints(), store.read_config_hash(), store.read_result_sequence("q")


def test_a_process_killed_at_any_step_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    with ld.SourceCheckpointStore(ld.open_catalog(str(prepared)), "orders").session() as session:
        session.stage("kafka", 1, b"old")
        session.stage("clock", 1)
        session.write_config_hash(1)
        session.write_result_sequence("q", 1)
    seen = []
    for point in itertools.count(1):
        home = tmp_path / str(point)
        shutil.copytree(prepared, home)
        child = subprocess.run(
            [sys.executable, "-m", "tests.support.session_crash", str(home), "orders", str(point)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL, child.stderr
        store = ld.SourceCheckpointStore(ld.open_catalog(str(home)), "orders")
        found = _found(store)
        assert found == NEW if child.stdout else found in (OLD, NEW), f"killed at point {point}"
        seen.append(found)
        # The next one takes over and goes on.
        assert store.start(found[1] if isinstance(found[1], int) else 0).positions == found[0]
        store.stage_checkpoint("kafka", 3)
        assert store.read_checkpoint("kafka") == at(3)
    assert seen[0] == OLD
    assert seen[-1] == NEW
    # Once there, it stays.
    assert seen == sorted(seen, key=lambda found: found == NEW)
