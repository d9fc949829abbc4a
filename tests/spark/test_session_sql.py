"""The statements for notebooks, run as they are shipped: the same rows as the Python API, and no row for a fenced writer."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import laminar_delta as ld
from laminar_delta.catalog.session_commit import SessionToken
from laminar_delta.catalog.session_sql import session_sql
from laminar_delta.catalog.tables import SESSION_STEPS, SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col
from laminar_delta.engine.spark.settings import SPEED
from laminar_delta.errors import CorruptionError, FencedError, InvalidInputError, NotFoundError
from laminar_delta.stores import SourceCheckpointStore
from tests.sessions.support import at, commits, raw
from tests.stores.support import overwrite
from tests.support.catalogs import ready_made

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

OWN = ("pipeline", "session_id", "changed_at", "changed_by")
"""Columns in which two commits of the same steps differ."""

STEPS: list[list[dict[str, Any]]] = [
    [
        {"kind": "source", "source": "kafka", "sequence": 7, "position": b"\x00\xff"},
        {"kind": "source", "source": "kafka", "sequence": 6, "position": b"\xff"},
        {"kind": "source", "source": "it's a \\ é", "sequence": 1, "position": b""},
        {"kind": "source", "source": "gone", "sequence": 2**63 - 1, "position": b"x" * 65_536},
        {"kind": "config", "config_hash": 2**64 - 1},
        {"kind": "result", "source": "q", "sequence": 40},
    ],
    [
        {"kind": "source", "source": "kafka", "sequence": 3},
        {"kind": "source", "source": "same", "sequence": 4, "position": b"lower"},
        {"kind": "source", "source": "same", "sequence": 4, "position": b"upper"},
        {"kind": "source", "source": "same", "sequence": 4},
        {"kind": "result", "source": "q", "sequence": 39},
        {"kind": "result", "source": "r", "sequence": 1},
    ],
    [
        {"kind": "source", "source": "kafka", "sequence": 1, "position": b"anew"},
        {"kind": "clear"},
        {"kind": "result", "source": "q", "sequence": 2},
    ],
    # What is not of a step's kind counts for nothing.
    [
        {"kind": "source", "source": "kafka", "sequence": 2, "config_hash": 2**64 - 2},
        {"kind": "result", "source": "q", "sequence": 3, "position": b"of nothing", "config_hash": 2**64 - 3},
        {"kind": "config", "source": "named", "sequence": 9, "position": b"of nothing", "config_hash": 6},
        {"kind": "config", "source": "named", "sequence": 8, "config_hash": 7},
    ],
    [{"kind": "source", "source": "kafka", "sequence": 3, "config_hash": 8}],
    [{"kind": "clear"}, {"kind": "config", "config_hash": 0}, {"kind": "config", "config_hash": 5}],
    [{"kind": "clear", "source": "cleared", "sequence": 4, "position": b"of nothing", "config_hash": 9}],
]


class Notebook:
    """A session of the user's in which the shipped statements run."""

    def __init__(self, spark: "SparkSession", schema: str) -> None:
        self._spark = spark.newSession()
        for name, value in SPEED.items():
            # The statements are long; at Spark's defaults each takes half a minute on two cores.
            if "materializeSource" not in name:
                self._spark.conf.set(name, value)
        self._spark.sql(f"USE {schema}")
        self.run("session_variables")

    def run(self, name: str) -> list[dict[str, Any]]:
        """Runs a shipped file; what its last statement said."""
        for statement in session_sql(name):
            said = self._spark.sql(statement).collect()
        return [row.asDict() for row in said]

    def set(self, **values: object) -> None:
        for name, value in values.items():
            text = str(value) if isinstance(value, int) else f"'{value}'"
            self._spark.sql(f"SET VAR laminar_{name} = {text}")

    def stage(self, steps: list[dict[str, Any]]) -> None:
        columns = "kind string, source string, sequence bigint, position binary, config_hash decimal(20,0)"
        names = ("kind", "source", "sequence", "position", "config_hash")
        rows = [
            tuple(Decimal(step[n]) if n == "config_hash" and n in step else step.get(n) for n in names)
            for step in steps
        ]
        self._spark.createDataFrame(rows, columns).createOrReplaceTempView("staged_rows")
        self.run("session_stage")

    def stage_row(self, **columns: str) -> None:
        """One row as a query makes it, of whatever types that gives."""
        row = dict.fromkeys(("kind", "source", "sequence", "position", "config_hash"), "NULL") | columns
        told = ", ".join(f"{value} AS {name}" for name, value in row.items())
        self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW staged_rows AS SELECT {told}")
        self.run("session_stage")

    def commit(self) -> tuple[int, str]:
        """How many rows the commit touched, and what became of it."""
        (counts,) = self.run("session_commit")
        return counts["num_affected_rows"], self.outcome()

    def outcome(self) -> str:
        """What became of the session, as the statement tells it."""
        (told,) = self.run("session_outcome")
        return str(told["outcome"])

    def token(self) -> SessionToken:
        """The session as Python knows it."""
        names = ("pipeline", "session", "generation", "ordinal", "owner")
        (row,) = self._spark.sql("SELECT " + ", ".join(f"laminar_{name}" for name in names)).collect()
        pipeline, session_id, generation, ordinal, owner = row
        return SessionToken(
            pipeline=pipeline, session_id=session_id, generation=generation, ordinal=ordinal, owner=owner
        )


