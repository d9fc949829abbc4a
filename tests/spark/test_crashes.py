"""The crash matrix on Spark: each process that is killed had a JVM of its own, which outlives it and may still commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import laminar_delta as ld
from laminar_delta.testing.crashes import Point
from laminar_delta.testing.scenarios import SCENARIOS
from tests.support.matrix import Matrix, quick_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.processes]

SAMPLE = [
    ("taking_over", Point("_commit_fence", "before", 1)),
    ("saving", Point("_append", "before", 3)),
    ("saving", Point("durability.acknowledge", "before", 3)),
]
"""Claimed and not fenced; staged and not committed; committed by the JVM and not told."""


@pytest.fixture(scope="module")
def matrix(spark: SparkSession) -> Iterator[Matrix]:
    with quick_place() as place:
        yield Matrix(place, "spark", lambda catalog: ld.open_catalog(str(catalog), engine="spark", spark=spark))


@pytest.fixture(scope="module")
def embedded() -> Iterator[Matrix]:
    with quick_place() as place:
        yield Matrix(place, "embedded", lambda catalog: ld.open_catalog(str(catalog), engine="embedded"))


@pytest.mark.parametrize(("scenario", "point"), SAMPLE, ids=lambda value: str(value).replace(" ", "-"))
def test_a_process_killed_with_its_jvm_at_work_leaves_the_old_or_the_new(
    scenario: str, point: Point, matrix: Matrix, embedded: Matrix
) -> None:
    """What readers see must be the same on both engines, so the record is made where it takes no minute."""
    assert matrix.kill(scenario, [point], states=embedded.recorded(scenario)) == 1


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_killed_around_any_step_leaves_the_old_or_the_new(scenario: str, matrix: Matrix) -> None:
    points = matrix.recorded(scenario).around()
    assert matrix.kill(scenario, points) == len(points)
