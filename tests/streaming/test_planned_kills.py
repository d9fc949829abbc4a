"""Where drivers are to be killed: at every point of a batch, whatever the seed."""

from collections import Counter

import pytest

from laminar_delta.catalog.sinks import When
from tests.support.stream_driver import COUNTS, DURING, PHASES
from tests.support.stream_lives import planned_kills

SOURCES = ("files", "delta", "kafka", COUNTS)


@pytest.mark.parametrize("seed", range(50))
def test_both_sides_of_every_phase_are_hit_whatever_the_seed(seed: int) -> None:
    kills = planned_kills(seed, SOURCES, 20)
    assert len(kills) == 20
    points = Counter((kill.step, kill.moment) for kill in kills)
    assert all(points[phase, side.value] >= 1 for phase in PHASES for side in When)
    assert points["commit", DURING] >= 2
    assert Counter(kill.pipeline for kill in kills) == dict.fromkeys(SOURCES, 5)
    # Never behind more batches than a life may come to.
    assert {kill.count for kill in kills} <= {1, 2}