@pytest.fixture(scope="module")
def catalog(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> ld.Catalog:
    return ready_made("spark", tmp_path_factory.mktemp("sql") / "catalog", request)()


@pytest.fixture(scope="module")
def notebook(spark: "SparkSession", catalog: ld.Catalog) -> Notebook:
    """A schema over the tables of the catalog, as a metastore would have it."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS session_statements")
    for table in ("source_checkpoints", "session_steps"):
        place = Path(catalog.engine.location) / table
        spark.sql(f"CREATE TABLE session_statements.{table} USING DELTA LOCATION '{place}'")
    return Notebook(spark, "session_statements")


def _rows(catalog: ld.Catalog, pipeline: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        key: {name: value for name, value in row.items() if name not in OWN}
        for key, row in raw(catalog, pipeline).items()
    }


def test_the_shipped_statements_give_the_same_rows_as_the_python_api(catalog: ld.Catalog, notebook: Notebook) -> None:
    by_python = SourceCheckpointStore(catalog, "by python", owner="job")
    generation = SourceCheckpointStore(catalog, "by sql", owner="job").take_generation()
    notebook.set(pipeline="by sql", generation=generation, owner="notebook")
    for steps in STEPS:
        with by_python.session() as session:
            session.stage_table(steps)
        notebook.run("session_begin")
        notebook.stage(steps)
        notebook.stage(steps[-2:])
        affected, outcome = notebook.commit()
        assert outcome == "committed"
        assert affected > 0
        assert _rows(catalog, "by sql") == _rows(catalog, "by python")
    # Once more, as a task that is repeated does it.
    assert notebook.commit() == (0, "committed")
    assert _rows(catalog, "by sql") == _rows(catalog, "by python")
    head = raw(catalog, "by sql")["head", ""]
    assert (head["changed_by"], head["ordinal"]) == ("notebook", len(STEPS))


def test_statements_and_sessions_see_each_other_and_a_fenced_one_changes_no_row(
    catalog: ld.Catalog, notebook: Notebook
) -> None:
    store = SourceCheckpointStore(catalog, "shared")
    notebook.set(pipeline="shared", generation=store.take_generation(), owner="notebook")
    notebook.run("session_begin")
    assert notebook.commit() == (0, "open")
    notebook.stage([{"kind": "source", "source": "kafka", "sequence": 1, "position": b"by sql"}])
    waiting = store.session()
    waiting.stage("files", 1)
    assert store.read_all_checkpoints() == {}
    assert notebook.commit() == (2, "committed")
    # A session that began before is told, and goes on from there.
    with pytest.raises(ld.ConflictError, match="came first"):
        waiting.commit()
    waiting.retry()
    assert store.read_all_checkpoints() == {"kafka": at(1, b"by sql"), "files": at(1)}
    # And the other way round.
    notebook.run("session_begin")
    notebook.stage([{"kind": "source", "source": "kafka", "sequence": 2}])
    store.stage_checkpoint("files", 2)
    assert notebook.commit() == (0, "lost")
    notebook.set(ordinal=raw(catalog, "shared")["head", ""]["ordinal"])
    assert notebook.commit() == (2, "committed")
    # A writer takes over: the statement changes nothing, and its counts show it.
    notebook.run("session_begin")
    notebook.stage([{"kind": "clear"}, {"kind": "source", "source": "kafka", "sequence": 9}])
    successor = SourceCheckpointStore(catalog, "shared")
    successor.take_generation()
    before = raw(catalog, "shared")
    assert notebook.commit() == (0, "fenced")
    notebook.run("session_begin")
    notebook.stage([{"kind": "source", "source": "kafka", "sequence": 9}])
    assert notebook.commit() == (0, "fenced")
    assert raw(catalog, "shared") == before
    with pytest.raises(FencedError):
        store.session()
    assert successor.read_all_checkpoints() == {"kafka": at(2), "files": at(2)}


def test_a_session_that_a_statement_overtook_is_told_so_and_leaves_no_entry(
    catalog: ld.Catalog, notebook: Notebook
) -> None:
    """The statement comes right before the session's MERGE, after the look whether that has an effect: it takes no lock."""
    store = SourceCheckpointStore(catalog, "overtaken")
    notebook.set(pipeline="overtaken", generation=store.take_generation(), owner="notebook")
    notebook.run("session_begin")
    notebook.stage([{"kind": "source", "source": "kafka", "sequence": 1}])
    session = store.session()
    session.stage("files", 7, b"7")
    real, told = catalog.engine._is_idle, []  # type: ignore[attr-defined]

    def overtaken(*given: Any) -> bool:
        idle = bool(real(*given))
        told.append((idle, notebook.commit()))
        return idle

    with patch.object(catalog.engine, "_is_idle", overtaken), pytest.raises(ld.ConflictError, match="came first"):
        session.commit()
    assert told == [(False, (2, "committed"))]
    assert store.read_all_checkpoints() == {"kafka": at(1)}
    assert session.id not in {record.session_id for record in store.history()}
    session.retry()
    assert store.read_all_checkpoints() == {"kafka": at(1), "files": at(7, b"7")}


def test_a_statement_commits_nothing_where_rows_are_lost_until_a_session_heals_them(
    catalog: ld.Catalog, notebook: Notebook
) -> None:
    store = SourceCheckpointStore(catalog, "lost rows")
    store.stage_checkpoint("kafka", 1)
    notebook.set(pipeline="lost rows", generation=store.take_generation(), owner="notebook")
    notebook.run("session_begin")
    notebook.stage([{"kind": "source", "source": "files", "sequence": 1}])
    catalog.engine.delete("source_checkpoints", col("pipeline").eq("lost rows") & col("source").eq("kafka"))
    assert notebook.commit() == (0, "damaged")
    store.stage_checkpoint("other", 1)
    notebook.run("session_begin")
    notebook.stage([{"kind": "source", "source": "files", "sequence": 1}])
    assert notebook.commit() == (2, "committed")
    assert store.read_all_checkpoints() == {"kafka": at(1), "other": at(1), "files": at(1)}


def test_a_statement_commits_nothing_over_rows_that_were_changed_by_hand(
    catalog: ld.Catalog, notebook: Notebook
) -> None:
    """It would have given them checksums that fit."""
    store = SourceCheckpointStore(catalog, "changed rows")
    with store.session() as session:
        session.stage("kafka", 7, b"7")
        session.write_config_hash(5)
    notebook.set(pipeline="changed rows", generation=store.take_generation(), owner="notebook")
    notebook.run("session_begin")
    notebook.stage([{"kind": "source", "source": "files", "sequence": 1}])
    for kind, column, by_hand, committed in (("head", "config_hash", 6, 5), ("source", "position", b"8", b"7")):
        where = col("pipeline").eq("changed rows") & col("kind").eq(kind)
        overwrite(catalog, SOURCE_CHECKPOINTS, where, {column: by_hand})
        with pytest.raises(CorruptionError):
            store.session()
        assert notebook.commit() == (0, "damaged")
        overwrite(catalog, SOURCE_CHECKPOINTS, where, {column: committed})
    assert notebook.commit() == (2, "committed")
    assert store.read_all_checkpoints() == {"kafka": at(7, b"7"), "files": at(1)}


def test_what_became_of_a_statement_is_told_also_when_others_committed_since(
    catalog: ld.Catalog, notebook: Notebook
) -> None:
    store = SourceCheckpointStore(catalog, "asked later")
    notebook.set(pipeline="asked later", generation=store.take_generation(), owner="notebook")
    notebook.run("session_begin")
    assert notebook.outcome() == "open"
    notebook.stage([{"kind": "source", "source": "kafka", "sequence": 1}])
    assert notebook.commit() == (2, "committed")
    store.stage_checkpoint("files", 1)
    assert notebook.outcome() == "committed"
    # Written over: no row is left that could tell, and nobody is advised to commit again.
    store.stage_checkpoint("kafka", 2)
    assert notebook.outcome() == "unknown"
    notebook.run("session_begin")
    notebook.stage([{"kind": "source", "source": "kafka", "sequence": 3}])
    store.stage_checkpoint("files", 2)
    assert notebook.commit() == (0, "lost")
    store.stage_checkpoint("files", 3)
    assert notebook.outcome() == "unknown"


def test_what_comes_after_the_commit_is_not_told_as_committed(catalog: ld.Catalog, notebook: Notebook) -> None:
    """A loop that leaves out session_begin.sql in its second round, or a task that stages late and is committed again."""
    store = SourceCheckpointStore(catalog, "late")
    store.stage_checkpoint("files", 1)
    notebook.set(pipeline="late", generation=store.take_generation(), owner="notebook")
    notebook.run("session_begin")
    notebook.stage(
        [
            {"kind": "source", "source": "kafka", "sequence": 1, "position": b"1"},
            {"kind": "result", "source": "q", "sequence": 5},
            {"kind": "config", "config_hash": 7},
        ]
    )
    assert notebook.commit() == (3, "committed")
    committed = raw(catalog, "late")
    staged = catalog.engine.read(SESSION_STEPS.name, where=col("pipeline").eq("late")).num_rows
    with pytest.raises((PySparkException, Py4JJavaError), match="is committed already"):
        notebook.stage([{"kind": "source", "source": "kafka", "sequence": 2, "position": b"2"}])
    assert catalog.engine.read(SESSION_STEPS.name, where=col("pipeline").eq("late")).num_rows == staged
    assert notebook.outcome() == "committed"
    # A task writes to the table itself, and nobody looks. What changes nothing is not late.
    token, version = notebook.token(), catalog.engine.version(SESSION_STEPS.name)
    kafka: dict[str, Any] = {"source": "kafka", "sequence": 1, "position": b"1"}
    for late, outcome in (
        (kafka, "committed"),
        ({"kind": "result", "source": "q", "sequence": 4}, "committed"),
        ({**kafka, "sequence": 2}, "late"),
        ({**kafka, "position": b"2"}, "late"),
        ({**kafka, "source": "files"}, "late"),
        ({"kind": "result", "source": "q", "sequence": 6}, "late"),
        ({"kind": "config", "config_hash": 8}, "late"),
        ({"kind": "clear"}, "late"),
    ):
        _append_steps(catalog, token, late)
        assert notebook.commit() == (0, outcome), late
        assert raw(catalog, "late") == committed
        catalog.engine.restore(SESSION_STEPS.name, version)
    # Another session wrote over some of it: nobody can tell any more, and it is not taken for late.
    store.stage_checkpoint("kafka", 3)
    assert notebook.outcome() == "committed"


def test_plain_mistakes_are_told_as_what_they_are(catalog: ld.Catalog, notebook: Notebook) -> None:
    store = SourceCheckpointStore(catalog, "mistaken")
    store.stage_checkpoint("kafka", 1)
    generation = store.take_generation()
    fresh = Notebook(notebook._spark, "session_statements")
    fresh.set(pipeline="mistaken", owner="notebook")
    kafka: list[dict[str, Any]] = [{"kind": "source", "source": "kafka", "sequence": 2}]
    with pytest.raises((PySparkException, Py4JJavaError), match="set laminar_pipeline and laminar_generation"):
        fresh.stage(kafka)
    assert fresh.outcome() == "unbegun"
    fresh.set(generation=generation)
    assert fresh.outcome() == "unbegun"
    fresh.set(generation=generation + 1)
    fresh.run("session_begin")
    fresh.stage(kafka)
    assert fresh.commit() == (0, "ahead")
    fresh.set(generation=generation, pipeline="mistakes")
    fresh.run("session_begin")
    fresh.stage(kafka)
    assert fresh.commit() == (0, "missing")
    fresh.set(pipeline="mistaken")
    fresh.run("session_begin")
    fresh.stage(kafka)
    catalog.engine.delete(SOURCE_CHECKPOINTS.name, col("pipeline").eq("mistaken") & col("kind").eq("head"))
    assert fresh.commit() == (0, "damaged")


def test_a_statement_says_in_the_log_whose_it_is_as_a_session_does(catalog: ld.Catalog, notebook: Notebook) -> None:
    store = SourceCheckpointStore(catalog, "labelled")
    owner = 'note`book; "é"'
    notebook.set(pipeline="labelled", generation=store.take_generation(), owner=owner)
    notebook.run("session_begin")
    token = notebook.token()
    notebook.stage([{"kind": "source", "source": name, "sequence": 1} for name in ("kafka", "files", "kafka")])
    notebook.stage([{"kind": "clear"}, {"kind": "result", "source": "q", "sequence": 1}])
    notebook.run("session_label")
    assert notebook.commit() == (4, "committed")
    notebook.run("session_unlabel")
    with store.session() as same:
        same.clear()
        same.stage("kafka", 2)
        same.stage("files", 2)
    by_python, by_sql = store.history()
    assert (by_sql.session_id, by_sql.owner, by_sql.ordinal) == (token.session_id, owner, 1)
    assert (by_python.session_id, by_python.ordinal) == (same.id, 2)
    for name in ("generation", "sources", "names", "cleared"):
        assert getattr(by_sql, name) == getattr(by_python, name), name
    said, says = (entry.metadata for entry in catalog.engine.history("source_checkpoints", limit=2))
    assert set(said) - set(says) <= {"commit", "fences"}
    assert set(says) <= set(said)
    # So it is found, although no row of it is left.
    repeated = SourceCheckpointStore(catalog, "labelled", generation=token.generation).session(token)
    repeated.clear()
    repeated.stage("kafka", 1)
    repeated.stage("files", 1)
    repeated.write_result_sequence("q", 1)
    assert repeated.commit().replayed
    # One that is kept out leaves nothing that says it was committed.
    notebook.run("session_begin")
    notebook.stage([{"kind": "source", "source": "kafka", "sequence": 9}])
    store.stage_checkpoint("kafka", 3)
    notebook.run("session_label")
    assert notebook.commit() == (0, "lost")
    notebook.run("session_unlabel")
    assert len(store.history()) == 3
    assert notebook.token().session_id not in {record.session_id for record in store.history()}


TASKS = 4
"""Of a Spark job that stages."""


def _by_tasks(spark: "SparkSession") -> "DataFrame":
    """Five steps from each task, for a source named after the task that made them."""
    of_task = sf.concat(sf.lit("task "), sf.spark_partition_id())
    position = sf.col("id").cast("string").cast("binary")
    return spark.range(0, 5 * TASKS, 1, TASKS).select(
        sf.lit("source").alias("kind"),
        of_task.alias("source"),
        sf.col("id").alias("sequence"),
        position.alias("position"),
    )


BY_TASKS = {f"task {task}": at(5 * task + 4, str(5 * task + 4).encode()) for task in range(TASKS)}
"""What these come to."""


def test_tasks_of_a_spark_job_stage_rows_and_one_merge_commits_them(
    spark: "SparkSession", catalog: ld.Catalog, notebook: Notebook
) -> None:
    store = SourceCheckpointStore(catalog, "by tasks")
    notebook.set(pipeline="by tasks", generation=store.take_generation(), owner="job")
    notebook.run("session_begin")
    token = notebook.token()
    staged = _by_tasks(spark).select(
        sf.lit(token.pipeline).alias("pipeline"),
        sf.lit(token.session_id).alias("session_id"),
        sf.lit(token.generation).cast("bigint").alias("generation"),
        "*",
        sf.lit(None).cast("decimal(20,0)").alias("config_hash"),
        sf.current_timestamp().alias("staged_at"),
        sf.lit("job").alias("staged_by"),
    )
    for _ in range(2):  # as a stage that is repeated does
        staged.write.format("delta").mode("append").saveAsTable("session_statements.session_steps")
    there = spark.read.table("session_statements.session_steps").where(sf.col("session_id") == token.session_id)
    files = [row[0] for row in there.select("_metadata.file_path").collect()]
    assert (len(files), len(set(files))) == (2 * 5 * TASKS, 2 * TASKS), "each task wrote its own"
    assert store.read_all_checkpoints() == {}
    before = commits(catalog)
    assert notebook.commit() == (TASKS + 1, "committed")
    assert commits(catalog) == before + 1
    assert store.read_all_checkpoints() == BY_TASKS


def test_a_session_takes_steps_as_a_spark_dataframe(spark: "SparkSession", catalog: ld.Catalog) -> None:
    store = SourceCheckpointStore(catalog, "by frames")
    token = store.session().token
    assert store.stage_steps(token, _by_tasks(spark)) == 5 * TASKS
    assert store.read_all_checkpoints() == {}
    before = commits(catalog)
    with SourceCheckpointStore(catalog, "by frames", generation=token.generation).session(token) as session:
        assert session.take_steps() == 5 * TASKS
    assert store.read_all_checkpoints() == BY_TASKS
    with store.session() as session:
        session.clear()
        assert session.stage_table(_by_tasks(spark).where("source <> 'task 0'")) == 5 * (TASKS - 1)
    assert store.read_all_checkpoints() == {name: found for name, found in BY_TASKS.items() if name != "task 0"}
    assert commits(catalog) == before + 2
    with pytest.raises(InvalidInputError, match="no column 'offset'"):
        store.stage_steps(token, _by_tasks(spark).withColumnRenamed("sequence", "offset"))


@pytest.mark.soak
def test_of_statements_that_race_exactly_one_commits(
    spark: "SparkSession", catalog: ld.Catalog, notebook: Notebook
) -> None:
    """No lock and no transaction identifier: only the head row keeps them apart."""
    store = SourceCheckpointStore(catalog, "raced")
    rivals = [notebook, *(Notebook(spark, "session_statements") for _ in range(2))]
    for rival in rivals:
        rival.set(pipeline="raced", generation=store.take_generation(), owner="notebook")
    for turn in range(1, 5):
        for number, rival in enumerate(rivals):
            rival.run("session_begin")
            # Sources of their own, so that only the head row is the same.
            rival.stage([{"kind": "source", "source": f"rival {number}", "sequence": turn}])
        before = store.read_all_checkpoints()
        with ThreadPoolExecutor(len(rivals)) as pool:
            told = list(pool.map(_commit_or_conflict, rivals))
        assert sum(told) == 1
        assert store.read_all_checkpoints() == {**before, f"rival {told.index(True)}": at(turn)}
        assert raw(catalog, "raced")["head", ""]["ordinal"] == turn


@pytest.mark.soak
def test_a_statement_beside_a_takeover_comes_before_it_or_not_at_all(catalog: ld.Catalog, notebook: Notebook) -> None:
    for turn in range(1, 5):
        zombie, successor = (SourceCheckpointStore(catalog, "taken") for _ in range(2))
        notebook.set(pipeline="taken", generation=zombie.take_generation(), owner="zombie")
        notebook.run("session_begin")
        notebook.stage([{"kind": "source", "source": "kafka", "sequence": turn}])
        before = successor.read_all_checkpoints()
        with ThreadPoolExecutor(2) as pool:
            told = pool.submit(_commit_or_conflict, notebook)
            taking = pool.submit(successor.take_generation)
            taking.result()
            found = successor.read_all_checkpoints()
        assert found == successor.read_all_checkpoints() == ({"kafka": at(turn)} if told.result() else before)


def _commit_or_conflict(notebook: Notebook) -> bool:
    """Whether the statement committed; a statement that another one disturbed says so."""
    try:
        (counts,) = notebook.run("session_commit")
    except PySparkException as error:
        if "CONCURRENT" not in str(error):
            raise
        return False
    return bool(counts["num_affected_rows"])


def test_rows_that_are_no_steps_are_refused_by_the_statement(notebook: Notebook) -> None:
    notebook.set(pipeline="refused", generation=1, owner="notebook")
    notebook.run("session_begin")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kind": "source", "source": "kafka", "sequence": 1, "position": b"x" * 65_537}, "more than 65536 bytes"),
        ({"kind": "source", "source": "kafka", "sequence": -1}, "a step is"),
        ({"kind": "source", "source": "", "sequence": 1}, "a step is"),
        ({"kind": "result", "source": "q"}, "a step is"),
        ({"kind": "config"}, "a step is"),
        ({"kind": "head"}, "a step is"),
    ]
    for step, told in wrong:
        with pytest.raises(PySparkException, match=told):
            notebook.stage([step])


