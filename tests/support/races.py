"""Races between worker processes on one table, with or without kills; used by tests and by soak runs at other lengths."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from laminar_delta.testing.conformance.tables import LINES
from laminar_delta.testing.processes import assert_nothing_acknowledged_is_lost
from laminar_delta.testing.workers import Worker, run_together
from tests.support.harnesses import DeltaFiles, EmbeddedHarness


def race(place: DeltaFiles, openings: Sequence[Mapping[str, Any]], rounds: int) -> list[Worker]:
    """Runs one worker per opening for `rounds` writes each, and checks what became of every one."""
    engine = EmbeddedHarness(place.root).open()
    engine.create(LINES)
    workers = [Worker.start(opening, "mixed", f"w{number}", rounds) for number, opening in enumerate(openings)]
    run_together(workers)
    assert all(len(worker.said) == rounds for worker in workers)
    assert {said["told"] for worker in workers for said in worker.said} <= {"committed", "FencedError"}
    assert_nothing_acknowledged_is_lost(engine, workers, place.raw_rows(LINES.name))
    return workers


def race_with_kills(place: DeltaFiles, opening: Mapping[str, Any], rounds: int, seed: int) -> int:
    """Keeps three workers running until `rounds` writes were acknowledged, killing one at random; how many were killed."""
    chance = random.Random(seed)
    engine = EmbeddedHarness(place.root).open()
    engine.create(LINES)
    ended: list[Worker] = []
    acknowledged = 0
    while acknowledged < rounds:
        workers = [Worker.start(opening, "mixed", f"g{len(ended)}w{n}", 30) for n in range(3)]
        for worker in workers:
            worker.wait_ready()
        for worker in workers:
            worker.go()
        doomed = chance.choice(workers)
        doomed.listen(chance.randrange(30))
        doomed.kill()
        for worker in workers:
            worker.finish()
        ended += workers
        acknowledged = sum(said["told"] == "committed" for worker in ended for said in worker.said)
        assert_nothing_acknowledged_is_lost(engine, ended, place.raw_rows(LINES.name), killed=True)
    return sum(worker.process.returncode != 0 for worker in ended)
