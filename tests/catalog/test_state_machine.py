"""Anything done to a catalog in any order agrees with a plain model: short runs here, long ones with `make soak`."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.catalogs import ready_made
from tests.support.machine import machine_on
from tests.support.machine.base import Opener

ROUNDS = int(os.environ.get("LAMINAR_SOAK_ROUNDS", "500"))
SEED = int(os.environ.get("LAMINAR_SOAK_SEED", "1"))


def fresh(engine: str, place: Path, request: pytest.FixtureRequest) -> Callable[[], Opener]:
    """A catalog of its own for every example."""
    numbers = itertools.count()
    return lambda: ready_made(engine, place / str(next(numbers)), request)


def run(make: Callable[[], Opener], *, examples: int, steps: int, start: int | None = None) -> None:
    """Runs the machine. In a long run, what it finds is made small, which can take as long again."""
    machine = machine_on(make, thorough=examples > 20)
    if start is not None:
        seed(start)(machine)
    phases = [Phase.generate] if start is None else [Phase.generate, Phase.shrink]
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps, phases=phases)
    )


@pytest.mark.parametrize(("engine", "examples", "steps"), [("memory", 40, 25), ("embedded", 4, 20)])
def test_the_catalog_agrees_with_a_plain_model(
    engine: str, examples: int, steps: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run(fresh(engine, tmp_path, request), examples=examples, steps=steps)


@pytest.mark.also_on_spark
@pytest.mark.spark
def test_the_catalog_agrees_with_a_plain_model_on_spark(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run(fresh("spark", tmp_path, request), examples=1, steps=4)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("engine", "share", "steps"),
    [("memory", 1, 50), ("embedded", 5, 50), pytest.param("spark", 100, 15, marks=pytest.mark.spark)],
    ids=["memory", "embedded", "spark"],
)
def test_a_long_run_agrees_with_a_plain_model(
    engine: str, share: int, steps: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run(fresh(engine, tmp_path, request), examples=max(1, ROUNDS // share), steps=steps, start=SEED)