def test_values_that_a_step_does_not_have_are_refused_and_not_made_to_fit(
    catalog: ld.Catalog, notebook: Notebook
) -> None:
    notebook.set(pipeline="made to fit", generation=1, owner="notebook")
    notebook.run("session_begin")
    for sequence in ("1.5", "CAST(1 AS DOUBLE)", "'1'"):
        with pytest.raises(PySparkException, match="the sequence of a step is no whole number"):
            notebook.stage_row(source="'kafka'", sequence=sequence)
    for config_hash in ("1.5", "CAST(9007199254740993 AS DOUBLE)", "'1'"):
        with pytest.raises(PySparkException, match="the config_hash of a step is no whole number"):
            notebook.stage_row(kind="'config'", config_hash=config_hash)
    with pytest.raises(PySparkException, match="the position of a step is no bytes"):
        notebook.stage_row(source="'kafka'", sequence="1", position="'text'")
    for sequence in ("1Y", "2", "3L", "CAST(4 AS DECIMAL(19, 0))"):
        notebook.stage_row(source="'kafka'", sequence=sequence, position="X'00FF'")
    notebook.stage_row(kind="'config'", config_hash="18446744073709551615")
    where = col("pipeline").eq("made to fit")
    told = [row["sequence"] for row in catalog.engine.read(SESSION_STEPS.name, where=where).to_pylist()]
    assert sorted(told, key=str) == [1, 2, 3, 4, None]


