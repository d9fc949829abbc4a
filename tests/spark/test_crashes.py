"""The crash matrix on Spark: what killed processes had asked of their JVM, it may still do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import laminar_delta as ld
from laminar_delta.testing.crashes import Point, die
from laminar_delta.testing.invariants import assert_goes_on, assert_sound, holdings, uncommitted
from laminar_delta.testing.scenarios import PIPELINE, SCENARIOS
from laminar_delta.testing.steps import JVM_STEPS, OPTIONAL, engine_steps
from tests.support.kept_jvm import KeptJvm
from tests.support.matrix import Matrix, quick_place, without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.processes]

SAMPLE = [
    ("saving", Point("durability.acknowledge", "before", 3)),
    ("saving", Point("_append", "before", 3)),
    ("taking_over", Point("_commit_fence", "before", 1)),
]
"""Committed by the JVM and not told; staged and not committed; claimed and not fenced."""

SESSION = ("committing_sessions", Point("_merge", "after", 1))
"""A session committed by the JVM and not told."""


@pytest.fixture(scope="module")
def matrix(spark: SparkSession) -> Iterator[Matrix]:
    with quick_place() as place:
        yield Matrix(place, "spark", lambda catalog: ld.open_catalog(str(catalog), engine="spark", spark=spark))


@pytest.fixture(scope="module")
def embedded() -> Iterator[Matrix]:
    with quick_place() as place:
        yield Matrix(place, "embedded", lambda catalog: ld.open_catalog(str(catalog), engine="embedded"))


def test_processes_killed_with_their_jvm_at_work_leave_the_old_or_the_new(matrix: Matrix, embedded: Matrix) -> None:
    """One after the other in the same catalog: each takes over from a JVM that may not have ended yet.

    What readers see must be the same on both engines, so the record is made where it does not take a minute.
    """
    before, saved = embedded.recorded("saving").states
    home = matrix.home("saving", "sample")
    assert holdings(without_spark(home)) == before
    for scenario, point in SAMPLE:
        assert die("spark", home, scenario, point)
        # The first one's commit stood when it was killed, the others changed nothing that readers see.
        assert holdings(without_spark(home)) == saved, point
    assert len(uncommitted(without_spark(home), PIPELINE)) == 2
    assert die("spark", home, *SESSION)
    committed = embedded.recorded("committing_sessions").states[1][PIPELINE]["positions"]
    assert holdings(without_spark(home)) == {**saved, PIPELINE: {**saved[PIPELINE], "positions": committed}}
    catalog = matrix.open(home / "catalog")
    assert_goes_on(catalog, PIPELINE)
    assert_sound(without_spark(home))


@pytest.fixture(scope="module")
def kept(matrix: Matrix, spark: SparkSession) -> Iterator[Matrix]:
    """The processes share the JVM of the tests: hundreds of them would take half a day with one each."""
    jvm = KeptJvm(spark)
    with quick_place() as place:
        yield Matrix(place, "spark", matrix.open, jvm.live, jvm.settle)


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_killed_at_any_state_of_the_disk_leaves_the_old_or_the_new(scenario: str, kept: Matrix) -> None:
    points = kept.recorded(scenario).distinct()
    assert kept.kill(scenario, points) == len(points)


@pytest.mark.soak
def test_a_process_killed_on_either_side_of_every_step_leaves_the_old_or_the_new(kept: Matrix) -> None:
    """Of what the JVM has a part in too; and where the test above did not come by, because the disk is the same there."""
    records = {scenario: kept.recorded(scenario) for scenario in SCENARIOS}
    met = {(point.step, point.moment) for record in records.values() for point in record.distinct()}
    # In a save where it comes by there: that is the shortest.
    names = [*SCENARIOS, "saving"]
    sides = {side: (name, point) for name in names for side, point in records[name].sides().items()}
    # Spark writes nothing ahead.
    steps = {*engine_steps(), *JVM_STEPS} - OPTIONAL
    assert steps <= {step for step, _ in sides}
    for (step, moment), (scenario, point) in sides.items():
        if step in steps and (step, moment) not in met:
            assert kept.kill(scenario, [point]) == 1


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_killed_with_a_jvm_of_its_own_leaves_the_old_or_the_new(
    scenario: str, kept: Matrix, matrix: Matrix
) -> None:
    """Somewhere in the middle: the JVM may be at work for seconds, and ends by itself."""
    record = kept.recorded(scenario)
    points = record.distinct()
    assert matrix.kill(scenario, [points[len(points) // 2]], record) == 1
