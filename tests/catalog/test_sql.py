"""The SQL views say what the Python API says, on every engine, and as of any version."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.tables import MANIFESTS, TABLES
from laminar_delta.catalog.views import VIEWS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ErrorCode, InvalidInputError, SessionStateError, StorageError
from laminar_delta.model.status import SinkCommitStatus
from tests.support.catalogs import QUICK_ENGINES, catalog_opener, ready_made
from tests.support.histories import HOSTILE, add_delta, decide, fill
from tests.support.sqltypes import sql_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
PIPELINES = ("orders", "forked", *HOSTILE)


@pytest.fixture(params=QUICK_ENGINES)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ld.Catalog]:
    return ready_made(request.param, tmp_path / "catalog", request)


@pytest.fixture(scope="module", params=QUICK_ENGINES)
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ld.Catalog:
    """One for all tests that only ask."""
    made = catalog_opener(request.param, tmp_path_factory.mktemp("sql") / "catalog", request)()
    fill(made)
    return made


@pytest.fixture
def catalog(filled: ld.Catalog, tmp_path: Path) -> ld.Catalog:
    """The same, for a test to change."""
    if filled.engine.persistent:
        shutil.copytree(filled.engine.location, tmp_path / "catalog")
        return ld.open_catalog(str(tmp_path / "catalog"))
    made = ld.open_catalog("memory", engine="memory", store={})
    fill(made)
    return made


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def ask(catalog: ld.Catalog, query: str) -> list[dict[str, Any]]:
    return catalog.sql(query).to_pylist()


def test_checkpoints_are_those_readers_see(catalog: ld.Catalog) -> None:
    for name in PIPELINES:
        pipeline = catalog.pipeline(name)
        found = ask(catalog, f"SELECT * FROM checkpoints WHERE pipeline = {quoted(name)} ORDER BY checkpoint_id")
        for row, head in zip(found, pipeline.list(), strict=True):
            manifest = pipeline.get(head.checkpoint_id)
            assert (row["checkpoint_id"], row["epoch"], row["attempt_id"], row["generation"]) == (
                head.checkpoint_id,
                head.epoch,
                head.attempt_id,
                head.generation,
            )
            assert row["created_at"].timestamp() * 1000 == pytest.approx(manifest.timestamp_ms)
            assert (row["size_bytes"], row["state_checksum"]) == (manifest.size_bytes, manifest.state_checksum)
            assert (tuple(row["source_names"]), tuple(row["sink_names"])) == (
                manifest.source_names,
                manifest.sink_names,
            )
    marks = ask(catalog, "SELECT checkpoint_id, is_pinned, is_abandoned FROM checkpoints WHERE pipeline = 'orders'")
    decided = standing(catalog.reading, "orders")
    assert {row["checkpoint_id"] for row in marks} == {2, 3, 5}
    assert {row["checkpoint_id"] for row in marks if row["is_pinned"]} == decided.pinned == {2}
    assert decided.abandoned == {4}
    catalog.pipeline("orders").restore(4)
    left = ask(catalog, "SELECT checkpoint_id AS id FROM checkpoints WHERE is_abandoned")
    assert left == [{"id": 4}]


def test_latest_is_what_the_pipeline_calls_its_latest(catalog: ld.Catalog) -> None:
    found = {row["pipeline"]: row["checkpoint_id"] for row in ask(catalog, "SELECT * FROM latest_checkpoints")}
    expected = {name: manifest.checkpoint_id for name in PIPELINES if (manifest := catalog.pipeline(name).latest())}
    assert found == expected
    assert set(found) == set(PIPELINES)
    decide(catalog, "orders", 5, "retired")
    assert ask(catalog, "SELECT checkpoint_id AS id FROM latest_checkpoints WHERE pipeline = 'orders'") == [{"id": 3}]


def test_every_offset_has_its_row(catalog: ld.Catalog) -> None:
    expected: set[tuple[Any, ...]] = set()
    for name in PIPELINES:
        pipeline = catalog.pipeline(name)
        for head in pipeline.list():
            manifest = pipeline.get(head.checkpoint_id)
            fixed = (name, head.checkpoint_id, head.epoch)
            for kind, connectors in (("source", manifest.source_offsets), ("table", manifest.table_offsets)):
                for connector, found in connectors.items():
                    watermark = manifest.source_watermarks.get(connector) if kind == "source" else None
                    own = (*fixed, kind, connector, found.epoch, watermark)
                    expected |= {(*own, key, value) for key, value in found.offsets.items()} or {(*own, None, None)}
    columns = "pipeline, checkpoint_id, epoch, kind, name, source_epoch, watermark, partition_key, offset_text"
    rows = ask(catalog, f"SELECT {columns} FROM offsets_history")
    assert {tuple(row.values()) for row in rows} == expected
    assert len(rows) == len(expected)
    numbers = ask(
        catalog, "SELECT DISTINCT partition_key AS k, offset_text AS t, offset_number AS n FROM offsets_history"
    )
    for row in numbers:
        plain = row["t"] is not None and row["t"].removeprefix("-").isdecimal() and abs(int(row["t"])) < 2**63
        assert row["n"] == (int(row["t"]) if plain else None)
    assert {row["n"] for row in numbers} >= {-7, 2000, 5000, None}


def test_sinks_have_every_status_and_the_one_that_counts(catalog: ld.Catalog) -> None:
    for name in PIPELINES:
        pipeline = catalog.pipeline(name)
        where = f"pipeline = {quoted(name)}"
        current = ask(catalog, f"SELECT * FROM sink_history WHERE is_current AND {where}")
        found = {(row["checkpoint_id"], row["sink"]): (row["status"], row["error"]) for row in current}
        expected = {}
        for head in pipeline.list():
            manifest = pipeline.get(head.checkpoint_id)
            for sink in manifest.sink_epochs:
                status = manifest.sink_commit_statuses.get(sink)
                told = (None, None) if status is None else (status.kind.value, status.message)
                expected[head.checkpoint_id, sink] = told
        assert found == expected
        assert len(current) == len(expected)
    columns = "SELECT status, error, is_saved, changed_by, is_current, current_status FROM sink_history"
    rows = ask(catalog, f"{columns} WHERE pipeline = 'orders' AND checkpoint_id = 3 ORDER BY is_saved DESC, ordinal")
    assert [tuple(row.values()) for row in rows] == [
        ("Pending", None, True, None, False, "Committed"),
        ("Failed", "disk 'full'", False, "job-7", False, "Committed"),
        ("Committed", None, False, "job-7", True, "Committed"),
    ]


def test_committed_stays_so_and_else_the_last_of_the_newest_writer_counts(catalog: ld.Catalog) -> None:
    catalog.pipeline("orders").restore(4)
    fourth = "SELECT error FROM sink_history WHERE pipeline = 'orders' AND checkpoint_id = 4 AND is_current"
    assert ask(catalog, fourth) == [{"error": "timeout"}]
    with catalog.writer("orders") as writer:
        writer.sink_failed(2, "warehouse", "too late")
        writer.sink_failed(4, "warehouse", "first")
        writer.sink_failed(4, "warehouse", "second")
    query = "SELECT checkpoint_id, current_status, error FROM sink_history WHERE pipeline = 'orders' AND is_current"
    assert [tuple(row.values()) for row in ask(catalog, f"{query} ORDER BY checkpoint_id")] == [
        (2, "Committed", None),
        (3, "Committed", None),
        (4, "Failed", "second"),
    ]


def test_a_sink_saved_as_committed_stays_so(catalog: ld.Catalog) -> None:
    with catalog.writer("delivered") as writer:
        saved = ld.CheckpointManifest.new(1, 1)
        writer.save(replace(saved, sink_epochs={"a": 1}, sink_commit_statuses={"a": SinkCommitStatus.committed()}))
        writer.sink_failed(1, "a", "too late")
    query = "SELECT DISTINCT current_status FROM sink_history WHERE pipeline = 'delivered'"
    assert ask(catalog, query) == [{"current_status": "Committed"}]
    assert catalog.pipeline("delivered").get(1).sink_commit_statuses["a"].is_committed


def test_state_usage_has_every_partition_with_its_size(catalog: ld.Catalog) -> None:
    rows = ask(catalog, "SELECT * FROM state_usage")
    found = {(r["pipeline"], r["checkpoint_id"], r["operator"], r["partition"]): r for r in rows}
    assert len(found) == len(rows)
    expected = {}
    for name in PIPELINES:
        pipeline = catalog.pipeline(name)
        for head in pipeline.list():
            state = pipeline.state(head.checkpoint_id)
            for operator, partitions in state.partitions().items():
                for partition in partitions:
                    expected[name, head.checkpoint_id, operator, partition] = len(state.read(operator, partition))
    assert {key: row["raw_bytes"] for key, row in found.items()} == expected
    assert {(row["storage"], row["form"]) for row in rows} == {("inline", "full"), ("table", "full")}
    for row in rows:
        if row["storage"] == "table":
            assert 0 < row["stored_bytes"] < row["raw_bytes"]
        else:
            assert row["stored_bytes"] == row["raw_bytes"]
    assert found["orders", 2, "large", 3]["chunks"] == 1


def test_deltas_and_state_of_another_checkpoint_are_counted_where_they_are_used(catalog: ld.Catalog) -> None:
    add_delta(catalog)
    sizes = "SELECT operator, partition, storage, form, chunks, raw_bytes, stored_bytes FROM state_usage"
    full, delta = ask(catalog, f"{sizes} WHERE pipeline = 'changing' ORDER BY checkpoint_id")
    assert tuple(full.values())[:-1] == ("agg", 1, "table", "full", 49, 50_000)
    assert tuple(delta.values())[:-1] == ("agg", 1, "table", "delta", 2, 50_000)
    assert 2048 <= delta["stored_bytes"] < 2200
    original = ask(catalog, f"{sizes} WHERE pipeline = 'orders' AND checkpoint_id = 2 ORDER BY operator, partition")
    forked = f"{sizes} WHERE pipeline = 'forked' AND checkpoint_id = 2 ORDER BY operator, partition"
    assert len(original) == 4
    assert ask(catalog, forked) == original
    # Also when what it was derived from is no longer to be seen, or not there at all.
    decide(catalog, "orders", 2, "released", "retired")
    assert ask(catalog, f"{sizes} WHERE pipeline = 'orders' AND checkpoint_id = 2") == []
    assert ask(catalog, forked) == original
    catalog.engine.delete(MANIFESTS.name, col("pipeline").eq("orders") & col("checkpoint_id").eq(2))
    assert ask(catalog, forked) == original
    how = ask(catalog, "SELECT derived_how AS how, derived_from_id AS id FROM checkpoints WHERE pipeline = 'forked'")
    assert sorted(tuple(row.values()) for row in how) == [("edit", 1), ("fork", 2)]


@pytest.mark.parametrize(
    ("decisions", "visible"),
    [
        (["retired"], False),
        (["retired", "restored"], True),
        (["retired", "restored", "retired"], False),
        (["retired", "removed"], False),
        (["retired", "removed", "restored"], False),
        (["pinned", "abandoned"], True),
        (["pinned", "released", "pinned"], True),
        (["pinned", "released"], True),
        (["resumed by 1", "abandoned"], True),
        (["resumed by 2", "abandoned"], True),
        (["abandoned", "resumed by 2"], True),
    ],
)
def test_decisions_stand_as_they_do_for_readers(
    opener: Callable[[], ld.Catalog], decisions: list[str], visible: bool
) -> None:
    catalog = opener()
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
    for decision in decisions:
        word, _, generation = decision.partition(" by ")
        decide(catalog, "orders", 1, word, generation=int(generation or 1))
    for view in ("latest_checkpoints", "offsets_history"):
        assert len(ask(catalog, f"SELECT checkpoint_id FROM {view}")) == visible
    decided = standing(catalog.reading, "orders")
    assert (1 not in decided.retired) is visible
    marks = ask(catalog, "SELECT is_pinned, is_abandoned FROM checkpoints")
    expected = {"is_pinned": 1 in decided.pinned, "is_abandoned": 1 in decided.abandoned}
    assert marks == ([expected] if visible else [])


def test_recoveries_are_told_with_what_they_passed_over(catalog: ld.Catalog) -> None:
    report = catalog.pipeline("orders").recover(owner="third")
    rows = ask(catalog, "SELECT * FROM recovery_history ORDER BY started_at")
    assert [(r["owner"], r["chosen_id"], r["examined"], r["skipped"], r["healed"]) for r in rows] == [
        ("job-8", 3, 4, 1, 0),
        ("ops", 5, 3, 0, 0),
        ("third", report.chosen_id, report.examined, 0, 0),
    ]
    steps = ask(catalog, "SELECT * FROM recovery_steps ORDER BY started_at, checkpoint_id")
    assert [(s["checkpoint_id"], s["outcome"]) for s in steps] == [
        (3, "chosen"),
        (4, "skipped"),
        (5, "chosen"),
        (5, "chosen"),
    ]
    assert steps[1]["reason"] == "undelivered: sink 'warehouse' is Failed: timeout"


def test_the_catalog_as_it_was_is_asked_the_same_way(opener: Callable[[], ld.Catalog]) -> None:
    catalog = opener()
    with catalog.writer("orders") as writer:
        for number in (1, 2):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": str(number)})
            if number == 1:
                versions = {spec.name: catalog.engine.version(spec.name) for spec in TABLES}
    then = catalog.as_of(versions=versions)
    query = "SELECT checkpoint_id AS id, offset_text AS at FROM offsets_history ORDER BY id"
    assert ask(then, query) == [{"id": 1, "at": "1"}]
    assert ask(catalog, query) == [{"id": 1, "at": "1"}, {"id": 2, "at": "2"}]
    with pytest.raises(SessionStateError):
        then.create_views()


def test_a_save_in_the_middle_of_a_query_does_not_tear_it(
    opener: Callable[[], ld.Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, other = opener(), opener()
    opened = "_open" if catalog.engine.name == "embedded" else "read"
    with other.writer("orders") as writer:
        really = getattr(catalog.engine, opened)
        seen = []

        def open_and_save(table: str, *arguments: Any, **named: Any) -> Any:
            found = really(table, *arguments, **named)
            seen.append(table)
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": "1"})
            return found

        open_and_save("writers")
        monkeypatch.setattr(catalog.engine, opened, open_and_save)
        found = ask(
            catalog,
            "SELECT c.checkpoint_id, o.offset_text FROM checkpoints AS c "
            "LEFT JOIN offsets_history AS o ON o.checkpoint_id = c.checkpoint_id",
        )
    assert {"manifests", "source_offsets", "retention"} <= set(seen)
    assert found
    assert all(row["offset_text"] == "1" for row in found)


def test_files_that_rot_or_are_gone_are_no_mistake_of_the_query(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
    (file,) = (tmp_path / "catalog" / "manifests").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-100] + bytes(100))
    with pytest.raises(StorageError, match="manifests"):
        catalog.sql("SELECT checkpoint_id FROM latest_checkpoints")
    file.unlink()
    with pytest.raises(StorageError) as caught:
        catalog.sql("SELECT checkpoint_id FROM latest_checkpoints")
    assert caught.value.code is ErrorCode.FILE_MISSING


def test_a_new_catalog_answers_with_columns_and_no_rows(opener: Callable[[], ld.Catalog]) -> None:
    catalog = opener()
    for name in (*VIEWS, *(spec.name for spec in TABLES)):
        answer = catalog.sql(f"SELECT * FROM {name}")
        assert answer.num_rows == 0
        assert answer.schema.names


def test_mistakes_name_the_views(catalog: ld.Catalog) -> None:
    for query in ("SELECT * FROM snapshots", "SELECT no_such FROM checkpoints", "DROP VIEW checkpoints"):
        with pytest.raises(InvalidInputError) as caught:
            catalog.sql(query)
    with pytest.raises(InvalidInputError, match="latest_checkpoints, manifest_parts, manifests, offsets_history"):
        catalog.sql("SELECT * FROM snapshots")
    with pytest.raises(InvalidInputError, match=r"catalog\.sql") as caught:
        catalog.create_views()
    assert caught.value.code is ErrorCode.UNSUPPORTED


QUESTIONS = [match[1] for match in re.finditer(r"```sql\n(.*?)```", PAGE, re.DOTALL)]

EVERYWHERE = (
    *QUESTIONS,
    "SELECT * FROM checkpoints ORDER BY pipeline, checkpoint_id",
    "SELECT * FROM offsets_history ORDER BY pipeline, checkpoint_id, kind, name, partition_key",
    "SELECT * FROM sink_history ORDER BY pipeline, checkpoint_id, sink, is_saved, ordinal",
    "SELECT * FROM state_usage ORDER BY pipeline, checkpoint_id, operator, partition",
    "SELECT * FROM recovery_history ORDER BY started_at",
    f"SELECT COUNT(*) AS n, MAX(offset_number) AS top FROM offsets_history WHERE pipeline = {quoted(HOSTILE[2])}",
    "SELECT pipeline, checkpoint_id, "
    "ROW_NUMBER() OVER (PARTITION BY pipeline ORDER BY checkpoint_id DESC) AS age FROM checkpoints ORDER BY 1, 2",
)


@pytest.mark.parametrize("query", QUESTIONS)
def test_the_questions_of_the_page_have_answers(query: str, filled: ld.Catalog) -> None:
    assert filled.sql(query).num_rows > 0


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_described_as_it_is(view: str, filled: ld.Catalog) -> None:
    told = PAGE.split(f"\n### {view}\n", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S", told, re.MULTILINE)
    columns = [(field.name, sql_name(field.type)) for field in filled.sql(f"SELECT * FROM {view}").schema]
    if view == "latest_checkpoints":
        assert columns == [(f.name, sql_name(f.type)) for f in filled.sql("SELECT * FROM checkpoints").schema]
    elif view == "checkpoints":
        assert [name for name, _ in columns] == [
            *(f.name for f in MANIFESTS.schema if not pa.types.is_nested(f.type)),
            *(name for name, _ in rows),
        ]
        assert columns[-len(rows) :] == rows
    else:
        assert columns == rows


@pytest.mark.also_on_spark
@pytest.mark.spark
def test_the_same_text_gives_the_same_table_on_spark(tmp_path: Path, spark: "SparkSession") -> None:
    from laminar_delta.engine.spark import SparkEngine

    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    fill(catalog)
    add_delta(catalog)
    there = ld.Catalog(SparkEngine(str(tmp_path / "catalog"), spark=spark))
    for query in EVERYWHERE:
        here, answer = catalog.sql(query), there.sql(query)
        assert here.num_rows > 0, query
        assert answer.schema == here.schema, query
        assert answer.to_pylist() == here.to_pylist(), query
    assert isinstance(answer, pa.Table)
    versions = {spec.name: 0 for spec in TABLES}
    assert there.as_of(versions=versions).sql("SELECT COUNT(*) AS n FROM checkpoints").to_pylist() == [{"n": 0}]
    assert not [table.name for table in spark.catalog.listTables() if table.isTemporary]
