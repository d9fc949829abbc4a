"""The user's session is left as it was, and the engine's own are as it needs them."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence, Merge, stamp
from laminar_delta.engine.spark import SparkEngine, settings
from laminar_delta.engine.spark.places import Place
from laminar_delta.engine.spark.session import frame, own_sessions, stamped
from laminar_delta.errors import InvalidInputError, NotFoundError
from laminar_delta.testing.conformance.tables import LINES, line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_users_session_is_left_as_it_was(tmp_path: Path, spark: "SparkSession") -> None:
    from pyspark.sql import SparkSession

    spark.range(3).createOrReplaceTempView("mine")
    # Delta itself turns two Parquet settings on in whatever session first uses it.
    spark.read.format("delta").load(str(_any_table(tmp_path, spark))).collect()
    before, views = spark.conf.getAll, [view.name for view in spark.catalog.listTables()]
    active = SparkSession.getActiveSession()
    engine = SparkEngine(tmp_path / "catalog", spark=spark)
    engine.create(LINES)
    engine.append(LINES.name, line("p", 1), fences=[Fence("a", 1)])
    engine.merge(LINES.name, line("p", 2), Merge(keys=("id",)), fences=[Fence("a", 2)])
    engine.delete(LINES.name, col("id").eq(1), fences=[Fence("a", 3)])
    engine.read(LINES.name)
    list(engine.scan(LINES.name, streamed=True))
    engine.optimize(LINES.name)
    engine.close()
    assert spark.conf.getAll == before
    assert [view.name for view in spark.catalog.listTables()] == views
    assert SparkSession.getActiveSession() is active
    assert SparkSession.builder.getOrCreate() is spark
    spark.catalog.dropTempView("mine")


def _any_table(tmp_path: Path, spark: "SparkSession") -> Path:
    engine = SparkEngine(tmp_path / "first", spark=spark)
    engine.create(LINES)
    return tmp_path / "first" / LINES.name


def test_own_sessions_have_the_settings_and_the_users_credentials(spark: "SparkSession") -> None:
    spark.conf.set("fs.s3a.access.key", "key of the user")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        fresh = own_sessions(spark, {"spark.hadoop.fs.s3a.endpoint": "http://here"})
        with fresh.borrowed() as borrowed:
            for session, more in ((fresh.main, {}), (fresh.blobs, settings.BLOBS), (borrowed, settings.UPKEEP)):
                for name, value in {**settings.MEANING, **settings.SPEED, **more}.items():
                    assert session.conf.get(name) == value, name
                assert session.conf.get("fs.s3a.access.key") == "key of the user"
                assert session.conf.get("fs.s3a.endpoint") == "http://here"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
        assert spark.conf.get("fs.s3a.endpoint", None) is None
    finally:
        spark.conf.unset("fs.s3a.access.key")
        spark.conf.unset("spark.sql.shuffle.partitions")


def test_engines_beside_one_session_share_their_own(spark: "SparkSession") -> None:
    assert own_sessions(spark, {}) is own_sessions(spark, {})


def test_a_fence_is_set_for_one_statement_of_a_borrowed_session_only(spark: "SparkSession") -> None:
    own = own_sessions(spark, {})
    made = stamp([Fence("a", 1)], {"operation": "x"})
    with own.borrowed() as one, own.borrowed() as other:
        assert one is not other
        with stamped(one, made):
            assert one.conf.get(settings.FENCE_APP) == "a"
            for session in (other, own.main, spark):
                assert session.conf.get(settings.FENCE_APP, None) is None
        for name in settings.STAMP:
            assert one.conf.get(name, None) is None


def test_a_failed_statement_leaves_no_fence_behind(tmp_path: Path, spark: "SparkSession") -> None:
    engine = SparkEngine(tmp_path, spark=spark)
    engine.create(LINES)
    with pytest.raises(InvalidInputError):
        engine.delete(LINES.name, col("nope").eq(1), fences=[Fence("a", 1)])
    with own_sessions(spark, {}).borrowed() as session:
        assert session.conf.get(settings.FENCE_APP, None) is None
    assert engine.delete(LINES.name, col("id").eq(1)).version is None


def test_expected_errors_are_not_printed_and_a_users_own_are(
    tmp_path: Path, spark: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.errors import AnalysisException

    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    ear = Ear()
    logger = logging.getLogger("SQLQueryContextLogger")
    logger.addHandler(ear)
    try:
        with pytest.raises(NotFoundError):
            SparkEngine("no_such_schema", spark=spark).read("nothing")
        assert heard == []
        with pytest.raises(AnalysisException):
            spark.sql("SELECT * FROM no_such_schema.nothing")
        assert len(heard) == 1
    finally:
        logger.removeHandler(ear)


@pytest.mark.parametrize(
    ("location", "root", "schema"),
    [
        ("/data/ckpt", Path("/data/ckpt"), ()),
        ("./ckpt", Path("ckpt").absolute(), ()),
        ("file:///data/ckpt", Path("/data/ckpt"), ()),
        ("~/ckpt", Path.home() / "ckpt", ()),
        (Path("ckpt"), Path("ckpt").absolute(), ()),
        ("s3a://bucket/ckpt/", None, ()),
        ("dbfs:/ckpt", None, ()),
        ("ckpt", None, ("ckpt",)),
        ("main.ckpt", None, ("main", "ckpt")),
    ],
)
def test_a_path_is_told_from_a_name(location: str | Path, root: Path | None, schema: tuple[str, ...]) -> None:
    place = Place(location)
    assert (place.root, place.schema) == (root, schema)


@pytest.mark.parametrize("location", ["", "main.", "a..b", "/data/${user}"])
def test_a_location_that_means_nothing_certain_is_refused(location: str) -> None:
    with pytest.raises(InvalidInputError):
        Place(location)


def test_rows_arrive_whole_however_arrow_cut_them(spark: "SparkSession") -> None:
    rows = pa.table({"id": list(range(100)), "payload": [bytes(1 << 18)] * 100})
    pieces = pa.concat_tables([rows.slice(0, 7), rows.slice(0, 0), rows.slice(7)])
    found = frame(own_sessions(spark, {}).main, pieces)
    assert sorted(row[0] for row in found.select("id").collect()) == list(range(100))


STARTING = """
import sys
from laminar_delta.engine.predicate import col
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.errors import InvalidInputError
from laminar_delta.testing.conformance.tables import LINES, line

engine = SparkEngine(sys.argv[1])
engine.create(LINES)
engine.append("lines", line("p", 1))
assert [batch.num_rows for batch in engine.scan("lines", streamed=True)] == [1]
engine.close()
try:
    SparkEngine("lost").exists("lines")
except InvalidInputError as error:
    assert "in memory" in str(error), error
else:
    raise SystemExit("a schema nobody keeps was accepted")
"""


@pytest.mark.processes
def test_a_spark_started_by_the_engine_leaves_nothing_in_the_current_directory(tmp_path: Path) -> None:
    """Without a session: one is started, with this Python on its executors, and a schema that would be lost is refused."""
    here = tmp_path / "here"
    here.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", STARTING, str(tmp_path / "catalog")],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(here.iterdir()) == []