NO_STEPS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "source", "source": "kafka", "sequence": -1}, "a step is"),
    ({"kind": "source", "source": "kafka", "sequence": 2, "position": b"x" * 65_537}, "more than 65536 bytes"),
    ({"kind": "source", "source": "kafka"}, "a step is"),
    ({"kind": "source", "sequence": 2}, "a step is"),
    ({"source": "", "sequence": 2}, "a step is"),
    ({"kind": "result", "source": "q", "sequence": -1}, "a step is"),
    ({"kind": "config", "config_hash": 2**64}, "a step is"),
    ({"kind": "head", "source": "", "sequence": 2}, "a step is"),
]
"""Rows that a task can append to `session_steps` by itself, and that say nothing a session can commit."""


def _append_steps(catalog: ld.Catalog, token: SessionToken, *steps: dict[str, Any]) -> None:
    """What a task does that writes to the table itself: nobody looks at its rows."""
    common = {"pipeline": token.pipeline, "session_id": token.session_id, "generation": token.generation}
    rows = pa.Table.from_pylist([{**step, **common} for step in steps], schema=SESSION_STEPS.schema)
    catalog.engine.append(SESSION_STEPS.name, rows)


def test_rows_that_tasks_append_themselves_are_looked_at_by_the_commit(catalog: ld.Catalog, notebook: Notebook) -> None:
    store = SourceCheckpointStore(catalog, "by themselves")
    store.stage_checkpoint("kafka", 1, b"good")
    notebook.set(pipeline="by themselves", generation=store.take_generation(), owner="notebook")
    before = raw(catalog, "by themselves")
    for step, told in NO_STEPS:
        notebook.run("session_begin")
        token = notebook.token()
        # Also beside others that would come before it.
        _append_steps(catalog, token, step, {"source": "kafka", "sequence": 9, "position": b"z"})
        # Raised in a task of the merge's source, Spark passes it on as it comes.
        with pytest.raises((PySparkException, Py4JJavaError), match=told):
            notebook.run("session_commit")
        with pytest.raises(InvalidInputError):
            SourceCheckpointStore(catalog, "by themselves", generation=token.generation).session(token).take_steps()
        assert raw(catalog, "by themselves") == before
    # A kind may be left out: then it is a source's step.
    notebook.run("session_begin")
    _append_steps(catalog, notebook.token(), {"source": "kafka", "sequence": 2, "position": b"by task"})
    notebook.run("session_label")
    assert notebook.commit() == (2, "committed")
    notebook.run("session_unlabel")
    assert store.read_all_checkpoints() == {"kafka": at(2, b"by task")}
    assert store.history(limit=1)[0].names == ("kafka",)


def test_only_shipped_statements_are_known() -> None:
    with pytest.raises(NotFoundError, match="session_undo") as refused:
        session_sql("session_undo")
    assert "session_commit" in str(refused.value.expected)
