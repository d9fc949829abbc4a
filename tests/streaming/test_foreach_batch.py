"""One checkpoint per micro-batch, each batch once in each sink: on real queries, ended at every point of a batch."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException

import laminar_delta as ld
from laminar_delta.catalog.sinks import Step, When
from laminar_delta.interop.sparkdir.logs import parse_offsets
from laminar_delta.streaming import BatchStep, Delivery, DeltaSink, Written, files_read, schema_hash
from laminar_delta.streaming.delta_sink import check_tables
from tests.support.streams import PIPELINE, CrashError, FileFrameSink, ForgetfulFrameSink, Stream, quick

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from laminar_delta.streaming import Batch, FrameSink

pytestmark = pytest.mark.spark

Point = tuple[BatchStep | Step, When]
FRESH, DELIVERED, REWRITTEN = Delivery.FRESH, Delivery.REPLAYED_DELIVERED, Delivery.REPLAYED_WRITTEN


@pytest.fixture(params=["by path", pytest.param("by name", marks=pytest.mark.soak)])
def stream(request: pytest.FixtureRequest, tmp_path: Path, spark: "SparkSession") -> Stream:
    """By path the embedded engine commits, by name Spark does: the same tests."""
    if request.param == "by name":
        catalog = ld.open_catalog(f"ckpt_{uuid4().hex}", engine="spark", spark=spark)
    else:
        catalog = ld.open_catalog(str(tmp_path / "catalog"))
    return Stream(tmp_path, quick(spark), catalog)


def test_each_batch_is_a_checkpoint_and_runs_go_on_where_the_last_ended(stream: Stream) -> None:
    # Delta itself makes settings in a session when it is first used.
    stream.spark.range(1).write.format("delta").save(str(stream.home / "plain"))
    stream.output("plain")
    before = dict(stream.spark.conf.getAll)
    stream.add(2)
    first = stream.run()
    assert [(r.batch_id, r.epoch, r.delivery, r.sinks) for r in first] == [
        (0, 1, FRESH, {"out": Written.WRITTEN}),
        (1, 2, FRESH, {"out": Written.WRITTEN}),
    ]
    assert stream.run() == []
    stream.add(1)
    (third,) = stream.run()
    assert (third.batch_id, third.delivery) == (2, FRESH)
    stream.assert_each_once()
    orders = stream.catalog.pipeline(PIPELINE)
    assert [head.epoch for head in orders.list()] == [1, 2, 3]
    manifest = orders.get(third.checkpoint_id)
    planned = parse_offsets("offsets/2", (stream.checkpoint / "offsets" / "2").read_bytes())
    assert manifest.source_offsets["source-0"].metadata["spark_offset"] == planned.offsets[0]
    assert manifest.source_offsets["source-0"].offsets == {"logOffset": "2"}
    assert manifest.pipeline_hash == schema_hash(stream.read())
    assert all(status.is_committed for status in manifest.sink_commit_statuses.values())
    assert int(orders.state(third.checkpoint_id).read("total")) == sum(range(stream.made))
    assert dict(stream.spark.conf.getAll) == before


@pytest.mark.parametrize("how", ["asked of Spark", "named", "named without its scheme"])
def test_a_checkpoint_directory_that_is_on_no_local_disk(stream: Stream, how: str) -> None:
    """Hadoop's view file system stands for an object store: only Spark can read what is there."""
    mount, spark = f"m{uuid4().hex}", stream.spark
    (stream.home / "lake").mkdir()
    spark.conf.set(f"fs.viewfs.mounttable.{mount}.link./lake", f"file://{stream.home}/lake")
    location = f"viewfs://{mount}/lake/orders"
    if how == "named without its scheme":
        spark.conf.set("fs.defaultFS", f"viewfs://{mount}/")
        location = "/lake/orders"
    options = {} if how == "asked of Spark" else {"checkpoint_location": location}

    def run(at: Point | None = None) -> Delivery | None:
        def observe(step: BatchStep | Step, when: When) -> None:
            if (step, when) == at:
                raise CrashError(f"{step}")

        before = len(stream.results)
        deliver = stream.wrapped([DeltaSink(f"file:{stream.home}/out")], observe=observe, **options)
        source = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"file:{stream.home}/in")
        writer = source.writeStream.foreachBatch(deliver).option("checkpointLocation", location)
        query = writer.trigger(availableNow=True).start()
        if at is None:
            query.awaitTermination()
            return stream.results[-1].delivery if len(stream.results) > before else None
        with pytest.raises(StreamingQueryException, match="CrashError"):
            query.awaitTermination()
        return None

    stream.add(1)
    assert run() is FRESH
    stream.add(1)
    run((Step.RECORD, When.BEFORE))
    assert run() is DELIVERED
    assert sorted(path.name for path in (stream.home / "lake/orders/commits").glob("[0-9]*")) == ["0", "1"]
    spark.conf.unset("fs.defaultFS")
    stream.assert_each_once()
    made = stream.catalog.pipeline(PIPELINE).state(2).read("__spark__")
    assert json.loads(made)["sources/0/1"] == (stream.home / "lake/orders/sources/0/1").read_text()


