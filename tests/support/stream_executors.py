"""An executor that is lost at work: the task that writes a batch to a table kills the process it runs in, once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

LOST, AGAIN = "executor.lost", "executor.again"
"""What the task that died said of itself, and what the one that took its place says."""
RECORDS_AT_A_TIME = 250
"""So few to a piece that the task dies between two of them."""


def losing_executor(frame: DataFrame, batch_id: int, table: Path, home: Path) -> DataFrame:
    """The same records, for a write to a table; the first task has written some of them when its executor is killed."""
    before = frozenset(path.name for path in table.glob("*.parquet"))
    return frame.mapInArrow(partial(_die_once, batch_id, table, before, home), frame.schema)


def _die_once(
    batch_id: int, table: Path, before: frozenset[str], home: Path, pieces: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    told: dict[str, Any] = {"batch": batch_id, "task": context.taskAttemptId(), "executor": _executor()}
    is_first = context.partitionId() == 0
    dies = is_first and not (home / LOST).exists()
    if is_first and not dies and not (home / AGAIN).exists():
        (home / AGAIN).write_text(json.dumps(told))
    for piece in pieces:
        yield piece
        if dies:
            # It is the first task's own: the others have another number. There is nothing to wait on.
            while not (begun := {path.name for path in table.glob("part-00000-*.parquet")} - before):
                time.sleep(0.001)
            (home / LOST).write_text(json.dumps({**told, "begun": sorted(begun)}))
            os.kill(told["executor"], signal.SIGKILL)
            os._exit(1)


def _executor() -> int:
    """The JVM this task runs in; one of its own, not the driver's."""
    pid = os.getppid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid
