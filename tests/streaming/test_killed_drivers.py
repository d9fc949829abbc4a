"""Drivers killed with SIGKILL at every phase of a batch, over Kafka, Delta and file sources and a query with state of Spark's
own: each record comes out once, whether the catalog is given by path or by name.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from laminar_delta.catalog.sinks import Step, When
from laminar_delta.streaming import BatchStep
from tests.support.kafka import running_broker
from tests.support.stream_driver import COUNTS, DURING, MOST_PER_LIFE, PHASES, Kill
from tests.support.stream_executors import AGAIN, LOST
from tests.support.stream_lives import Input, planned_kills

pytestmark = [pytest.mark.spark, pytest.mark.processes]

SOURCES = ("files", "delta", "kafka", COUNTS)
KILLS = 20
NAMED = [pytest.param(False, id="by path"), pytest.param(True, id="by name")]
CLUSTER = "local-cluster[2,1,1024]"


def died_at(kill: Kill) -> dict[str, Any]:
    """What a driver writes down that died as planned."""
    return {"pipeline": kill.pipeline, "step": kill.step, "side": kill.moment, "count": kill.count}


@pytest.mark.parametrize("by_name", [NAMED[0], pytest.param(True, id="by name", marks=pytest.mark.soak)])
def test_four_queries_of_a_driver_killed_three_times_deliver_each_record_once(
    tmp_path: Path, by_name: bool, request: pytest.FixtureRequest
) -> None:
    with running_broker(tmp_path / "broker") as broker:
        data = Input(tmp_path, SOURCES, records=200, per_batch=50, broker=broker, by_name=by_name)
        data.make()
        kills = [
            Kill("kafka", Step.COMMIT.value, DURING, 1, jvm_too=True),
            Kill("files", Step.SAVE.value, When.AFTER.value, 1, jvm_too=False),
            # Not before the batch that was killed last has been replayed.
            Kill(COUNTS, BatchStep.DELIVER.value, When.AFTER.value, 1, jvm_too=True, once_told="files"),
        ]
        for kill in kills:
            data.live(kill, most_per_life=1)  # of four batches: the last one killed must still have one
        data.live()
    data.assert_each_once(request)
    assert data.deaths() == [died_at(kill) for kill in kills]
    told = {(result["pipeline"], result["delivery"]) for result in data.results()}
    assert (COUNTS, "replayed-delivered") in told
    assert ("files", "replayed-written") in told


@pytest.mark.soak
@pytest.mark.parametrize(
    ("by_name", "cluster"),
    [
        pytest.param(False, False, id="by path"),
        pytest.param(True, False, id="by name"),
        pytest.param(False, True, id="on a cluster"),
    ],
)
def test_twenty_kills_over_a_hundred_thousand_records(
    tmp_path: Path, by_name: bool, cluster: bool, request: pytest.FixtureRequest
) -> None:
    """Four queries at once: a kill at a chosen step of one of them hits the others wherever they are. On a cluster an executor
    is lost at work too.
    """
    master: dict[str, Any] = {"master": CLUSTER} if cluster else {}
    seed = int(os.environ.get("LAMINAR_SOAK_SEED", "7"))
    kills = planned_kills(seed, SOURCES, KILLS)
    with running_broker(tmp_path / "broker") as broker:
        data = Input(tmp_path, SOURCES, records=100_000, per_batch=1_250, broker=broker, by_name=by_name)
        # So many batches that no query comes to its end before it was killed as often as planned.
        assert data.records // data.per_batch > KILLS * MOST_PER_LIFE
        data.make()
        for kill in kills:
            data.live(kill, **master)  # fails unless it was killed
        data.live(None, **master, lose_executor="files" if cluster else None)
    if cluster:
        assert_lost_at_work(data, "files")
    died = data.deaths()
    assert died == [died_at(kill) for kill in kills]
    phases = Counter(DURING if death["side"] == DURING else death["step"] for death in died)
    assert all(phases[phase] >= 2 for phase in (*PHASES, DURING)), phases
    sides = {(death["step"], death["side"]) for death in died}
    both = (Step.SAVE.value, Step.COMMIT.value, BatchStep.DELIVER.value)
    assert sides >= {(step, side.value) for step in both for side in When}
    assert {death["pipeline"] for death in died} == set(SOURCES)
    data.assert_each_once(request)


@pytest.mark.soak
@pytest.mark.parametrize("by_name", NAMED)
@pytest.mark.parametrize("source", SOURCES)
def test_a_cluster_that_loses_its_driver_and_an_executor_at_work(
    tmp_path: Path, source: str, by_name: bool, request: pytest.FixtureRequest
) -> None:
    with running_broker(tmp_path / "broker") as broker:
        data = Input(tmp_path, [source], records=20_000, per_batch=2_000, broker=broker, by_name=by_name)
        data.make()
        data.live(Kill(source, Step.COMMIT.value, DURING, 2, jvm_too=True), master=CLUSTER)
        data.live(lose_executor=source, master=CLUSTER)
    assert_lost_at_work(data, source)
    data.assert_each_once(request)


def assert_lost_at_work(data: Input, source: str) -> None:
    """An executor was writing; its work was given to another one; and what it had begun is nobody's."""
    lost, again = (json.loads((data.home / name).read_text()) for name in (LOST, AGAIN))
    assert lost["batch"] == again["batch"]
    assert lost["task"] < again["task"]
    assert lost["executor"] != again["executor"]
    assert lost["begun"]
    assert set(lost["begun"]).isdisjoint(path.name for path in data.files(source))
