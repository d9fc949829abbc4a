"""A finished query is taken back, its sink with it, and run again: the same output, and no batch skipped."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import expr

import laminar_delta as ld
from laminar_delta.errors import ConflictError, NotFoundError
from laminar_delta.model import Severity
from laminar_delta.streaming import (
    BatchResult,
    CheckpointListener,
    Delivery,
    DeltaSink,
    ResumeCode,
    capture_spark_checkpoint,
    check_resume,
    foreach_batch,
    restore_spark_checkpoint,
    schema_hash,
    starting_options,
)
from tests.support.streams import FIRST_FILE_AT, quick

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

BATCHES = 5
BACK = 3
PROVIDERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


@pytest.fixture
def session(spark: "SparkSession") -> "SparkSession":
    """A session in which small things are quick."""
    return quick(spark)


@pytest.fixture(params=["by path", pytest.param("by name", marks=pytest.mark.soak)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, spark: "SparkSession") -> ld.Catalog:
    """By path the embedded engine commits, by name Spark does: the same tests."""
    if request.param == "by name":
        return ld.open_catalog(f"ckpt_{uuid4().hex}", engine="spark", spark=spark)
    return ld.open_catalog(str(tmp_path / "catalog"))


def fill_files(place: Path) -> None:
    place.mkdir()
    for number in range(BATCHES):
        rows = [{"key": f"k{one % 3}", "n": number * 10 + one} for one in range(5)]
        path = place / f"{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (FIRST_FILE_AT + number,) * 2)  # Spark reads files in the order of their times


def fill_sides(place: Path) -> None:
    """Two sides of a join: the right one has what goes with the left one's file, and with that of the batch before."""
    for side in ("left", "right"):
        (place / side).mkdir(parents=True)
        for number in range(BATCHES):
            ids = [number * 10 + one for one in range(5)]
            if side == "right":
                ids = ids[:2] + [before - 10 for before in ids[2:] if number]
            rows = [{"id": one, "at": f"2024-01-01T00:{number:02}:00Z"} for one in ids]
            path = place / side / f"{number}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(path, (FIRST_FILE_AT + number,) * 2)


def finish(query: "DataFrame", place: Path, sink: Path, mode: str = "append") -> None:
    writer = query.writeStream.format("delta").outputMode(mode).option("checkpointLocation", str(place))
    started = writer.queryName("rewound").trigger(availableNow=True).start(str(sink))
    assert started.awaitTermination(600)


def history(session: "SparkSession", sink: Path) -> list[tuple[int, str, str | None, str | None]]:
    """Version, operation, and for batches query and number; oldest first."""
    rows = session.sql(f"DESCRIBE HISTORY delta.`{sink}`").orderBy("version").collect()
    told = [(row.version, row.operation, row.operationParameters) for row in rows]
    return [(version, word, said.get("queryId"), said.get("epochId")) for version, word, said in told]


def version_after(session: "SparkSession", sink: Path, query_id: str, batch: int) -> int:
    return next(v for v, _, query, number in history(session, sink) if (query, number) == (query_id, str(batch)))


def content(session: "SparkSession", sink: Path, version: int | None = None) -> list[Any]:
    reader = session.read.format("delta")
    frame = (reader if version is None else reader.option("versionAsOf", version)).load(str(sink))
    return sorted(tuple(row) for row in frame.collect())


@contextmanager
def listening(session: "SparkSession", catalog: ld.Catalog) -> Iterator[CheckpointListener]:
    """Within: what queries say of themselves is recorded."""
    with CheckpointListener(catalog, {"rewound": "q"}, every_s=3600) as listener:
        session.streams.addListener(listener)
        try:
            yield listener
            bus = session.sparkContext._jsc.sc().listenerBus()
            bus.waitUntilEmpty()
        finally:
            session.streams.removeListener(listener)


