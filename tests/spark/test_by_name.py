"""Tables by name, in a schema of Spark's catalog, as if their files were elsewhere: only Spark is asked about them."""

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import laminar_delta as ld
from laminar_delta.engine.base import Engine
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.engine.spark.session import OwnSessions
from laminar_delta.errors import ConflictError, FencedError
from laminar_delta.testing.conformance.answers import Answers
from laminar_delta.testing.conformance.fences import Fences
from laminar_delta.testing.conformance.races import Races
from laminar_delta.testing.conformance.sizes import Sizes
from laminar_delta.testing.conformance.versions import Versions
from tests.sessions.support import at
from tests.support.spark_harness import SparkHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NamedHarness(SparkHarness):
    def __init__(self, spark: "SparkSession") -> None:
        self.schema = f"ckpt_{uuid4().hex}"
        warehouse = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
        super().__init__(warehouse / f"{self.schema}.db", spark)

    def open(self) -> Engine:
        return SparkEngine(self.schema, spark=self._spark)


@pytest.mark.spark
@pytest.mark.soak  # the suite itself runs in CI by path; this is the same again by name
class TestByName(Fences, Answers, Races, Versions, Sizes):
    """The parts of the suite in which finding one's own commit matters, or what only Spark can tell."""

    rounds = 2

    @pytest.fixture
    def harness(self, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> NamedHarness:
        monkeypatch.setattr(OwnSessions, "on_this_machine", False)
        return NamedHarness(spark)


@pytest.mark.spark
@pytest.mark.soak
def test_sessions_by_name(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock, and no fence that could be asked for: the head row keeps sessions apart, and tells a lost answer's commit."""
    monkeypatch.setattr(OwnSessions, "on_this_machine", False)
    schema = f"sessions_{uuid4().hex}"
    spark.sql(f"CREATE SCHEMA {schema}").collect()
    catalog = ld.open_catalog(schema, engine="spark", spark=spark)
    store = ld.SourceCheckpointStore(catalog, "orders")
    rival = ld.SourceCheckpointStore(catalog, "orders", generation=store.take_generation())
    first, second = store.session(), rival.session()
    first.stage("kafka", 1, b"1")
    second.stage("files", 1)
    first.commit()
    with pytest.raises(ConflictError, match="came first"):
        second.commit()
    second.retry()
    assert store.read_all_checkpoints() == {"kafka": at(1, b"1"), "files": at(1)}
    token = store.session().token
    store.stage_steps(token, [{"source": "kafka", "sequence": 2}])
    for is_again in (False, True):
        task = ld.SourceCheckpointStore(catalog, "orders", generation=token.generation).session(token)
        task.take_steps()
        assert task.commit().replayed == is_again
    zombie = store.session()
    zombie.stage("kafka", 9)
    successor = ld.SourceCheckpointStore(catalog, "orders")
    assert successor.remove_steps() == 1
    with pytest.raises(FencedError):
        zombie.commit()
    assert successor.read_all_checkpoints() == {"kafka": at(2), "files": at(1)}
    assert [record.ordinal for record in successor.history()] == [3, 2, 1]
