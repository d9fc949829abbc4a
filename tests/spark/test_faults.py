"""Each failure the Spark engine translates, provoked for real: these fail when Spark or Delta changes its words."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.engine.predicate import col, target
from laminar_delta.engine.request import Fence, Merge
from laminar_delta.engine.settle import OutcomeUnknown, WriteConflict
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.engine.spark.faults import CONFLICTS, committing, is_conflict
from laminar_delta.engine.spark.session import OwnSessions, frame, own_sessions
from laminar_delta.errors import (
    ConflictError,
    ErrorCode,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from laminar_delta.testing.conformance.tables import LINES, PARTITIONED, line, part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(tmp_path: Path, spark: "SparkSession") -> SparkEngine:
    engine = SparkEngine(tmp_path / "catalog", spark=spark)
    engine.create(LINES)
    engine.append(LINES.name, line("p", 1))
    return engine


def _data_file(engine: SparkEngine) -> Path:
    return next((Path(engine.location) / LINES.name).glob("*.parquet"))


def _forget_checksum(path: Path) -> None:
    path.with_name(f".{path.name}.crc").unlink()


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_a_missing_data_file_is_named(engine: SparkEngine, streamed: bool) -> None:
    path = _data_file(engine)
    path.unlink()
    with pytest.raises(StorageError, match=path.name) as caught:
        engine.scan(LINES.name, streamed=streamed).read_all()
    assert caught.value.code is ErrorCode.FILE_MISSING


def test_a_missing_data_file_fails_a_delete_and_nothing_is_committed(engine: SparkEngine) -> None:
    version = engine.version(LINES.name)
    _data_file(engine).unlink()
    with pytest.raises(StorageError, match="nothing was committed"):
        engine.delete(LINES.name, col("attempt").eq("") & col("payload").eq(b""), fences=[Fence("a", 1)])
    assert engine.version(LINES.name) == version


@pytest.mark.parametrize("with_checksum", [True, False])
def test_bytes_that_changed_are_an_error_of_ours(engine: SparkEngine, with_checksum: bool) -> None:
    path = _data_file(engine)
    whole = path.read_bytes()
    if not with_checksum:
        _forget_checksum(path)
    path.write_bytes(whole[:4] + bytes(20) + whole[24:])
    with pytest.raises(StorageError) as caught:
        engine.read(LINES.name)
    assert caught.value.code is ErrorCode.STORAGE
    path.write_bytes(b"not Parquet at all")
    with pytest.raises(StorageError):
        engine.read(LINES.name)


def test_a_table_that_is_not_there_is_not_found(tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "empty").mkdir()
    for engine, table in (
        (SparkEngine(tmp_path, spark=spark), "empty"),
        (SparkEngine(tmp_path, spark=spark), "absent"),
        (SparkEngine("no_such_schema", spark=spark), "absent"),
        (SparkEngine("default", spark=spark), "absent"),
    ):
        assert not engine.exists(table)
        for use in (engine.version, engine.schema, engine.history, engine.properties, engine.optimize):
            with pytest.raises(NotFoundError):
                use(table)
        with pytest.raises(NotFoundError):
            engine.raise_fence(table, Fence("a", 1))


def test_a_catalog_that_spark_does_not_know_is_wrong_input(spark: "SparkSession") -> None:
    with pytest.raises(InvalidInputError, match="Spark has no catalog of that name") as caught:
        ld.open_catalog("nowhere.checkpoints", spark=spark)
    assert "nowhere" in str(caught.value.found)
    assert "SHOW CATALOGS" in str(caught.value)


def test_a_version_past_the_files_retention_is_gone_for_sql_and_read_while_its_files_are_there(
    engine: SparkEngine,
) -> None:
    engine.append(LINES.name, line("p", 2))
    log = Path(engine.location) / LINES.name / "_delta_log"
    for version in (0, 1):
        moment = (log / f"{version:020}.json").stat().st_mtime - 30 * 86_400
        os.utime(log / f"{version:020}.json", (moment, moment))
    with pytest.raises(NotFoundError) as caught:
        engine.query(f"SELECT * FROM {LINES.name}", tables={LINES.name: 0})
    assert caught.value.code is ErrorCode.VERSION_GONE
    assert engine.read(LINES.name, version=0).num_rows == 0


def test_fences_that_cannot_be_told_are_an_error_and_not_none(engine: SparkEngine) -> None:
    for number in (2, 3):
        engine.append(LINES.name, line("p", number), fences=[Fence("a", number)])
    assert engine.fences(LINES.name, ["a", "nobody"]) == {"a": 3}
    rotten = Path(engine.location) / LINES.name / "_delta_log" / f"{2:020}.json"
    rotten.write_bytes(b"not a log entry")
    with pytest.raises(StorageError, match=rotten.name) as caught:
        engine.fences(LINES.name, ["a"])
    assert caught.value.code is ErrorCode.LOG_DAMAGED


def test_an_older_entry_that_rotted_is_named(engine: SparkEngine, spark: "SparkSession", tmp_path: Path) -> None:
    engine.append(LINES.name, line("p", 2))
    log = Path(engine.location) / LINES.name / "_delta_log"
    path = log / f"{1:020}.json"
    path.write_bytes(path.read_bytes()[:100])
    _forget_checksum(path)
    # Elsewhere, because this JVM has the table in its cache.
    moved = tmp_path / "moved"
    Path(engine.location).rename(moved)
    with pytest.raises(StorageError) as caught:
        SparkEngine(moved, spark=spark).history(LINES.name)
    assert caught.value.code is ErrorCode.LOG_DAMAGED
    assert f"{1:020}.json" in str(caught.value)


def test_a_table_with_features_of_the_future_is_refused(
    engine: SparkEngine, spark: "SparkSession", tmp_path: Path
) -> None:
    log = Path(engine.location) / LINES.name / "_delta_log"
    protocol = (
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["warp"],"writerFeatures":["warp"]}}'
    )
    (log / f"{2:020}.json").write_text('{"commitInfo":{"timestamp":1,"operation":"X"}}\n' + protocol + "\n")
    moved = tmp_path / "moved"
    Path(engine.location).rename(moved)
    with pytest.raises(FormatError, match="warp"):
        SparkEngine(moved, spark=spark).read(LINES.name)


# -- committing -------------------------------------------------------------------------------------------------------


def test_a_conflict_is_told_as_one(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drivers without a lock between them: the second commits between the first one's reading and writing."""
    monkeypatch.setattr(OwnSessions, "on_this_machine", False)
    engine = SparkEngine("default", spark=spark)
    table = PARTITIONED.name
    engine.create(PARTITIONED)
    merge = Merge(keys=("pipeline", "checkpoint_id"), scope=target("pipeline").eq("p"))
    start = threading.Barrier(4)
    told: list[object] = []

    def insert(value: int) -> None:
        start.wait()
        try:
            told.append(engine.merge(table, part("p", 1, value), merge).inserted)
        except ConflictError as error:
            told.append(error)

    threads = [threading.Thread(target=insert, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lost = [error for error in told if isinstance(error, ConflictError)]
    assert told.count(1) == 1
    for error in lost:
        assert "DELTA_CONCURRENT_" in str(error)
        assert isinstance(error.__cause__, WriteConflict)
        assert isinstance(error.__cause__.__cause__, CONFLICTS)
    spark.sql(f"DROP TABLE default.{table}")


def test_every_conflict_class_is_one_whichever_mode_raised_it() -> None:
    import delta.exceptions as base
    from delta.exceptions import captured

    for name in base.__all__:
        assert getattr(base, name) in CONFLICTS
        assert issubclass(getattr(captured, name), CONFLICTS)
        assert is_conflict(getattr(base, name)("x"))


def test_rows_that_do_not_fit_are_refused_by_spark_too(engine: SparkEngine, spark: "SparkSession") -> None:
    """Past the engine's own check: what Spark says is translated."""
    session = own_sessions(spark, {}).main
    wrong = frame(session, pa.table({"pipeline": ["p"], "id": ["x"], "attempt": [""], "payload": [b""]}))
    with pytest.raises(InvalidInputError), committing(LINES.name, local=True):
        wrong.writeTo(f"delta.`file:{engine.location}/{LINES.name}`").append()
    more = frame(session, pa.table({"nope": [1]}))
    with pytest.raises(InvalidInputError), committing(LINES.name, local=True):
        more.write.format("delta").mode("append").save(f"file:{engine.location}/{LINES.name}")
    with pytest.raises(InvalidInputError):
        engine.delete(LINES.name, col("nope").eq(1))


def test_a_local_call_that_came_back_has_nothing_under_way(engine: SparkEngine, spark: "SparkSession") -> None:
    session = own_sessions(spark, {}).main
    with pytest.raises(OutcomeUnknown) as caught, committing(LINES.name, local=True):
        session.sql("SELECT raise_error('broken')").collect()
    assert not caught.value.may_still_land
    with pytest.raises(OutcomeUnknown) as caught, committing(LINES.name, local=False):
        session.sql("SELECT raise_error('broken')").collect()
    assert caught.value.may_still_land
    assert "broken" in str(caught.value)
    assert "\tat " not in str(caught.value)


def test_a_file_that_cannot_be_written_is_an_error_and_nothing_is_committed(engine: SparkEngine) -> None:
    engine.create(PARTITIONED)
    with pytest.raises(StorageError, match="nothing was committed"):
        engine.append(PARTITIONED.name, part("no directory has a \0 in its name", 1), fences=[Fence("a", 1)])
    assert engine.version(PARTITIONED.name) == 0
    engine.append(PARTITIONED.name, part("p", 1), fences=[Fence("a", 1)])


def test_a_log_that_is_no_log_is_an_error_of_ours(engine: SparkEngine) -> None:
    (Path(engine.location) / LINES.name / "_delta_log" / f"{2:020}.json").mkdir()
    with pytest.raises(StorageError):
        engine.append(LINES.name, line("p", 2), fences=[Fence("a", 1)])
    with pytest.raises(StorageError):
        engine.read(LINES.name)


KILLED = """
import os, signal, sys
from laminar_delta.engine.request import Fence
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.errors import CommitUnknownError, StorageError
from laminar_delta.testing.conformance.tables import LINES, line
from pyspark.sql.readwriter import DataFrameWriterV2

engine = SparkEngine(sys.argv[1])
engine.create(LINES)
engine.append("lines", line("p", 1))
pid = engine._own.jvm().pid
real = DataFrameWriterV2.append
def kill(writer):
    os.kill(pid, signal.SIGKILL)
    real(writer)
DataFrameWriterV2.append = kill
try:
    engine.append("lines", line("p", 2), fences=[Fence("a", 1)])
except CommitUnknownError as error:
    assert error.details["table"] == "lines"
else:
    raise SystemExit("not told")
try:
    engine.read("lines")
except StorageError:
    pass
else:
    raise SystemExit("read without a JVM")
os._exit(0)
"""


@pytest.mark.processes
def test_a_jvm_that_dies_in_a_commit_leaves_it_unknown(tmp_path: Path, spark: "SparkSession") -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "catalog")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    engine = SparkEngine(tmp_path / "catalog", spark=spark, lock_timeout_s=20)
    engine.append(LINES.name, line("p", 3), fences=[Fence("a", 2)])
