"""Long random runs on a catalog: `make soak ROUNDS=… SEED=…`. Short fixed siblings: `tests/catalog/test_fights.py`."""

import os
from pathlib import Path

import pytest

from tests.support.catalogs import ON_DISK, ready_made
from tests.support.lives import die_at_random, fight

pytestmark = pytest.mark.soak

ROUNDS = int(os.environ.get("LAMINAR_SOAK_ROUNDS", "500"))
SEED = int(os.environ.get("LAMINAR_SOAK_SEED", "1"))


@pytest.mark.parametrize("engine", ON_DISK)
def test_four_processes_fighting_for_a_minute_lose_nothing(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    told = fight(ready_made(engine, tmp_path / "catalog", request)(), seconds=60)
    assert told["saved"] > 0
    assert told["FencedError"] > 0


def test_lives_cut_short_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    assert die_at_random(tmp_path / "catalog", ROUNDS, SEED) > 0
