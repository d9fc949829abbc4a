"""Long random runs: `make soak ROUNDS=… SEED=…`. Their short fixed siblings run with the conformance suite."""

import os
from pathlib import Path

import pytest

from tests.support.harnesses import EmbeddedHarness
from tests.support.races import race, race_with_kills
from tests.support.spark_harness import SparkHarness

pytestmark = pytest.mark.soak

ROUNDS = int(os.environ.get("LAMINAR_SOAK_ROUNDS", "500"))
SEED = int(os.environ.get("LAMINAR_SOAK_SEED", "1"))


def test_four_processes_on_the_embedded_engine_lose_nothing(tmp_path: Path) -> None:
    place = EmbeddedHarness(tmp_path / "catalog")
    race(place, [place.opening()] * 4, ROUNDS)


def test_an_embedded_and_a_spark_process_lose_nothing(tmp_path: Path) -> None:
    place = EmbeddedHarness(tmp_path / "catalog")
    race(place, [place.opening(), SparkHarness.opening_at(place.root)], ROUNDS)


def test_processes_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    place = EmbeddedHarness(tmp_path / "catalog")
    assert race_with_kills(place, place.opening(), ROUNDS, SEED) > 0