def take_back(
    session: "SparkSession", catalog: ld.Catalog, tmp_path: Path, read: Callable[[], "DataFrame"], mode: str
) -> None:
    """Runs a query to its end, takes it and its sink back, and runs it again."""
    place, sink, again = tmp_path / "query", tmp_path / "sink", tmp_path / "again"
    finish(read(), place, sink, mode)
    report = capture_spark_checkpoint(catalog, "q", place)
    assert (len(report.imported), report.skipped, report.notes) == (BATCHES, (), ())
    query_id = json.loads((place / "metadata").read_text())["id"]
    versions = [version_after(session, sink, query_id, batch) for batch in range(BATCHES)]
    outputs = [content(session, sink, version) for version in versions]
    assert len({str(output) for output in outputs}) == BATCHES

    goal = report.imported[-1] - BACK
    stays = catalog.pipeline("q").get(goal).epoch - 1
    session.sql(f"RESTORE TABLE delta.`{sink}` TO VERSION AS OF {versions[stays]}").collect()
    assert content(session, sink) == outputs[stays]
    made = restore_spark_checkpoint(catalog, "q", goal, again)
    assert (made.batch_id, made.is_new_query) == (stays, True)
    finish(read(), again, sink, mode)

    since = [entry for entry in history(session, sink) if entry[2] == made.query_id]
    assert [number for _, _, _, number in since] == [str(batch) for batch in range(stays + 1, BATCHES)]
    assert [content(session, sink, version) for version, _, _, _ in since] == outputs[stays + 1 :]
    # What ran again is history too, beside what ran first.
    report = capture_spark_checkpoint(catalog, "q", again)
    assert report.imported == tuple(range(BATCHES + 1, BATCHES + 1 + BACK))
    first, second = (catalog.pipeline("q").get(number).source_offsets for number in (BATCHES, BATCHES + BACK))
    assert {name: found.offsets for name, found in first.items()} == {
        name: found.offsets for name, found in second.items()
    }


