"""Checkpoint directories that Spark itself wrote, as history."""

import json
import shutil
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.interop.sparkdir.logs import flattened
from laminar_delta.model import KafkaPartitionOffset, KafkaPosition, SourcePosition
from tests.interop.support import fingerprint, memory_catalog

SPARK = Path(__file__).parents[1] / "data" / "spark"


@pytest.fixture
def catalog() -> ld.Catalog:
    return memory_catalog()


@pytest.fixture
def query(tmp_path: Path) -> Path:
    shutil.copytree(SPARK / "hdfs", tmp_path / "query")
    return tmp_path / "query"


@pytest.mark.parametrize(("provider", "suffix"), [("hdfs", "delta"), ("rocksdb", "zip")])
def test_every_committed_batch_is_a_checkpoint(provider: str, suffix: str, catalog: ld.Catalog) -> None:
    before = fingerprint(SPARK / provider)
    report = interop.import_checkpoints(SPARK / provider, catalog, "query")
    assert (report.kind, report.imported, report.skipped) == ("spark-checkpoint", (1, 2, 3, 4), ())
    pipeline = catalog.pipeline("query")
    query_id = json.loads((SPARK / provider / "metadata").read_text())["id"]
    rows = {row["checkpoint_id"]: row["external_id"] for row in catalog.engine.read("manifests").to_pylist()}
    assert rows == {batch + 1: f"{query_id}/{batch}" for batch in range(4)}
    for batch in range(4):
        said = json.loads((SPARK / provider / "offsets" / str(batch)).read_text().split("\n")[1])
        found = pipeline.get(batch + 1)
        assert found.epoch == batch + 1
        assert found.timestamp_ms == said["batchTimestampMs"]
        assert found.watermark == (said["batchWatermarkMs"] or None)
        assert found.source_offsets["source-0"].offsets == {"logOffset": str(batch)}
        listed = json.loads(pipeline.state(batch + 1).read("__spark__/state"))
        assert [file["path"] for file in listed] == [f"0/{part}/{batch + 1}.{suffix}" for part in (0, 1)]
        assert found.size_bytes == sum((SPARK / provider / "state" / file["path"]).stat().st_size for file in listed)
        logs = json.loads(pipeline.state(batch + 1).read("__spark__"))
        assert logs["offsets"] == (SPARK / provider / "offsets" / str(batch)).read_text()
        assert logs[f"sources/0/{batch}"] == (SPARK / provider / "sources" / "0" / str(batch)).read_text()
    assert pipeline.recover(dry_run=True).chosen_id == 4
    assert fingerprint(SPARK / provider) == before


def test_inspecting_tells_the_query_its_sources_and_its_state() -> None:
    seen = interop.inspect_source(SPARK / "rocksdb")
    assert seen.intact
    assert seen.chosen == "batch 3"
    assert seen.details is not None
    assert seen.details["sources"] == {"0": 4}
    state = seen.details["state"]
    assert isinstance(state, dict)
    assert state["0"]["partitions"] == 2
    assert state["0"]["bytes"] == sum(
        path.stat().st_size for path in (SPARK / "rocksdb" / "state").rglob("*") if path.is_file()
    )


def test_a_batch_that_was_planned_only_is_left_to_spark(query: Path, catalog: ld.Catalog) -> None:
    (query / "commits" / "3").unlink()
    report = interop.import_checkpoints(query, catalog, "q")
    assert report.imported == (1, 2, 3)
    assert [(one.name, one.reason) for one in report.skipped] == [
        ("batch 3", "batch 3 was planned and not committed: Spark runs it again")
    ]


@pytest.mark.parametrize(
    ("log", "content", "reason"),
    [
        ("offsets", "v2\n{}\n-", "log version 'v2'"),
        ("offsets", "", "log version ''"),
        ("offsets", "v1", "ends after its version"),
        ("offsets", 'v1\n{"batchTimestampMs":-1}\n-', "batchTimestampMs"),
        ("offsets", "v1\n" + "[" * 100_000, "nested too deep"),
        ("offsets", b"v1\n\xff", "not UTF-8"),
        ("commits", "", "log version ''"),
        ("commits", 'v1\n{"nextBatchWat', "syntax error"),
        ("commits", "v1", "syntax error"),
    ],
)
def test_a_damaged_log_entry_is_skipped(
    log: str, content: str | bytes, reason: str, query: Path, catalog: ld.Catalog
) -> None:
    (query / log / "1").write_bytes(content if isinstance(content, bytes) else content.encode())
    report = interop.import_checkpoints(query, catalog, "q")
    assert report.imported == (1, 3, 4)
    assert report.skipped[0].name == "batch 1"
    assert reason in report.skipped[0].reason


def test_state_files_that_spark_removed_since_are_no_difference(query: Path, catalog: ld.Catalog) -> None:
    interop.import_checkpoints(query, catalog, "q")
    for path in (query / "state").rglob("1.delta"):
        path.unlink()
    again = interop.import_checkpoints(query, catalog, "q")
    assert (again.already_there, again.skipped) == (4, ())


def test_another_query_under_the_same_name_is_not_the_same_history(query: Path, catalog: ld.Catalog) -> None:
    interop.import_checkpoints(query, catalog, "q")
    report = interop.import_checkpoints(SPARK / "rocksdb", catalog, "q")
    assert report.imported == ()
    assert len(report.skipped) == 4
    assert "here already, but not the same: checkpoint 1 is " in report.skipped[0].reason


def test_without_a_query_id_it_still_comes_in(query: Path, catalog: ld.Catalog) -> None:
    (query / "metadata").write_text("{}")
    report = interop.import_checkpoints(query, catalog, "q")
    assert report.imported == (1, 2, 3, 4)
    assert report.notes == ("the query has no id: metadata names no query id",)


@pytest.mark.parametrize(
    ("offset", "kind", "offsets"),
    [
        ('{"orders":{"0":5,"11":-1},"t-x":{"2":9}}', "kafka", {"orders-0": "5", "orders-11": "-1", "t-x-2": "9"}),
        (
            '{"sourceVersion":1,"reservoirId":"r","index":-1,"isStartingVersion":false}',
            "spark-delta",
            {"sourceVersion": "1", "reservoirId": "r", "index": "-1", "isStartingVersion": "false"},
        ),
        ("42", "spark", {"offset": "42"}),
        ('{"a":{"b":[1.5,null]}}', "spark", {"a": '{"b":["1.5",null]}'}),
        ("not json", "spark", {"offset": "not json"}),
        ("{}", "spark", {"offset": "{}"}),
    ],
)
def test_offsets_of_sources_become_maps(offset: str, kind: str, offsets: dict[str, str]) -> None:
    assert flattened(offset) == (kind, offsets)


def test_kafka_offsets_are_positions_like_any_other(query: Path, catalog: ld.Catalog) -> None:
    text = (query / "offsets" / "3").read_text().split("\n")
    (query / "offsets" / "3").write_text("\n".join([*text[:2], '{"orders":{"0":5}}', "-"]))
    interop.import_checkpoints(query, catalog, "q")
    found = catalog.pipeline("q").get(4)
    assert found.source_names == ("source-0", "source-1")
    position = SourcePosition.from_connector_checkpoint(found.source_offsets["source-0"])
    expected = KafkaPartitionOffset(topic="orders", partition=0, offset=5)
    assert position == KafkaPosition(group_id="", partitions=(expected,))
