"""Races between processes, and processes that are killed: for engines whose tables outlive a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.engine.request import Fence
from laminar_delta.testing.conformance.tables import LINES, line
from laminar_delta.testing.processes import assert_nothing_acknowledged_is_lost
from laminar_delta.testing.workers import Worker, run_together

if TYPE_CHECKING:
    from laminar_delta.testing.harness import LocalHarness


class Processes:
    """Several processes on one table."""

    process_rounds = 12
    """Writes per process."""
    process_count = 3

    def test_processes_racing_lose_nothing_that_was_acknowledged(self, harness: LocalHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        workers = [
            Worker.start(harness.opening(), "mixed", f"w{n}", self.process_rounds) for n in range(self.process_count)
        ]
        run_together(workers)
        told = {line["told"] for worker in workers for line in worker.said}
        assert told <= {"committed", "FencedError"}
        assert all(len(worker.said) == self.process_rounds for worker in workers)
        assert_nothing_acknowledged_is_lost(engine, workers, harness.raw_rows(LINES.name))

    def test_a_killed_process_leaves_a_table_that_works(self, harness: LocalHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        doomed = Worker.start(harness.opening(), "own", "doomed", 100_000)
        doomed.wait_ready()
        doomed.go()
        doomed.listen(self.process_rounds // 2)
        doomed.kill()
        doomed.finish()
        assert doomed.process.returncode < 0
        last = max(int(said["attempt"].rpartition("-")[2]) for said in doomed.said)
        # The successor waits for whatever the killed one left behind, fences it off, and goes on.
        successor = harness.open()
        successor.raise_fence(LINES.name, Fence("laminar:doomed", 2**32))
        made = successor.append(LINES.name, line("next", last + 1, "next"), fences=[Fence("laminar:doomed", 2**32 + 1)])
        assert made.version == successor.version(LINES.name)
        rows = [row for row in harness.raw_rows(LINES.name) if row["attempt"] != "next"]
        assert_nothing_acknowledged_is_lost(successor, [doomed], rows, killed=True)
        assert len(rows) - len(doomed.said) in (0, 1)