@pytest.mark.parametrize("provider", [pytest.param("hdfs", marks=pytest.mark.soak), "rocksdb"])
def test_a_query_with_state_is_taken_back_with_it(
    provider: str, session: "SparkSession", catalog: ld.Catalog, tmp_path: Path
) -> None:
    session.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[provider])
    fill_files(tmp_path / "in")

    def read() -> "DataFrame":
        files = (
            session.readStream.schema("key string, n long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        )
        return files.groupBy("key").sum("n").toDF("key", "total")

    with listening(session, catalog) as listener:
        take_back(session, catalog, tmp_path, read, "complete")
    assert listener.counts.dropped == listener.counts.failures == 0
    query_id = json.loads((tmp_path / "query" / "metadata").read_text())["id"]
    told = catalog.sql(
        "SELECT batch_id, operator, rows_total, rows_updated, partitions FROM progress_state "
        f"WHERE pipeline = 'q' AND query_id = '{query_id}' ORDER BY batch_id"
    ).to_pylist()
    # Three keys, all in the first file, and in each one after it.
    assert [tuple(row.values()) for row in told if row["batch_id"] < BATCHES] == [
        (batch, "stateStoreSave", 3, 3, 1) for batch in range(BATCHES)
    ]


@pytest.mark.soak
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_join_of_two_sources_is_taken_back_with_state_and_watermark(
    provider: str, session: "SparkSession", catalog: ld.Catalog, tmp_path: Path
) -> None:
    """Several operators' stores, in several partitions: half of what a batch gives comes of what the one before left there."""
    session.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[provider])
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    fill_sides(tmp_path / "in")

    def side(name: str, *columns: str) -> "DataFrame":
        reader = session.readStream.schema("id long, at timestamp").option("maxFilesPerTrigger", 1)
        return reader.json(str(tmp_path / "in" / name)).toDF(*columns).withWatermark(columns[1], "2 minutes")

    def read() -> "DataFrame":
        left, right = side("left", "id", "at"), side("right", "other", "then")
        near = "id = other AND then >= at AND then <= at + INTERVAL 1 MINUTE"
        return left.join(right, expr(near)).select("id", "then")

    take_back(session, catalog, tmp_path, read, "append")
    assert [row[0] for row in content(session, tmp_path / "sink")] == [
        number * 10 + one for number in range(BATCHES) for one in range(5 if number + 1 < BATCHES else 2)
    ]
    _, committed = (tmp_path / "again" / "commits" / str(BATCHES - 1)).read_text().splitlines()
    assert json.loads(committed)["nextBatchWatermarkMs"] > 0


def test_a_pipeline_of_batches_is_taken_back_with_sink_and_state(
    session: "SparkSession", catalog: ld.Catalog, tmp_path: Path
) -> None:
    session.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS["hdfs"])
    fill_files(tmp_path / "in")
    sink = DeltaSink(str(tmp_path / "sink"), mode="overwrite")

    def totals(place: Path) -> "DataStreamWriter":
        reader = session.readStream.schema("key string, n long").option("maxFilesPerTrigger", 1)
        frame = reader.json(str(tmp_path / "in")).groupBy("key").sum("n").toDF("key", "total")
        writer = frame.writeStream.outputMode("complete").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(place))

    def run(place: Path) -> list[BatchResult]:
        results: list[BatchResult] = []
        deliver = foreach_batch(catalog, "q", lambda frame, _: frame, sinks=[sink], on_result=results.append)
        assert totals(place).foreachBatch(deliver).start().awaitTermination(600)
        return results

    def versions(results: list[BatchResult]) -> list[int]:
        return [sink.version_of(catalog, "q", one.checkpoint_id, session) for one in results]

    first = run(tmp_path / "query")
    assert len(first) == BATCHES
    # The pipeline is held by its batches: the directory goes into one of its own.
    captured = capture_spark_checkpoint(catalog, "q.spark", tmp_path / "query")
    assert (len(captured.imported), captured.skipped, captured.notes) == (BATCHES, (), ())
    outputs = [content(session, tmp_path / "sink", version) for version in versions(first)]
    assert len({str(output) for output in outputs}) == BATCHES

    goal = first[-1 - BACK]
    session.sql(
        f"RESTORE TABLE delta.`{tmp_path / 'sink'}` TO VERSION AS OF {versions(first)[goal.batch_id]}"
    ).collect()
    with catalog.writer("q") as writer:
        derived = writer.rewind(goal.checkpoint_id, reason="the last three were wrong")
    made = restore_spark_checkpoint(catalog, "q", derived.checkpoint_id, tmp_path / "again", captured_in="q.spark")
    assert (made.batch_id, made.is_new_query) == (goal.batch_id, True)
    assert made.state_files > 0
    # The checkpoint itself has no state of Spark's: without a capture the query does not begin with none, it ends.
    bare = restore_spark_checkpoint(catalog, "q", derived.checkpoint_id, tmp_path / "bare")
    assert (bare.state_files, len(bare.notes)) == (0, 1)
    with pytest.raises(StreamingQueryException, match="MISSING_STATE_DIRECTORY"):
        totals(tmp_path / "bare").format("noop").start().awaitTermination(600)
    again = run(tmp_path / "again")
    assert [(one.batch_id, one.delivery, one.lineage) for one in again] == [
        (batch, Delivery.FRESH, derived.checkpoint_id) for batch in range(goal.batch_id + 1, BATCHES)
    ]
    assert [content(session, tmp_path / "sink", version) for version in versions(again)] == outputs[goal.batch_id + 1 :]
    with pytest.raises(NotFoundError, match="Capture the query's directory"):
        restore_spark_checkpoint(catalog, "q", again[-1].checkpoint_id, tmp_path / "no", captured_in="q.spark")


