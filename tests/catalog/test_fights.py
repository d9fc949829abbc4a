"""Several processes want the same pipeline at once: one has it at a time, and everybody knows."""

from pathlib import Path

import pytest

import laminar_delta as ld
from tests.support.lives import die_at_random, fight

pytestmark = pytest.mark.processes


def test_four_processes_fighting_for_a_pipeline_lose_nothing(tmp_path: Path) -> None:
    told = fight(ld.open_catalog(str(tmp_path / "catalog"), engine="embedded"), seconds=10)
    assert told["saved"] > 0
    assert told["FencedError"] > 0


def test_lives_cut_short_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    assert die_at_random(tmp_path / "catalog", rounds=30, seed=7) > 1
