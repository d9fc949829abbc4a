"""Tables by name, in a schema of Spark's catalog, as if their files were elsewhere: only Spark is asked about them."""

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from laminar_delta.engine.base import Engine
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.engine.spark.session import OwnSessions
from laminar_delta.testing.conformance.answers import Answers
from laminar_delta.testing.conformance.fences import Fences
from laminar_delta.testing.conformance.races import Races
from laminar_delta.testing.conformance.sizes import Sizes
from laminar_delta.testing.conformance.versions import Versions
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
