"""What only the Spark engine does: the JVM beside the lock, merges without effect, names, streams, other people's writes."""

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pytest

from laminar_delta.engine.local.lock import HOLDER_FILE, LOCK_FILE, CatalogLock
from laminar_delta.engine.predicate import col, source, target
from laminar_delta.engine.request import Fence, Merge, TableSpec, WhenMatched
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.engine.spark.session import own_sessions
from laminar_delta.errors import (
    CommitUnknownError,
    ErrorCode,
    FencedError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from laminar_delta.testing.conformance.tables import LINES, PARTITIONED, ids, line, part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

APP = "laminar:orders"


@pytest.fixture
def engine(tmp_path: Path, spark: "SparkSession") -> SparkEngine:
    engine = SparkEngine(tmp_path / "catalog", spark=spark)
    engine.create(LINES)
    return engine


def _log(engine: SparkEngine, table: str = LINES.name) -> Path:
    return Path(engine.location) / table / "_delta_log"


# -- the lock ---------------------------------------------------------------------------------------------------------


def test_the_jvm_that_commits_is_remembered_beside_the_lock(engine: SparkEngine, spark: "SparkSession") -> None:
    from pyspark.sql.readwriter import DataFrameWriterV2

    seen: list[dict[str, Any]] = []
    real = DataFrameWriterV2.append

    def look(writer: DataFrameWriterV2) -> None:
        seen.append(json.loads((Path(engine.location) / HOLDER_FILE).read_text()))
        real(writer)

    with patch.object(DataFrameWriterV2, "append", look):
        engine.append(LINES.name, line("p", 1))
    assert seen[0]["pid"] == own_sessions(spark, {}).jvm().pid
    assert Path(f"/proc/{seen[0]['pid']}/comm").read_text().strip() == "java"
    assert seen[0]["pid"] != os.getpid()
    assert not (Path(engine.location) / HOLDER_FILE).exists()


def test_an_interrupted_commit_keeps_others_out_until_its_jvm_is_heard_of_again(
    engine: SparkEngine, spark: "SparkSession"
) -> None:
    """Python lets go at once, the JVM goes on: nobody else may commit beside it, but its own process may."""
    from pyspark.sql.readwriter import DataFrameWriterV2

    with patch.object(DataFrameWriterV2, "append", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        engine.append(LINES.name, line("p", 1))
    root = Path(engine.location)
    assert (root / HOLDER_FILE).exists()
    with pytest.raises(StorageError) as caught, CatalogLock(root, timeout_s=0.2).held():
        pass
    assert caught.value.code is ErrorCode.LOCKED
    engine.append(LINES.name, line("p", 2))
    with CatalogLock(root, timeout_s=5).held():
        assert not (root / HOLDER_FILE).exists()


def test_by_name_on_a_local_disk_the_lock_is_held_too(spark: "SparkSession") -> None:
    engine = SparkEngine(f"ckpt_{uuid4().hex}", spark=spark, lock_timeout_s=0.2)
    engine.create(LINES)
    engine.append(LINES.name, line("p", 1), fences=[Fence(APP, 1)])
    root = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")) / f"{engine.location}.db"
    assert (root / LOCK_FILE).exists()
    with CatalogLock(root).held(), pytest.raises(StorageError) as caught:
        engine.append(LINES.name, line("p", 2))
    assert caught.value.code is ErrorCode.LOCKED
    engine.log_checkpoint(LINES.name)
    assert (root / LINES.name / "_delta_log" / f"{1:020}.checkpoint.parquet").exists()
    with pytest.raises(FencedError) as fenced:
        engine.append(LINES.name, line("p", 2), fences=[Fence(APP, 1)])
    assert fenced.value.found == {APP: 1}


# -- writing ----------------------------------------------------------------------------------------------------------


def test_an_append_never_makes_a_table_anew(engine: SparkEngine) -> None:
    engine.schema(LINES.name)
    (_log(engine)).rename(Path(engine.location) / "away")
    with pytest.raises(NotFoundError):
        engine.append(LINES.name, line("p", 1), fences=[Fence(APP, 1)])
    with pytest.raises(NotFoundError):
        engine.raise_fence(LINES.name, Fence(APP, 1))
    assert not _log(engine).exists()


def test_a_large_append_is_cut_into_files(engine: SparkEngine) -> None:
    size = 80
    data = {
        "pipeline": ["p"] * size,
        "id": list(range(size)),
        "attempt": [""] * size,
        "payload": [bytes(1 << 20)] * size,
    }
    engine.append(LINES.name, pa.table(data, schema=LINES.schema))
    assert len(list((Path(engine.location) / LINES.name).glob("*.parquet"))) == 2
    batches = list(engine.scan(LINES.name, columns=["id", "payload"], streamed=True))
    assert len(batches) >= size // 16
    assert ids(pa.Table.from_batches(batches)) == list(range(size))


def test_a_not_null_column_keeps_nulls_out(engine: SparkEngine) -> None:
    columns: list[pa.Field[Any]] = [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())]
    spec = TableSpec(name="strict", schema=pa.schema(columns))
    assert engine.create(spec)
    assert not engine.create(spec)
    engine.append("strict", pa.table({"id": [1], "name": ["a"]}))
    with pytest.raises(InvalidInputError, match="id"):
        engine.append("strict", pa.table({"id": pa.array([None], pa.int64()), "name": ["b"]}))
    assert engine.read("strict").to_pylist() == [{"id": 1, "name": "a"}]


@pytest.mark.parametrize("kind", [pa.uint64(), pa.timestamp("us"), pa.time64("us"), pa.decimal256(40, 0)])
def test_types_that_would_change_on_the_way_are_refused(engine: SparkEngine, kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError) as caught:
        engine.create(TableSpec(name="odd", schema=pa.schema([("x", pa.list_(kind))])))
    assert caught.value.code is ErrorCode.UNSUPPORTED
    assert not engine.exists("odd")


def test_other_plain_types_go_both_ways(engine: SparkEngine) -> None:
    import datetime as dt

    columns = {
        "tiny": pa.array([-128, None], pa.int8()),
        "small": pa.array([2**15 - 1, None], pa.int16()),
        "ratio": pa.array([1.5, None], pa.float32()),
        "exact": pa.array([float("inf"), None], pa.float64()),
        "day": pa.array([dt.date(1, 1, 1), None], pa.date32()),
        "od`d": pa.array(["x", None], pa.large_string()),
        "nested": pa.array([{"a`b": {"c.d": 1}}, None], pa.struct([("a`b", pa.struct([("c.d", pa.int64())]))])),
    }
    data = pa.table(columns)
    engine.create(TableSpec(name="plain", schema=data.schema, comment='it\'s \\ "plain"'))
    engine.append("plain", data)
    assert sorted(engine.read("plain").to_pylist(), key=str) == sorted(data.to_pylist(), key=str)


def test_definitions_delta_does_not_take_are_refused(engine: SparkEngine) -> None:
    with pytest.raises(InvalidInputError):
        engine.create(TableSpec(name="odd", schema=pa.schema([("a b", pa.string())])))
    with pytest.raises(InvalidInputError):
        engine.optimize(LINES.name, order_by=["nope"])


def test_the_catalogs_directory_may_be_called_anything(tmp_path: Path, spark: "SparkSession") -> None:
    # Except for a percent sign, a backslash or a line break: delta-rs, which keeps the log, does not take those.
    root = tmp_path / "a bé'`#?+=&;,[x]*{y}:日本"
    engine = SparkEngine(root, spark=spark)
    engine.create(LINES)
    engine.append(LINES.name, line("p", 1), fences=[Fence(APP, 1)])
    engine.merge(LINES.name, line("p", 2), Merge(keys=("id",)))
    engine.delete(LINES.name, col("id").eq(1))
    engine.log_checkpoint(LINES.name)
    assert engine.read(LINES.name).column("id").to_pylist() == [2]
    assert all((root / LINES.name / name).is_file() for name in engine.vacuum(LINES.name, older_than_hours=0))
    assert [path.name for path in tmp_path.iterdir()] == [root.name]


def test_names_that_look_like_templates_are_names(engine: SparkEngine) -> None:
    name = "a${spark.app.name}${env:PATH}"
    engine.append(LINES.name, line(name, 1))
    assert engine.read(LINES.name, where=col("pipeline").eq(name)).num_rows == 1
    merge = Merge(keys=("id",), scope=target("pipeline").eq(name), when_matched=(WhenMatched(),))
    assert engine.merge(LINES.name, line(name, 1, "b"), merge).updated == 1


# -- merges without effect --------------------------------------------------------------------------------------------

IDLE = {
    "insert only": Merge(keys=("pipeline", "id")),
    "condition false": Merge(
        keys=("pipeline", "id"), when_matched=(WhenMatched(condition=source("attempt").eq("never")),), insert=False
    ),
    "insert condition false": Merge(keys=("pipeline", "id"), insert_condition=source("id").gt(5)),
    "nobody absent": Merge(keys=("pipeline", "id"), delete_absent=target("pipeline").eq("p"), insert=False),
    "nothing asked": Merge(keys=("pipeline", "id"), insert=False),
}


@pytest.mark.parametrize("name", IDLE)
def test_a_fenced_merge_without_effect_makes_no_version_and_is_refused_below_the_fence(
    engine: SparkEngine, name: str
) -> None:
    """Spark by itself commits such a merge and moves the fence."""
    engine.append(LINES.name, line("p", 1), fences=[Fence(APP, 3)])
    version = engine.version(LINES.name)
    made = engine.merge(LINES.name, line("p", 1), IDLE[name], fences=[Fence(APP, 4)])
    assert (made.version, made.inserted, made.updated, made.deleted) == (None, 0, 0, 0)
    assert engine.version(LINES.name) == version
    with pytest.raises(FencedError) as caught:
        engine.merge(LINES.name, line("p", 1), IDLE[name], fences=[Fence(APP, 3)])
    assert caught.value.found == {APP: 3}
    engine.raise_fence(LINES.name, Fence(APP, 4))


def test_a_guarded_merge_that_another_commit_overtook_moves_no_fence(
    engine: SparkEngine, spark: "SparkSession"
) -> None:
    """It comes after the look whether the merge has an effect: away from a local disk no lock keeps it out."""
    engine.append(LINES.name, line("p", 0, "generation 1"))
    merge = Merge(
        keys=("pipeline", "id"),
        scope=target("pipeline").eq("p"),
        when_matched=(WhenMatched(),),
        guard=col("pipeline").eq("p") & col("attempt").eq("generation 1"),
    )
    real, place = engine._is_idle, Path(engine.location) / LINES.name

    def overtaken(*given: Any) -> bool:
        idle = real(*given)
        spark.sql(f"UPDATE delta.`{place}` SET attempt = 'generation 2'").collect()
        return idle

    with patch.object(engine, "_is_idle", overtaken):
        made = engine.merge(LINES.name, line("p", 0, "mine"), merge, fences=[Fence(APP, 1)])
    assert (made.version, made.inserted, made.updated, made.deleted) == (None, 0, 0, 0)
    newest = engine.history(LINES.name, limit=1)[0]
    assert (newest.operation, newest.metadata) == ("UPDATE", {})
    assert engine.read(LINES.name).column("attempt").to_pylist() == ["generation 2"]
    assert engine.raise_fence(LINES.name, Fence(APP, 1)) is not None


def test_a_clause_after_one_that_always_applies_is_never_reached(engine: SparkEngine) -> None:
    engine.append(LINES.name, line("p", 1, "old"))
    merge = Merge(keys=("id",), when_matched=(WhenMatched(columns=("attempt",)), WhenMatched(delete=True)))
    assert engine.merge(LINES.name, line("p", 1, "new"), merge, fences=[Fence(APP, 1)]).updated == 1
    assert engine.read(LINES.name).column("attempt").to_pylist() == ["new"]


def test_merges_of_several_threads_keep_their_fences_apart(engine: SparkEngine) -> None:
    engine.create(PARTITIONED)
    failures: list[BaseException] = []

    def merge(number: int) -> None:
        name = f"p{number}"
        try:
            made = engine.merge(
                PARTITIONED.name,
                part(name, 1),
                Merge(keys=("pipeline", "checkpoint_id"), scope=target("pipeline").eq(name)),
                fences=[Fence(f"laminar:{name}", 1)],
                metadata={"who": name},
            )
            assert made.inserted == 1
        except BaseException as error:  # noqa: BLE001  # told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=merge, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    told = {entry.metadata["who"]: entry.metadata["fences"] for entry in engine.history(PARTITIONED.name)[:4]}
    assert told == {f"p{number}": {f"laminar:p{number}": 1} for number in range(4)}


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_stream_left_early_lets_go(engine: SparkEngine) -> None:
    data = {"pipeline": ["p"] * 500, "id": list(range(500)), "attempt": [""] * 500, "payload": [b"x"] * 500}
    engine.append(LINES.name, pa.table(data, schema=LINES.schema))
    reader = engine.scan(LINES.name, streamed=True)
    assert reader.read_next_batch().num_rows > 0
    del reader
    assert engine.read(LINES.name).num_rows == 500


def test_an_empty_stream_has_the_columns(engine: SparkEngine) -> None:
    found = engine.scan(LINES.name, columns=["id"], where=col("id").eq(1), streamed=True).read_all()
    assert found.schema == pa.schema([("id", pa.int64())])
    assert found.num_rows == 0


# -- maintenance ------------------------------------------------------------------------------------------------------


def test_vacuum_names_files_as_they_are_called_on_disk(engine: SparkEngine) -> None:
    engine.create(PARTITIONED)
    engine.append(PARTITIONED.name, part("a/b c=d%é:", 1))
    engine.delete(PARTITIONED.name, col("checkpoint_id").eq(1))
    named = engine.vacuum(PARTITIONED.name, older_than_hours=0)
    home = Path(engine.location) / PARTITIONED.name
    assert len(named) == 1
    assert (home / named[0]).is_file()
    assert engine.vacuum(PARTITIONED.name, older_than_hours=0, dry_run=False) == named
    assert not (home / named[0]).exists()
    assert engine.history(PARTITIONED.name, limit=1)[0].metadata["operation"] == "vacuum"


def test_restoring_the_newest_version_changes_nothing(engine: SparkEngine) -> None:
    version = engine.append(LINES.name, line("p", 1)).version
    assert version is not None
    assert engine.restore(LINES.name, version) == version


def test_cleaning_the_log_takes_the_checksums_along(engine: SparkEngine) -> None:
    for number in range(4):
        engine.append(LINES.name, line("p", number))
    engine.log_checkpoint(LINES.name)
    for path in _log(engine).iterdir():
        # A log entry's time is told by its file and by its content; the content is read by delta-rs.
        if path.suffix == ".json":
            entry = [json.loads(text) for text in path.read_text().splitlines()]
            for action in entry:
                if "commitInfo" in action:
                    action["commitInfo"]["timestamp"] -= 40 * 86_400_000
            path.write_text("\n".join(json.dumps(action) for action in entry) + "\n")
            path.with_name(f".{path.name}.crc").unlink()
        os.utime(path, (path.stat().st_mtime - 40 * 86_400,) * 2) if path.exists() else None
    engine.append(LINES.name, line("p", 4))
    engine.log_checkpoint(LINES.name)
    engine.clean_log(LINES.name)
    left = sorted(path.name for path in _log(engine).iterdir())
    assert f"{1:020}.json" not in left
    for name in left:
        if name.startswith(".") and name.endswith(".crc"):
            assert name.removeprefix(".").removesuffix(".crc") in left
    assert f"{1:020}.crc" not in left
    assert engine.read(LINES.name).num_rows == 5
    engine.append(LINES.name, line("p", 5))


def test_a_disk_that_does_not_take_the_commit_is_told(engine: SparkEngine) -> None:
    with (
        patch("laminar_delta.engine.local.durability.fsync_path", side_effect=OSError("no space")),
        pytest.raises(CommitUnknownError, match="flushed"),
    ):
        engine.append(LINES.name, line("p", 1))
    version = engine.version(LINES.name)
    # Nor is it told when it is found again.
    with (
        patch("laminar_delta.engine.local.durability.fsync_path", side_effect=OSError("no space")),
        pytest.raises(CommitUnknownError, match="flushed"),
    ):
        engine.flush(LINES.name, version)
    engine.flush(LINES.name, version)


def test_tables_elsewhere_have_their_log_kept_by_spark(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    from laminar_delta.engine.spark.session import OwnSessions

    monkeypatch.setattr(OwnSessions, "on_this_machine", False)
    engine = SparkEngine(f"ckpt_{uuid4().hex}", spark=spark)
    engine.create(LINES)
    for upkeep in (engine.log_checkpoint, engine.clean_log):
        with pytest.raises(InvalidInputError) as caught:
            upkeep(LINES.name)
        assert caught.value.code is ErrorCode.UNSUPPORTED
    with pytest.raises(InvalidInputError, match="cluster"):
        SparkEngine("./here", spark=spark)