def test_a_delta_source_is_taken_back_looked_at_and_begun_by_options(
    session: "SparkSession", catalog: ld.Catalog, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for number in range(BATCHES):
        frame = session.createDataFrame([(number, one) for one in range(3)], "batch int, n int").coalesce(1)
        frame.write.format("delta").mode("append").save(str(source))

    def read(**options: str) -> "DataFrame":
        wanted = {"maxFilesPerTrigger": "1", **(options or {"startingVersion": "0"})}
        return session.readStream.format("delta").options(**wanted).load(str(source))

    with listening(session, catalog) as listener:
        take_back(session, catalog, tmp_path, read, "append")
    told = catalog.sql(
        "SELECT query_id, batch_id, input_rows FROM progress_history WHERE event = 'progress'"
    ).to_pylist()
    assert listener.counts.dropped == listener.counts.failures == 0
    query_id = json.loads((tmp_path / "query" / "metadata").read_text())["id"]
    assert {(row["batch_id"], row["input_rows"]) for row in told if row["query_id"] == query_id} >= {
        (batch, 3) for batch in range(BATCHES)
    }
    offsets = catalog.sql("SELECT DISTINCT pipeline, end_offset FROM progress_sources WHERE batch_id = 0").to_pylist()
    assert {row["pipeline"] for row in offsets} == {"q"}
    assert "reservoirId" in offsets[0]["end_offset"]

    # The source as options begin it: what comes after the checkpoint, and nothing else.
    options = starting_options(catalog, "q", "source-0", 3)
    finish(read(**options), tmp_path / "third", tmp_path / "rest")
    assert content(session, tmp_path / "rest") == [(batch, n) for batch in range(3, BATCHES) for n in range(3)]

    look = check_resume(catalog, "q", 3, spark=session, tables={"source-0": str(source)})
    assert (look.ok, look.findings) == (True, ())
    other = session.createDataFrame([(1,)], "n int")
    other.write.format("delta").save(str(tmp_path / "other"))
    for table, code in (
        (tmp_path / "other", ResumeCode.TABLE_REPLACED),
        (tmp_path / "no", ResumeCode.SOURCE_UNREACHABLE),
    ):
        (finding,) = check_resume(catalog, "q", 3, spark=session, tables={"source-0": str(table)}).findings
        assert (finding.code, finding.severity) == (code, Severity.FATAL)

    with catalog.writer("q") as writer:
        ahead = writer.edit_offsets({"source-0": {"reservoirVersion": "99"}}, reason="test").checkpoint_id
    (finding,) = check_resume(catalog, "q", ahead, spark=session, tables={"source-0": str(source)}).findings
    assert (finding.code, finding.expected, finding.found) == (ResumeCode.VERSION_AHEAD, 99, BATCHES - 1)

    # It has read everything: Delta begins with no version that is still to come, unless it is told to.
    asked: dict[str, Any] = {"spark": session, "table": str(source)}
    look = check_resume(catalog, "q", BATCHES, spark=session, tables={"source-0": str(source)})
    assert ([finding.code for finding in look.findings], look.ok) == ([ResumeCode.VERSION_AWAITED], True)
    with pytest.raises(ConflictError, match="Delta refuses"):
        starting_options(catalog, "q", "source-0", BATCHES, **asked)
    early = starting_options(catalog, "q", "source-0", BATCHES)
    with pytest.raises(StreamingQueryException, match="DELTA_VERSION_NOT_FOUND"):
        finish(read(**early), tmp_path / "early", tmp_path / "late")
    session.conf.set("spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled", "true")
    finish(read(**early), tmp_path / "waiting", tmp_path / "late")
    session.conf.unset("spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled")
    session.createDataFrame([(BATCHES, 0)], "batch int, n int").write.format("delta").mode("append").save(str(source))
    assert starting_options(catalog, "q", "source-0", BATCHES, **asked) == early
    finish(read(**early), tmp_path / "waiting", tmp_path / "late")
    assert content(session, tmp_path / "late") == [(BATCHES, 0)]

    # The log was cleaned: what came between the checkpoint and where it begins now is not to be had any more.
    DeltaTable(str(source)).create_checkpoint()
    for version in range(BATCHES):
        (source / "_delta_log" / f"{version:020}.json").unlink()
    (finding,) = check_resume(catalog, "q", 3, spark=session, tables={"source-0": str(source)}).findings
    assert (finding.code, finding.severity) == (ResumeCode.VERSION_GONE, Severity.FATAL)
    assert (finding.expected, finding.found) == (3, BATCHES)
    assert check_resume(catalog, "q", BATCHES, spark=session, tables={"source-0": str(source)}).ok

    assert schema_hash(other) != schema_hash(session.createDataFrame([("1",)], "n string"))
    assert schema_hash(other) == schema_hash(other.schema)
