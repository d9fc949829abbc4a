"""The statements for notebooks, run as they are shipped: the same rows as the Python API, and no row for a fenced writer."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import laminar_delta as ld
from laminar_delta.catalog.session_sql import session_sql
from laminar_delta.engine.spark.settings import SPEED
from laminar_delta.errors import FencedError, NotFoundError
from laminar_delta.stores import SourceCheckpointStore
from tests.sessions.support import at, raw
from tests.support.catalogs import ready_made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    [{"kind": "clear"}, {"kind": "config", "config_hash": 0}, {"kind": "config", "config_hash": 5}],
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

    def commit(self) -> tuple[int, str]:
        """How many rows the commit touched, and what became of it."""
        (counts,) = self.run("session_commit")
        (outcome,) = self.run("session_outcome")
        return counts["num_affected_rows"], outcome["outcome"]


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
    assert notebook.commit() == (0, "lost")
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


def test_only_shipped_statements_are_known() -> None:
    with pytest.raises(NotFoundError, match="session_undo") as refused:
        session_sql("session_undo")
    assert "session_commit" in str(refused.value.expected)