def test_state_as_a_frame_goes_from_batch_to_batch_and_comes_back_after_a_crash(stream: Stream) -> None:
    def sums(frame: "DataFrame", batch: "Batch") -> "DataFrame":
        each = frame.selectExpr("'sums' AS operator", "CAST(id % 2 AS INT) AS partition", "id AS number")
        if batch.state is not None:
            before = batch.state.frame(frame.sparkSession).where("operator = 'sums'")
            each = each.unionByName(
                before.selectExpr("operator", "partition", "CAST(CAST(payload AS STRING) AS LONG) AS number")
            )
        kept = each.groupBy("operator", "partition").agg({"number": "sum"})
        batch.checkpoint.state_frame(
            kept.selectExpr("operator", "partition", "CAST(CAST(`sum(number)` AS STRING) AS BINARY) AS payload")
        )
        return frame

    stream.add(3)
    before = stream.crash((Step.SAVE, When.AFTER), [stream.sink()], sums, batches_before=1)
    assert [result.delivery for result in before] == [FRESH]
    found = stream.run(fn=sums)
    assert [(result.batch_id, result.delivery) for result in found] == [(1, REWRITTEN), (2, FRESH)]
    stream.assert_each_once()
    for result in (*before, *found):
        state = stream.catalog.pipeline(PIPELINE).state(result.checkpoint_id)
        upto = 3 * (result.batch_id + 1)
        assert [int(state.read("sums", part)) for part in (0, 1)] == [sum(range(part, upto, 2)) for part in (0, 1)]


def test_ended_at_any_point_a_batch_is_neither_repeated_nor_left_out(stream: Stream) -> None:
    """One query, ended at one point after another; each time its successor has only what is on the disk."""

    def sinks() -> "list[FrameSink]":
        return [stream.sink(), FileFrameSink(stream.home / "files")]

    points: dict[Point, None] = {}
    stream.add(2)
    stream.run(sinks(), observe=lambda step, when: points.setdefault((step, when)))
    in_start = {step for step, _ in points} & {BatchStep.RESUME, Step.SETTLE, Step.ASK, Step.ABORT, Step.RECOVER}
    in_batch = {step for step, _ in points} - in_start
    assert in_batch == {*BatchStep, Step.PRE_COMMIT, Step.SAVE, Step.COMMIT, Step.RECORD} - {BatchStep.RESUME}
    expected = {
        (Step.SAVE, When.AFTER): REWRITTEN,
        (Step.COMMIT, When.BEFORE): REWRITTEN,
        # The table has the batch, and the files are held: the successor has only to show them.
        (Step.COMMIT, When.AFTER): DELIVERED,
        (Step.RECORD, When.BEFORE): DELIVERED,
        (Step.RECORD, When.AFTER): DELIVERED,
        (BatchStep.DELIVER, When.AFTER): DELIVERED,
    }
    left: Point | None = None
    for point in (point for point in points if point[0] in in_batch):
        stream.add(1)
        before = stream.crash(point, sinks(), batches_before=0 if left is None else 1)
        if left is not None:
            assert [result.delivery for result in before] == [expected.get(left, FRESH)], left
        left = point
        if point == (Step.SAVE, When.AFTER):
            # What is left is as much as can be left: also a start that looks into it can end anywhere.
            for other in (point for point in points if point[0] in in_start):
                assert stream.crash(other, sinks()) == []
    assert left is not None
    assert [result.delivery for result in stream.run(sinks())] == [expected.get(left, FRESH)]
    stream.assert_each_once()
    assert sorted(map(int, FileFrameSink(stream.home / "files").output())) == list(range(stream.made))
    orders = stream.catalog.pipeline(PIPELINE)
    recovered = orders.recover(dry_run=True)
    assert recovered.chosen_id is not None
    assert int(orders.state(recovered.chosen_id).read("total")) == sum(range(stream.made))


