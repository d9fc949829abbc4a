"""Anything done to a catalog in any order agrees with a plain model: short runs here, long ones with `make soak`."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.catalogs import ready_made
from tests.support.machine import Opener, machine_on

ROUNDS = {"memory": (40, 40), "embedded": (8, 30), "spark": (1, 8)}
"""Examples and steps in each, by engine: about a quarter of a minute each."""


def fresh(engine: str, place: Path, request: pytest.FixtureRequest) -> Callable[[], Opener]:
    """A catalog of its own for every example."""
    numbers = itertools.count()
    return lambda: ready_made(engine, place / str(next(numbers)), request)


@pytest.mark.parametrize("engine", ["memory", "embedded"])
def test_the_catalog_agrees_with_a_plain_model(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    examples, steps = ROUNDS[engine]
    machine = machine_on(fresh(engine, tmp_path, request), thorough=engine == "memory")
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps))
