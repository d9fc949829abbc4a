"""Options to begin where a checkpoint was, and a look at the sources before."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

import laminar_delta as ld
from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.catalog.tables import SINK_STATUSES
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, CorruptionError, ErrorCode, InvalidInputError, NotFoundError
from laminar_delta.interop.sparkdir.logs import connector_checkpoints, parse_offsets
from laminar_delta.model import Severity, SinkCommitStatus
from laminar_delta.streaming import (
    capture_spark_checkpoint,
    check_resume,
    files_read,
    restore_spark_checkpoint,
    starting_options,
)
from laminar_delta.streaming.checks import ResumeCode
from laminar_delta.streaming.lines import DOCUMENT, Line, document
from laminar_delta.streaming.offsets import END_INDEX
from tests.support.stream_plans import Asked

SPARK = Path(__file__).parents[1] / "data" / "spark"


@pytest.fixture
def catalog() -> ld.Catalog:
    return ld.open_catalog("memory", engine="memory")


def captured(catalog: ld.Catalog, tmp_path: Path, offset: str) -> Path:
    """A directory whose newest batch is at an offset, brought in."""
    query = tmp_path / "query"
    shutil.copytree(SPARK / "hdfs", query)
    shutil.rmtree(query / "sources")
    for path in (query / "offsets").iterdir():
        path.write_text("\n".join([*path.read_text().split("\n")[:2], offset]))
    capture_spark_checkpoint(catalog, "q", query)
    return query


def test_kafka_begins_at_the_offsets(catalog: ld.Catalog, tmp_path: Path) -> None:
    captured(catalog, tmp_path, '{"t-x":{"0":5,"11":-1},"orders":{"0":7}}')
    options = starting_options(catalog, "q", "source-0")
    assert json.loads(options["startingOffsets"]) == {"t-x": {"0": 5, "11": -1}, "orders": {"0": 7}}
    assert starting_options(catalog, "q", "source-0", 2) == options


def test_offsets_that_were_moved_are_the_ones_that_count(catalog: ld.Catalog, tmp_path: Path) -> None:
    captured(catalog, tmp_path, '{"orders":{"0":7,"1":3}}')
    with catalog.writer("q") as writer:
        moved = writer.edit_offsets({"source-0": {"orders-0": "100"}}, reason="skip a poison pill")
    options = starting_options(catalog, "q", "source-0")
    assert json.loads(options["startingOffsets"]) == {"orders": {"0": 100, "1": 3}}
    restore_spark_checkpoint(catalog, "q", moved.checkpoint_id, tmp_path / "out")
    assert (tmp_path / "out/offsets/3").read_text().split("\n")[2] == '{"orders":{"0":100,"1":3}}'
    assert (tmp_path / "out/offsets/2").read_text().split("\n")[2] == '{"orders":{"0":7,"1":3}}'


@pytest.mark.parametrize("moved", ["abc", "1_000", " 7", "\u0663", None])
def test_what_is_no_offset_is_not_written_for_spark(catalog: ld.Catalog, tmp_path: Path, moved: str | None) -> None:
    """Whatever Python takes for a number; and a source that has no partition left."""
    captured(catalog, tmp_path, '{"orders":{"0":7}}')
    with catalog.writer("q") as writer:
        edited = writer.edit_offsets({"source-0": {"orders-0": moved}}, reason="by hand")
    with pytest.raises(CorruptionError, match="'source-0' are not Kafka's"):
        restore_spark_checkpoint(catalog, "q", edited.checkpoint_id, tmp_path / "out")
    with pytest.raises(CorruptionError, match="'source-0' are not Kafka's"):
        starting_options(catalog, "q", "source-0")
    assert not (tmp_path / "out").exists()


def test_a_query_with_state_of_spark_s_own_is_moved_too(catalog: ld.Catalog, tmp_path: Path) -> None:
    """Its state comes from a capture, which has the offsets that the batch was run with, not those it was moved to."""
    query = captured(catalog, tmp_path, '{"orders":{"0":7,"1":3}}')
    line = Line(pipeline="orders", query_id=json.loads((query / "metadata").read_text())["id"])

    def save(writer: Any, batch: int, text: str) -> None:
        """As `foreach_batch` does it."""
        with writer.checkpoint(epoch=batch + 1) as cp:
            (found,) = connector_checkpoints(parse_offsets("", text.encode()), batch + 1).values()
            cp.source("source-0", found.offsets, metadata=found.metadata)
            cp.state(DOCUMENT, document(line, batch, {"offsets": text}, []))

    with catalog.writer("orders") as writer:
        for batch in range(4):
            save(writer, batch, (query / "offsets" / str(batch)).read_text())
        moved = writer.edit_offsets({"source-0": {"orders-0": "100"}}, reason="skip a poison pill")
    made = restore_spark_checkpoint(catalog, "orders", moved.checkpoint_id, tmp_path / "out", captured_in="q")
    assert (made.batch_id, made.notes) == (3, ())
    assert made.state_files > 0
    head, told, offsets = (tmp_path / "out/offsets/3").read_text().split("\n")
    assert [head, told] == (query / "offsets/3").read_text().split("\n")[:2]
    assert offsets == '{"orders":{"0":100,"1":3}}'
    assert (tmp_path / "out/offsets/2").read_text() == (query / "offsets/2").read_text()
    assert (tmp_path / "out/commits/3").read_text() == (query / "commits/3").read_text()
    # What was captured of another run of the batch is still refused: its state is not that of this one.
    with catalog.writer("orders") as writer:
        save(writer, 3, (query / "offsets/3").read_text().replace('"0":7', '"0":8'))
        other = writer.edit_offsets({"source-0": {"orders-0": "7"}}, reason="as the capture has it")
    with pytest.raises(ConflictError, match="with other offsets"):
        restore_spark_checkpoint(catalog, "orders", other.checkpoint_id, tmp_path / "no", captured_in="q")


def test_an_offset_of_another_kind_that_was_moved_is_not_written(catalog: ld.Catalog, tmp_path: Path) -> None:
    captured(catalog, tmp_path, '{"reservoirId":"r","reservoirVersion":6,"index":-1,"isStartingVersion":false}')
    with catalog.writer("q") as writer:
        moved = writer.edit_offsets({"source-0": {"reservoirVersion": "2"}}, reason="again")
    with pytest.raises(InvalidInputError, match="starting_options"):
        restore_spark_checkpoint(catalog, "q", moved.checkpoint_id, tmp_path / "out")
    assert starting_options(catalog, "q", "source-0") == {"startingVersion": "2"}


def test_a_source_written_by_hand_begins_too(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("named", {"0": "1500", "1": "980"}, metadata={"topic": "orders"})
        cp.source("typed", {"orders-0": "7"}, metadata={"connector_type": "kafka"})
        cp.source("wrong", {"orders-0": "seven"}, metadata={"connector_type": "kafka"})
        cp.source("unknown", {"lsn": "0/16B3748"})
    named = starting_options(catalog, "orders", "named")
    assert json.loads(named["startingOffsets"]) == {"orders": {"0": 1500, "1": 980}}
    assert json.loads(starting_options(catalog, "orders", "typed")["startingOffsets"]) == {"orders": {"0": 7}}
    with pytest.raises(CorruptionError):
        starting_options(catalog, "orders", "wrong")
    with pytest.raises(InvalidInputError) as caught:
        starting_options(catalog, "orders", "unknown")
    assert caught.value.code is ErrorCode.UNSUPPORTED
    with pytest.raises(NotFoundError, match="named, typed, unknown, wrong"):
        starting_options(catalog, "orders", "kafka")
    with pytest.raises(NotFoundError):
        starting_options(catalog, "nothing", "kafka")


@pytest.mark.parametrize(
    ("index", "is_snapshot", "exact", "repeated"),
    [
        (-1, False, 6, 6),
        (-100, False, 6, 6),
        (END_INDEX, False, 7, 7),
        (2, False, None, 6),
        (2, True, None, None),
        (-1, True, None, None),
    ],
)
def test_delta_begins_with_whole_versions(
    catalog: ld.Catalog, tmp_path: Path, index: int, is_snapshot: bool, exact: int | None, repeated: int | None
) -> None:
    offset = {
        "sourceVersion": 1,
        "reservoirId": "r",
        "reservoirVersion": 6,
        "index": index,
        "isStartingVersion": is_snapshot,
    }
    captured(catalog, tmp_path, json.dumps(offset))
    for repeat, version in ((False, exact), (True, repeated)):
        if version is None:
            with pytest.raises(ConflictError, match="restore_spark_checkpoint"):
                starting_options(catalog, "q", "source-0", repeat=repeat)
        else:
            assert starting_options(catalog, "q", "source-0", repeat=repeat) == {"startingVersion": str(version)}


def test_a_delta_source_that_has_read_everything_begins_with_a_version_that_is_there(
    catalog: ld.Catalog, tmp_path: Path
) -> None:
    """Delta refuses a `startingVersion` behind the newest, and that is where `availableNow` leaves a source."""
    table, session = tmp_path / "in", Asked()
    where: Any = {"spark": session, "table": str(table)}
    look: Any = {"spark": session, "tables": {"source-0": str(table)}}
    for _ in range(2):
        write_deltalake(table, pa.table({"n": [1]}), mode="append")
    behind = {"reservoirId": DeltaTable(table).metadata().id, "reservoirVersion": 2, "index": -1}
    captured(catalog, tmp_path, json.dumps({**behind, "isStartingVersion": False}))
    with pytest.raises(ConflictError, match=r"has read all of .*/in: Delta refuses `startingVersion` 2") as caught:
        starting_options(catalog, "q", "source-0", **where)
    assert (caught.value.expected, caught.value.found) == ("a version up to 1", 2)
    for way in ("next commit", "restore_spark_checkpoint", "timestampOutOfRange.enabled"):
        assert way in (caught.value.next_step or "")
    found = check_resume(catalog, "q", **look)
    assert [(one.code, one.severity) for one in found.findings] == [(ResumeCode.VERSION_AWAITED, Severity.WARNING)]
    # A directory that is restored there waits: nothing speaks against that.
    assert (found.ok, found.findings[0].next_step) == (True, caught.value.next_step)
    with pytest.raises(InvalidInputError, match="cannot be asked"):
        starting_options(catalog, "q", "source-0", spark=where["spark"])
    write_deltalake(table, pa.table({"n": [2]}), mode="append")
    assert starting_options(catalog, "q", "source-0", **where) == {"startingVersion": "2"}
    assert check_resume(catalog, "q", **look).findings == ()
    with catalog.writer("q") as writer:
        writer.edit_offsets({"source-0": {"reservoirVersion": "4"}}, reason="test")
    with pytest.raises(ConflictError, match="has only 2: it was copied or set back"):
        starting_options(catalog, "q", "source-0", **where)
    # In the middle of a snapshot it is that version which has to be there.
    with catalog.writer("q") as writer:
        writer.edit_offsets({"source-0": {"reservoirVersion": "3", "isStartingVersion": "true"}}, reason="test")
    assert [one.code for one in check_resume(catalog, "q", **look).findings] == [ResumeCode.VERSION_AHEAD]


def test_files_have_no_option_and_tell_what_was_read(catalog: ld.Catalog) -> None:
    capture_spark_checkpoint(catalog, "q", SPARK / "hdfs")
    with pytest.raises(InvalidInputError, match="files_read"):
        starting_options(catalog, "q", "source-0")
    notes = [json.loads((SPARK / f"hdfs/sources/0/{n}").read_text().split("\n")[1])["path"] for n in range(4)]
    notes = [note.replace("file:///", "file:/") for note in notes]  # as the column has them
    assert files_read(catalog, "q", "source-0", 2) == sorted(notes[:2])
    assert files_read(catalog, "q", "source-0") == sorted(notes)


def test_a_broker_that_does_not_answer_is_a_finding(catalog: ld.Catalog, tmp_path: Path) -> None:
    captured(catalog, tmp_path, '{"orders":{"0":7}}')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # never listens
        settings = {"bootstrap.servers": f"127.0.0.1:{taken.getsockname()[1]}", "log_level": 0}
        found = check_resume(catalog, "q", kafka=settings, timeout_s=0.5)
    (finding,) = found.findings
    assert (finding.code, finding.severity, finding.source) == (
        ResumeCode.SOURCE_UNREACHABLE,
        Severity.FATAL,
        "source-0",
    )
    assert not found.ok
    assert finding.next_step


def test_the_query_is_compared_and_what_was_not_looked_at_is_said(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"orders-0": "7"}, metadata={"connector_type": "kafka"})
        cp.describe(pipeline_hash=5)
    assert [found.code for found in check_resume(catalog, "orders").findings] == [ResumeCode.NOT_CHECKED]
    assert check_resume(catalog, "orders", query_hash=5).ok
    changed = check_resume(catalog, "orders", query_hash=6)
    assert not changed.ok
    assert (changed.findings[-1].code, changed.findings[-1].expected, changed.findings[-1].found) == (
        ResumeCode.QUERY_CHANGED,
        5,
        6,
    )
    with catalog.writer("orders") as writer, writer.checkpoint():
        pass
    unknown = check_resume(catalog, "orders", query_hash=6)
    assert unknown.ok
    assert [(found.code, found.severity) for found in unknown.findings] == [
        (ResumeCode.QUERY_UNKNOWN, Severity.WARNING)
    ]


def test_what_a_sink_may_have_is_not_begun_behind(catalog: ld.Catalog) -> None:
    """A run died after it saved checkpoint 2. Until the sink was asked, its records are to be left out or not: nobody knows."""
    with catalog.writer("orders") as writer:
        for number, offset in ((1, "100"), (2, "200")):
            with writer.checkpoint() as cp:
                cp.source("source-0", {"orders-0": offset}, metadata={"connector_type": "kafka"})
                cp.sink("out")
            if number == 1:
                writer.sink_committed(cp.id, "out")
    delivered = {"startingOffsets": '{"orders":{"0":100}}'}

    def assert_refused(told: str) -> None:
        assert starting_options(catalog, "orders", "source-0", 1) == delivered
        assert check_resume(catalog, "orders").checkpoint_id == 1
        with pytest.raises(ConflictError, match=told) as caught:
            starting_options(catalog, "orders", "source-0", 2)
        assert caught.value.next_step
        look = check_resume(catalog, "orders", 2)
        assert not look.ok
        assert (look.findings[0].code, look.findings[0].severity) == (ResumeCode.NOT_DELIVERED, Severity.FATAL)

    assert_refused("sink 'out' is Pending")
    for asked in (starting_options, files_read):
        with pytest.raises(
            ConflictError, match=r"checkpoint 1, and checkpoint 2 may be in.*'out' is Pending"
        ) as caught:
            asked(catalog, "orders", "source-0")
        assert (caught.value.found, caught.value.details) == ([2], {"checkpoint_id": 1})
        assert "Then ask again" in caught.value.next_step
    with catalog.writer("orders") as writer:
        assert writer.recover().chosen_id == 1  # passes over 2 for good
    assert_refused("a later recovery passed over it")
    assert starting_options(catalog, "orders", "source-0") == delivered


def test_a_checkpoint_whose_status_changes_somebody_deleted_is_delivered_all_the_same(catalog: ld.Catalog) -> None:
    """By name as by default: recovery finds the changes in an earlier version."""
    with catalog.writer("orders") as writer:
        with writer.checkpoint() as cp:
            cp.source("source-0", {"orders-0": "100"}, metadata={"connector_type": "kafka"})
            cp.sink("out")
        writer.sink_committed(cp.id, "out")
    catalog.engine.delete(SINK_STATUSES.name, col("pipeline").eq("orders"))
    expected = {"startingOffsets": '{"orders":{"0":100}}'}
    for number in (None, cp.id):
        assert starting_options(catalog, "orders", "source-0", number) == expected


def test_a_checkpoint_that_a_sink_failed_to_deliver_is_begun_at_only_if_that_was_accepted(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        with writer.checkpoint() as cp:
            cp.source("source-0", {"orders-0": "7"}, metadata={"connector_type": "kafka"})
            cp.sink("out")
        writer.set_sink_statuses(cp.id, {"out": SinkCommitStatus.failed("bad row")})
    with pytest.raises(NotFoundError, match="no checkpoint to go on from"):
        starting_options(catalog, "orders", "source-0")
    accepted = {"startingOffsets": '{"orders":{"0":7}}'}
    for number in (None, 1):
        given = starting_options(catalog, "orders", "source-0", number, failed_sinks=FailedSinks.ACCEPT)
        assert given == accepted
        assert check_resume(catalog, "orders", number, failed_sinks=FailedSinks.ACCEPT).ok


def test_partitions_that_are_new_since_begin_at_their_beginning(catalog: ld.Catalog) -> None:
    """Spark refuses starting offsets that leave a partition out. The broker is the one librdkafka has for tests."""
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("source-0", {"orders-0": "0", "orders-2": "0"}, metadata={"connector_type": "kafka"})
    cluster = Producer({"bootstrap.servers": "its own", "test.mock.num.brokers": 1, "log_level": 0})
    known = cluster.list_topics("orders", timeout=60)
    (broker,) = known.brokers.values()
    settings = {"kafka.bootstrap.servers": f"{broker.host}:{broker.port}"}
    options = starting_options(catalog, "orders", "source-0", kafka=settings)
    assert json.loads(options["startingOffsets"]) == {"orders": {"0": 0, "1": -2, "2": 0, "3": -2}}
    look = check_resume(catalog, "orders", kafka=settings)
    assert [(finding.code, finding.found) for finding in look.findings] == [
        (ResumeCode.PARTITION_NEW, "orders-1"),
        (ResumeCode.PARTITION_NEW, "orders-3"),
    ]
    assert "starting_options" in look.findings[0].next_step


@pytest.mark.parametrize("settings", [{"security.protocol": "nonsense"}, {"kafka.no.such.setting": "1"}])
def test_settings_that_are_not_kafka_s_are_a_finding(catalog: ld.Catalog, settings: dict[str, str]) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("source-0", {"orders-0": "7"}, metadata={"connector_type": "kafka"})
    given = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings}
    (finding,) = check_resume(catalog, "orders", kafka=given, timeout_s=0.5).findings
    assert (finding.code, finding.severity) == (ResumeCode.SOURCE_UNREACHABLE, Severity.FATAL)
    assert "are not Kafka's" in finding.message
    with pytest.raises(InvalidInputError):
        starting_options(catalog, "orders", "source-0", kafka=given)


def test_an_offset_that_is_no_number_is_a_finding(catalog: ld.Catalog) -> None:
    offsets = {"reservoirId": "r", "reservoirVersion": "x", "index": "-1", "isStartingVersion": "true"}
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("source-0", offsets, metadata={"connector_type": "spark-delta"})
    not_asked: Any = object()
    look = check_resume(catalog, "orders", spark=not_asked, tables={"source-0": "/lake/in"})
    assert [finding.code for finding in look.findings] == [ResumeCode.SOURCE_UNREACHABLE]
    assert "reservoirVersion of source 'source-0' is no number" in look.findings[0].message
