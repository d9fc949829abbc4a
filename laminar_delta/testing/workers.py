"""Processes that say what they were told: starting them, letting them run together, killing them, and listening."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, cast


@dataclass(slots=True)
class Worker:
    """A process that says what it was told, such as `laminar_delta.testing.worker`."""

    process: subprocess.Popen[str]
    said: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, opening: Mapping[str, Any], role: str, name: str, rounds: int) -> Worker:
        """Starts one that writes to a table; it waits for `go`."""
        order = {"opening": dict(opening), "role": role, "name": name, "rounds": rounds}
        return cls.start_module("laminar_delta.testing.worker", order)

    @classmethod
    def start_module(cls, module: str, order: Mapping[str, Any]) -> Worker:
        """Starts a module that takes its order as JSON, prints a line when it is ready and waits for one."""
        process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(order)],
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


def say(content: Mapping[str, Any]) -> None:
    """The other side: one line, at once."""
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()
