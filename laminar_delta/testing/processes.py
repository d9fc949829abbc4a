"""Starting workers, letting them run together, killing them, and collecting what they were told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, cast

from laminar_delta.testing.conformance.tables import LINES
from laminar_delta.testing.invariants import assert_fences_rise

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine


@dataclass(slots=True)
class Worker:
    """A process started from `laminar_delta.testing.worker`."""

    process: subprocess.Popen[str]
    said: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, opening: Mapping[str, Any], role: str, name: str, rounds: int) -> Worker:
        """Starts it; it waits for `go`."""
        order = json.dumps({"opening": dict(opening), "role": role, "name": name, "rounds": rounds})
        process = subprocess.Popen(
            [sys.executable, "-m", "laminar_delta.testing.worker", order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "default"},
        )
        return cls(process)

    def wait_ready(self) -> None:
        """Until it has opened its engine."""
        first = self._lines.readline()
        assert "ready" in first, f"worker said {first!r} instead of being ready"

    def go(self) -> None:
        """Lets it run."""
        stdin = cast("IO[str]", self.process.stdin)
        stdin.write("go\n")
        stdin.close()

    def listen(self, lines: int | None = None) -> None:
        """Reads what it says: a number of lines, or all until it ends."""
        while lines is None or lines > 0:
            text = self._lines.readline()
            if not text.endswith("\n"):
                return  # the end, or a line cut short by a kill: nobody was told
            self.said.append(json.loads(text))
            lines = None if lines is None else lines - 1

    def kill(self) -> None:
        """SIGKILL, as power users and kernels do it."""
        self.process.send_signal(signal.SIGKILL)

    def finish(self) -> None:
        """Reads to the end and lets go of the process."""
        self.listen()
        self.process.wait()
        self._lines.close()

    @property
    def _lines(self) -> IO[str]:
        return cast("IO[str]", self.process.stdout)


def run_together(workers: Sequence[Worker]) -> None:
    """Starts all at once, waits for all."""
    for worker in workers:
        worker.wait_ready()
    for worker in workers:
        worker.go()
    for worker in workers:
        worker.finish()


def assert_nothing_acknowledged_is_lost(
    engine: Engine, workers: Sequence[Worker], rows: Sequence[Mapping[str, Any]], *, killed: bool = False
) -> None:
    """Every acknowledged attempt is in the table once, and nothing else but what a killed worker could not tell any more."""
    assert_fences_rise(engine, LINES.name)
    stored = Counter(row["attempt"] for row in rows)
    assert not [attempt for attempt, count in stored.items() if count > 1]
    acknowledged = {line["attempt"] for worker in workers for line in worker.said if line["told"] == "committed"}
    refused = {line["attempt"] for worker in workers for line in worker.said if line["told"] != "committed"}
    assert acknowledged <= set(stored)
    assert not refused & set(stored)
    if not killed:
        assert set(stored) == acknowledged
