"""Drivers killed with SIGKILL at every phase of a batch, over Kafka, Delta and file sources: each record comes out once."""

import os
from pathlib import Path

import pytest

from laminar_delta.catalog.sinks import Step, When
from laminar_delta.streaming import BatchStep
from tests.support.kafka import running_broker
from tests.support.stream_driver import DURING, PHASES, Kill
from tests.support.stream_lives import Input, planned_kills

pytestmark = [pytest.mark.spark, pytest.mark.processes]

SOURCES = ("files", "delta", "kafka")
KILLS = 20


def test_three_queries_of_a_driver_killed_three_times_deliver_each_record_once(tmp_path: Path) -> None:
    with running_broker(tmp_path / "broker") as broker:
        data = Input(tmp_path, SOURCES, records=200, per_batch=50, broker=broker)
        data.make()
        for kill in (
            Kill("kafka", Step.COMMIT.value, DURING, 1, jvm_too=True),
            Kill("files", Step.SAVE.value, When.AFTER.value, 1, jvm_too=False),
            Kill("delta", BatchStep.DELIVER.value, When.AFTER.value, 1, jvm_too=True),
        ):
            data.live(kill)
        data.live()
    data.assert_each_once()
    told = {(result["pipeline"], result["delivery"]) for result in data.results()}
    assert ("delta", "replayed-delivered") in told
    assert ("files", "replayed-written") in told


@pytest.mark.soak
@pytest.mark.parametrize("source", SOURCES)
def test_twenty_kills_over_a_hundred_thousand_records(tmp_path: Path, source: str) -> None:
    seed = int(os.environ.get("LAMINAR_SOAK_SEED", "7"))
    kills = planned_kills(seed, [source], KILLS)
    hit = [kill.phase for kill in kills]
    assert all(hit.count(phase) >= 2 for phase in (*PHASES, f"{DURING} {Step.COMMIT.value}"))
    with running_broker(tmp_path / "broker") as broker:
        data = Input(tmp_path, [source], records=100_000, per_batch=1_000, broker=broker)
        data.make()
        for kill in kills:
            data.live(kill)  # fails unless it died there
        data.live()
    data.assert_each_once()


@pytest.mark.soak
@pytest.mark.parametrize("source", SOURCES)
def test_a_cluster_that_loses_an_executor_and_its_driver(tmp_path: Path, source: str) -> None:
    with running_broker(tmp_path / "broker") as broker:
        data = Input(tmp_path, [source], records=20_000, per_batch=2_000, broker=broker)
        data.make()
        master = "local-cluster[2,1,1024]"
        data.live(Kill(source, Step.COMMIT.value, DURING, 2, jvm_too=True), master=master)
        data.live(kill_executor=True, master=master)
        assert (tmp_path / "executor.killed").exists()
    data.assert_each_once()
