"""The races that only exist on Spark: a JVM that outlives its Python, and a log that is cleaned under a slow write."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.local.lock import HOLDER_FILE, Process
from laminar_delta.engine.request import Fence
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.errors import ErrorCode, StorageError
from laminar_delta.testing.conformance.tables import LINES, line
from laminar_delta.testing.invariants import assert_fences_rise
from tests.support.stepping import stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

APP = "laminar:orders"

# Commits once; in its second commit it freezes the JVM, lets the request go out, and says so once it waits for the answer.
DOOMED = """
import os, signal, sys, threading
from laminar_delta.engine.request import Fence
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.testing.conformance.tables import LINES, line
from pyspark.sql.readwriter import DataFrameWriterV2

engine = SparkEngine(sys.argv[1])
engine.append("lines", line("p", 1, "first"), fences=[Fence("laminar:orders", 1)])
jvm, main = engine._own.jvm().pid, threading.main_thread().ident
real = DataFrameWriterV2.append

def say():
    while sys._current_frames()[main].f_code.co_name != "readinto":
        pass
    print(jvm, flush=True)

def freeze(writer):
    os.kill(jvm, signal.SIGSTOP)
    threading.Thread(target=say, daemon=True).start()
    real(writer)

DataFrameWriterV2.append = freeze
engine.append("lines", line("p", 2, "in flight"), fences=[Fence("laminar:orders", 2)])
"""


@pytest.mark.processes
def test_killed_python_with_a_living_jvm(tmp_path: Path) -> None:
    """The lock is free at once, the commit is still under way: the next one waits for the JVM, and loses nothing."""
    root = tmp_path / "catalog"
    # Committed from here on by the engine without a JVM: the only JVM is the one that is left behind.
    successor, impatient = EmbeddedEngine(root), EmbeddedEngine(root, lock_timeout_s=0.2)
    successor.create(LINES)
    with subprocess.Popen(
        [sys.executable, "-c", DOOMED, str(root)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        jvm = Process.of(int(process.stdout.readline()))
        try:
            process.kill()
            process.wait()
            assert jvm.alive()
            assert (root / HOLDER_FILE).exists()
            with pytest.raises(StorageError, match=f"JVM {jvm.pid}") as caught:
                impatient.raise_fence(LINES.name, Fence(APP, 2**32))
            assert caught.value.code is ErrorCode.LOCKED
        finally:
            os.kill(jvm.pid, signal.SIGCONT)
        # It reads the request now, commits it or not, and ends.
        successor.raise_fence(LINES.name, Fence(APP, 2**32))
        assert not jvm.alive()
    successor.append(LINES.name, line("p", 3, "next"), fences=[Fence(APP, 2**32 + 1)], key={"attempt": "next"})
    attempts = [row["attempt"] for row in successor.read(LINES.name).to_pylist()]
    assert sorted({*attempts, "in flight"}) == ["first", "in flight", "next"]
    assert len(attempts) == len(set(attempts))
    versions = [entry.version for entry in successor.history(LINES.name)]
    assert versions == list(range(successor.version(LINES.name), -1, -1))
    assert_fences_rise(successor, LINES.name)
    assert not (root / HOLDER_FILE).exists()


def test_log_clean_up_under_a_slow_write(tmp_path: Path, spark: "SparkSession") -> None:
    """Spark acknowledged a commit into a gap that a clean-up had made; so a clean-up waits for its turn."""
    from pyspark.sql.readwriter import DataFrameWriterV2

    engine = SparkEngine(tmp_path, spark=spark)
    engine.create(LINES)
    engine.append(LINES.name, line("p", 1), fences=[Fence(APP, 1)])

    def write() -> int | None:
        return engine.append(LINES.name, line("p", 2), fences=[Fence(APP, 2)]).version

    with stopped(write, DataFrameWriterV2, "append") as slow:
        for cleaner in (
            SparkEngine(tmp_path, spark=spark, lock_timeout_s=0.2),
            EmbeddedEngine(tmp_path, lock_timeout_s=0.2),
        ):
            for clean in (cleaner.log_checkpoint, cleaner.clean_log):
                with pytest.raises(StorageError) as caught:
                    clean(LINES.name)
                assert caught.value.code is ErrorCode.LOCKED
    assert slow.result() == 2
    engine.log_checkpoint(LINES.name)
    engine.clean_log(LINES.name)
    assert sorted(row["id"] for row in engine.read(LINES.name).to_pylist()) == [1, 2]
