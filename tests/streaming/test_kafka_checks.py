"""A look at a real Kafka broker before a query resumes there."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import laminar_delta as ld
from laminar_delta.model import Severity
from laminar_delta.streaming import ResumeCode, check_resume, restore_spark_checkpoint, starting_options
from tests.support.kafka import running_broker
from tests.support.named import location
from tests.support.stream_driver import TOPIC
from tests.support.stream_lives import Input


@pytest.mark.spark  # the broker is a JVM
@pytest.mark.processes
def test_the_broker_is_asked_what_it_still_has(tmp_path: Path) -> None:
    catalog = ld.open_catalog("memory", engine="memory")
    places = {
        "at-the-end": {"orders-0": "8"},
        "in-between": {"orders-0": "5"},
        "too-early": {"orders-0": "3"},
        "too-late": {"orders-0": "9"},
        "elsewhere": {"returns-0": "0"},
        "earliest": {"orders-0": "-2"},
        "grown": {"grown-0": "0"},
        "in-a-transaction": {"begun-0": "3"},
    }
    for pipeline, offsets in places.items():
        with catalog.writer(pipeline) as writer, writer.checkpoint() as cp:
            cp.source("kafka", offsets, metadata={"connector_type": "kafka"})
    with running_broker(tmp_path / "broker") as broker:
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.address}
        broker.create("orders", partitions=1)
        broker.send("orders", [str(number) for number in range(8)])
        broker.create("grown", partitions=2)
        # As retention does: the first five are gone.
        admin = AdminClient({**settings})  # kept: what it was asked ends with it
        deleted = admin.delete_records([TopicPartition("orders", 0, 5)])
        assert [result.result(60).low_watermark for result in deleted.values()] == [5]
        broker.create("begun", partitions=1)
        with broker.transaction("begun", ["0", "1", "2"]):
            found = {name: check_resume(catalog, name, kafka=settings) for name in places}
            committed = check_resume(
                catalog, "in-a-transaction", kafka={**settings, "isolation.level": "read_committed"}
            )
    assert [one.code for one in committed.findings] == [ResumeCode.OFFSET_AHEAD]
    assert {name: [one.code for one in look.findings] for name, look in found.items()} == {
        "at-the-end": [],
        "in-between": [],
        "too-early": [ResumeCode.OFFSET_GONE],
        "too-late": [ResumeCode.OFFSET_AHEAD],
        "elsewhere": [ResumeCode.PARTITION_GONE],
        "earliest": [],
        "grown": [ResumeCode.PARTITION_NEW],
        "in-a-transaction": [],
    }
    assert {name: look.ok for name, look in found.items()} == {
        name: name in ("at-the-end", "in-between", "earliest", "grown", "in-a-transaction") for name in places
    }
    (new,) = found["grown"].findings
    assert (new.severity, new.found) == (Severity.INFO, "grown-1")
    (gone,) = found["too-early"].findings
    assert (gone.expected, gone.found) == (3, 5)
    assert "2 records are gone" in gone.message


@pytest.mark.spark
@pytest.mark.processes
def test_a_query_begins_exactly_where_the_options_say_and_goes_on_where_a_restored_directory_is(tmp_path: Path) -> None:
    ends = {0: 31, 1: 12}
    before = ld.open_catalog("memory", engine="memory")
    with before.writer("before") as writer, writer.checkpoint() as cp:
        offsets = {f"{TOPIC}-{partition}": str(end) for partition, end in ends.items()}
        cp.source("source-0", offsets, metadata={"connector_type": "kafka"})
    with running_broker(tmp_path / "broker") as broker:

        def up_to(ends: Mapping[int, int]) -> Counter[int]:
            read = Counter(int(value) for one, end in ends.items() for value in broker.first(TOPIC, one, end))
            assert read.total() == sum(ends.values())
            return read

        data = Input(tmp_path, ["kafka"], records=200, per_batch=50, broker=broker)
        data.make()
        data.live(begin=starting_options(before, "before", "source-0"))
        assert Counter(data.output("kafka")) == Counter(range(200)) - up_to(ends)

        # Back to the middle, the table left as it is: what came after it comes again, and nothing else.
        catalog = ld.open_catalog(location(tmp_path, by_name=False))
        with catalog.writer("kafka") as writer:
            middle = writer.rewind(2, reason="again").checkpoint_id
        restore_spark_checkpoint(catalog, "kafka", middle, tmp_path / "kafka" / "spark", overwrite=True)
        data.live()
        stood = catalog.pipeline("kafka").get(2).source_offsets["source-0"].offsets
        middles = {one: int(stood[f"{TOPIC}-{one}"]) for one in ends}
        assert sum(ends.values()) < sum(middles.values()) < 200
        again = Counter(range(200)) - up_to(middles)
        assert Counter(data.output("kafka")) == Counter(range(200)) - up_to(ends) + again