def test_of_two_tables_the_one_that_has_the_batch_recognises_it(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.add(1)
    stream.crash((Step.COMMIT, When.AFTER), [stream.sink(), stream.sink("second")])
    assert len(stream.output()) == stream.made
    (again,) = stream.run([stream.sink(), stream.sink("second")])
    assert again.delivery is REWRITTEN
    assert again.sinks == {"out": Written.FOUND, "second": Written.WRITTEN}
    assert "gets their records again" not in caplog.text
    for name in ("out", "second"):
        stream.assert_each_once(name)


def test_a_sink_that_does_not_recognise_a_batch_shows_it_when_the_tables_have_it(stream: Stream) -> None:
    """Given first, and ended between the two commits: whoever came first has the batch, only the table may get it again."""

    def sinks() -> "list[FrameSink]":
        return [ForgetfulFrameSink(stream.home / "files"), stream.sink()]

    stream.add(1)
    stream.crash((Step.COMMIT, When.AFTER), sinks())
    (again,) = stream.run(sinks())
    assert again.delivery is REWRITTEN
    assert again.sinks == {"out": Written.FOUND, "files": Written.WRITTEN}
    stream.assert_each_once()
    assert sorted(map(int, ForgetfulFrameSink(stream.home / "files").output())) == list(range(stream.made))


@pytest.mark.parametrize("kind", [FileFrameSink, ForgetfulFrameSink])
def test_a_sink_that_fails_keeps_the_others_from_showing_the_batch_alone(
    stream: Stream, kind: type[FileFrameSink | ForgetfulFrameSink]
) -> None:
    files = kind(stream.home / "files")

    def broken(frame: "DataFrame", batch: "Batch") -> "dict[str, DataFrame]":
        return {"out": frame.selectExpr("id", "CAST(raise_error('no such luck') AS STRING) AS x"), "files": frame}

    stream.add(1)
    with pytest.raises(StreamingQueryException, match="no such luck"):
        stream.run([stream.sink(), files], broken)
    assert files.output() == []
    (mended,) = stream.run([stream.sink(), kind(stream.home / "files")])
    assert (mended.batch_id, mended.delivery) == (0, REWRITTEN)
    stream.assert_each_once()
    assert sorted(map(int, files.output())) == list(range(stream.made))


def test_a_reset_query_is_written_again_and_nothing_of_the_line_it_left_can_come_late(stream: Stream) -> None:
    stream.add(1)
    (first,) = stream.run()
    shutil.rmtree(stream.checkpoint)
    with pytest.raises(StreamingQueryException, match="begins anew at batch 0"):
        stream.run()
    shutil.rmtree(stream.checkpoint)
    (again,) = stream.run(after_reset="fresh")
    assert (again.batch_id, again.delivery) == (0, FRESH)
    total = stream.catalog.pipeline(PIPELINE).state(again.checkpoint_id).read("total")
    assert int(total) == sum(range(stream.made))  # counted once, by the query that reads them again
    assert again.query_id != first.query_id
    assert stream.output() == sorted([*range(stream.made)] * 2)
    _late_write(stream, first.query_id, 1)
    assert stream.output() == sorted([*range(stream.made)] * 2)


def test_of_a_table_that_numbers_its_rows_a_line_is_closed_too(stream: Stream) -> None:
    """Delta gives the values of such a column itself, and refuses who names it."""
    columns = "id BIGINT, number BIGINT GENERATED ALWAYS AS IDENTITY"
    stream.spark.sql(f"CREATE TABLE delta.`{stream.home / 'out'}` ({columns}) USING delta").collect()
    stream.add(1)
    (first,) = stream.run()
    shutil.rmtree(stream.checkpoint)
    (again,) = stream.run(after_reset="fresh")
    assert again.delivery is FRESH
    _late_write(stream, first.query_id, 1)
    assert stream.output() == sorted([*range(stream.made)] * 2)


def test_a_line_is_closed_where_there_is_no_table_yet(stream: Stream) -> None:
    stream.add(1)
    stream.crash((Step.COMMIT, When.BEFORE), [stream.sink()])
    query_id = json.loads((stream.checkpoint / "metadata").read_text())["id"]
    assert not (stream.home / "out").exists()
    shutil.rmtree(stream.checkpoint)
    assert [one.delivery for one in stream.run()] == [FRESH]
    _late_write(stream, query_id, 0)
    stream.assert_each_once()


def test_a_rewound_query_is_written_again_under_a_lineage_of_its_own(stream: Stream) -> None:
    stream.add(3)
    first = stream.run()
    with stream.catalog.writer(PIPELINE) as writer:
        derived = writer.rewind(first[0].checkpoint_id, reason="again")
    _forget_batches(stream, 1, 2)
    again = stream.run()
    assert [(r.batch_id, r.delivery, r.lineage) for r in again] == [
        (1, FRESH, derived.checkpoint_id),
        (2, FRESH, derived.checkpoint_id),
    ]
    assert stream.output() == sorted([*range(stream.made), *range(3, stream.made)])
    _late_write(stream, first[0].query_id, 3)
    assert stream.output() == sorted([*range(stream.made), *range(3, stream.made)])
    stream.add(1)
    (going_on,) = stream.run()
    assert (going_on.batch_id, going_on.lineage) == (3, derived.checkpoint_id)


def test_a_query_and_a_pipeline_that_stand_apart_are_not_brought_together_by_guessing(stream: Stream) -> None:
    stream.add(3)
    first = stream.run()
    _forget_batches(stream, 1, 2)
    with pytest.raises(StreamingQueryException, match=r"is at batch 1, and pipeline 'orders' .* would repeat batches"):
        stream.run()
    with stream.catalog.writer(PIPELINE) as writer:
        writer.rewind(first[0].checkpoint_id, reason="again")
    stream.run()
    with stream.catalog.writer(PIPELINE) as writer:
        writer.rewind(first[0].checkpoint_id, reason="only here")
    stream.add(1)
    with pytest.raises(StreamingQueryException, match=r"is at batch 3, .* would leave out batches"):
        stream.run()


@pytest.mark.parametrize("point", [(BatchStep.DELIVER, When.AFTER), (Step.COMMIT, When.AFTER)], ids=str)
def test_a_batch_that_was_planned_anew_is_not_taken_for_the_one_there_is(stream: Stream, point: Point) -> None:
    """By its number it would pass for delivered, or be skipped by the table that has it, and its records would be lost."""
    sinks = [stream.sink(), stream.sink("second")]
    stream.add(1)
    stream.crash(point, sinks)
    _forget_batches(stream, 0)
    next((stream.home / "in").glob("*.json")).unlink()
    stream.add(1)
    with pytest.raises(StreamingQueryException, match=r"batch 0 of query .* was planned anew"):
        stream.run(sinks)
    assert stream.output() == [0, 1, 2]


def test_a_batch_that_was_delivered_is_run_for_what_spark_learns_from_it(stream: Stream) -> None:
    stream.add(1)
    stream.crash((BatchStep.DELIVER, When.AFTER), [stream.sink()])
    again = stream.start(stream.wrapped([stream.sink()]))
    again.awaitTermination()
    assert [result.delivery for result in stream.results] == [DELIVERED]
    assert [progress["numInputRows"] for progress in again.recentProgress] == [stream.made]
    stream.assert_each_once()


def test_a_batch_that_the_only_table_it_is_for_has_is_run_too(stream: Stream) -> None:
    """Delta skips the write without running it, and the other sink is given nothing."""
    sinks = [stream.sink(), stream.sink("second")]

    def fn(frame: "DataFrame", batch: "Batch") -> "dict[str, DataFrame]":
        return {"out": frame}

    stream.add(1)
    stream.crash((Step.COMMIT, When.AFTER), sinks, fn)
    again = stream.start(stream.wrapped(sinks, fn))
    again.awaitTermination()
    assert [result.sinks for result in stream.results] == [{"out": Written.FOUND, "second": Written.NOTHING}]
    assert [progress["numInputRows"] for progress in again.recentProgress] == [stream.made]
    stream.assert_each_once()


def test_another_query_at_the_next_batch_is_no_restored_one(stream: Stream) -> None:
    stream.add(2)
    stream.run()
    note = stream.checkpoint / "metadata"
    note.write_text(json.dumps({"id": str(uuid4())}))
    (stream.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    stream.add(1)
    with pytest.raises(StreamingQueryException, match="is at batch 2, and pipeline 'orders' stands"):
        stream.run()


def test_a_table_sink_belongs_to_one_pipeline_and_a_table_to_one_sink(stream: Stream, tmp_path: Path) -> None:
    other = Stream(tmp_path / "other", stream.spark, stream.catalog, pipeline="returns")
    shared = stream.sink()
    for one in (stream, other):
        one.add(1)
    stream.run([shared])
    with pytest.raises(StreamingQueryException, match="is that of pipeline 'orders', and was given to 'returns' too"):
        other.run([shared])
    stream.add(1)
    stream.run([shared])
    stream.assert_each_once()
    with pytest.raises(ld.InvalidInputError, match="are for table"):
        stream.wrapped([stream.sink(), DeltaSink(f"{stream.home}/out/", name="again")])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("/data/out", "file:/data/out"),
        ("/data/out", "file:///data/out/"),
        ("/data/out", "/data//in/../out"),
        ("s3://bucket/out", "s3://bucket/out/"),
        ("main.sales", "Main.`SALES`"),
    ],
)
def test_a_table_is_known_however_it_is_spelled(first: str, second: str) -> None:
    with pytest.raises(ld.InvalidInputError, match="two Delta sinks of one pipeline are for table"):
        check_tables([DeltaSink(first, name="a"), DeltaSink(second, name="b")])
    check_tables([DeltaSink(first, name="a"), DeltaSink(f"{second.rstrip('/').strip('`')}2", name="b")])


