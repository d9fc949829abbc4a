"""Fights between processes over one pipeline, and lives cut short: used by tests and by soak runs at other lengths."""

import random
import time
from collections import Counter
from pathlib import Path

import laminar_delta as ld
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.testing import lives
from laminar_delta.testing.invariants import assert_goes_on
from laminar_delta.testing.scenarios import PIPELINE
from laminar_delta.testing.workers import Worker, run_together


def fight(catalog: ld.Catalog, seconds: float, fighters: int = 4) -> Counter[str]:
    """Lets processes fight for one pipeline and checks what became of all they were told; how often they were told what."""
    place, engine = catalog.engine.location, catalog.engine.name
    workers = [lives.start(place, "fight", f"w{number}", engine=engine, seconds=seconds) for number in range(fighters)]
    run_together(workers)
    assert [worker.process.returncode for worker in workers] == [0] * fighters
    told = Counter(line["told"] for worker in workers for line in worker.said)
    assert set(told) <= {"generation", "saved", "FencedError", "ConflictError"}, told
    lives.assert_all_there(catalog, workers)
    # Nobody was killed, so there is nothing that nobody was told of.
    assert len(catalog.reading.rows(MANIFESTS)) == told["saved"]
    taken = [line["generation"] for worker in workers for line in worker.said if line["told"] == "generation"]
    assert len(set(taken)) == len(taken)
    assert_goes_on(catalog, PIPELINE)
    return told


def die_at_random(place: Path, rounds: int, seed: int) -> int:
    """Keeps one process at work until `rounds` things were acknowledged, killing it at random moments; how many were killed."""
    chance = random.Random(seed)
    catalog = ld.open_catalog(str(place), engine="embedded")
    ended: list[Worker] = []
    while sum(len(worker.said) for worker in ended) < rounds:
        worker = lives.start(str(place), "mixed", f"life-{len(ended)}", seed=chance.randrange(2**32))
        worker.wait_ready()
        worker.go()
        worker.listen(chance.randrange(1, 20))
        time.sleep(chance.random() / 20)
        worker.kill()
        worker.finish()
        ended.append(worker)
        lives.assert_all_there(catalog, ended)
        if chance.random() < 0.2:
            assert_goes_on(catalog, PIPELINE)
    return len(ended)