def test_a_local_table_is_where_the_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write takes a relative path from there, SQL does not: a batch that was written would not be found again."""
    monkeypatch.chdir(tmp_path)
    for given in ("lake/orders", "./in/../lake/orders", Path("lake/orders"), Path("lake") / "orders"):
        sink = DeltaSink(given)
        assert (sink.table, sink.name) == (f"{tmp_path}/lake/orders", "orders")
        assert sink.reference() == f"delta.`{tmp_path}/lake/orders`"
    assert DeltaSink(Path("orders")).table == f"{tmp_path}/orders"
    for elsewhere in ("/lake/orders", "s3://bucket/orders", "dbfs:/lake/orders", "file:///lake/orders"):
        assert DeltaSink(elsewhere).table == elsewhere
    assert DeltaSink("main.orders").table == "main.orders"


def test_a_relative_table_takes_new_columns_and_tells_its_versions(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stream.home)

    def sink(name: str | None = None) -> DeltaSink:
        return DeltaSink("lake/out", name=name, partition_by=["odd"], options={"mergeSchema": "true"})

    def fn(frame: "DataFrame", batch: "Batch") -> "DataFrame":
        more = ["'new' AS later"] if batch.id else []
        return frame.selectExpr("id", "id % 2 AS odd", *more)

    stream.add(2)
    assert [result.sinks for result in stream.run([sink()], fn)] == [{"out": Written.WRITTEN}] * 2
    stream.assert_each_once("lake/out")
    rows = stream.spark.read.format("delta").load(str(stream.home / "lake" / "out"))
    assert {(row["id"], row["later"]) for row in rows.collect()} == {
        (number, None if number < 3 else "new") for number in range(stream.made)
    }
    (detail,) = stream.spark.sql(f"DESCRIBE DETAIL {sink().reference()}").select("partitionColumns").collect()
    assert detail[0] == ["odd"]
    # Whatever it is called here; and the sink can still be handed to another process.
    other = sink("other")
    assert [other.version_of(stream.catalog, PIPELINE, number, stream.spark) for number in (1, 2)] == [0, 1]
    assert pickle.loads(pickle.dumps(other)).table == other.table


def test_a_table_under_two_names_does_not_swallow_the_second_sink_s_batch(stream: Stream) -> None:
    (stream.home / "alias").symlink_to(stream.home / "out")
    stream.add(1)
    with pytest.raises(StreamingQueryException, match="is that of sink 'out', and sink 'alias' is for the same table"):
        stream.run([stream.sink(), stream.sink("alias")])
    # It is saved, and not taken for delivered.
    assert [head.checkpoint_id for head in stream.catalog.pipeline(PIPELINE).list()] == [1]
    assert stream.results == []


def test_queries_of_one_driver_do_not_disturb_each_other(stream: Stream, tmp_path: Path) -> None:
    other = Stream(tmp_path / "other", stream.spark, stream.catalog, pipeline="returns")
    stream.add(3)
    other.add(2)
    queries = [one.start(one.wrapped([one.sink()])) for one in (stream, other)]
    for query in queries:
        query.awaitTermination()
    for one, batches in ((stream, 3), (other, 2)):
        one.assert_each_once()
        assert [result.delivery for result in one.results] == [FRESH] * batches


def test_a_directory_of_another_query_is_told(stream: Stream, tmp_path: Path) -> None:
    other = Stream(tmp_path / "other", stream.spark, stream.catalog, pipeline="returns")
    for one in (stream, other):
        one.add(1)
    other.run()
    mistaken = stream.wrapped([stream.sink()], checkpoint_location=str(other.checkpoint))
    with pytest.raises(StreamingQueryException, match="is the checkpoint directory of query"):
        stream.start(mistaken).awaitTermination()
    named = stream.wrapped([stream.sink()], checkpoint_location=str(stream.checkpoint))
    stream.start(named).awaitTermination()
    stream.assert_each_once()


def test_a_write_that_delta_skipped_is_told(stream: Stream) -> None:
    stream.add(1)
    (first,) = stream.run()
    stream.add(1)
    # Somebody used the identifier of this query: Delta will skip the write without a word.
    _late_write(stream, first.query_id, 7)
    with pytest.raises(StreamingQueryException, match="Delta skipped the write of batch 1"):
        stream.run()


def test_files_are_named_as_spark_compares_them(stream: Stream) -> None:
    """To leave out what was read, a new query compares `_metadata.file_path` with these: also where names are encoded."""
    stream.add(4)
    names = ["a b.json", "50%.json", "caf\u00e9.json", "100%25 #?.json"]
    for path, name in zip(sorted((stream.home / "in").iterdir()), names, strict=True):
        path.rename(path.with_name(name))
    stream.run()
    found = files_read(stream.catalog, PIPELINE, "source-0")
    rows = stream.spark.read.schema("id long").json(str(stream.home / "in")).select("_metadata.file_path").distinct()
    assert found == sorted(row["file_path"] for row in rows.collect())


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: DeltaSink("a/b", mode="merge"), "no mode 'merge'"),
        (lambda: DeltaSink("a/b", options={"txnAppId": "mine"}), "exactly-once"),
    ],
)
def test_a_sink_checks_what_it_is_given(make: Callable[[], DeltaSink], told: str) -> None:
    with pytest.raises(ld.InvalidInputError, match=told):
        make()


def _late_write(stream: Stream, query_id: str, version: int) -> None:
    """What a process that was paused before its commit would still do."""
    frame = stream.spark.range(1000, 1001)
    writer = frame.write.format("delta").mode("append").option("txnAppId", f"laminar:{PIPELINE}:{query_id}:0")
    writer.option("txnVersion", str(version)).save(str(stream.home / "out"))


def _forget_batches(stream: Stream, *batches: int) -> None:
    for batch in batches:
        for log in ("offsets", "commits", "sources/0"):
            for name in (str(batch), f".{batch}.crc"):
                (stream.checkpoint / log / name).unlink(missing_ok=True)
