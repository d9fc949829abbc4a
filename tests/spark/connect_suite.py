"""The conformance suite through Spark Connect, on tables by name. Run by `test_connect.py` in a process of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from laminar_delta.engine.base import Engine
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.testing.conformance import EngineConformance
from tests.support.connect import session
from tests.support.harnesses import after_once
from tests.support.spark_harness import SparkHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.soak]


class ConnectHarness(SparkHarness):
    def __init__(self, warehouse: Path, spark: "SparkSession") -> None:
        self.schema = f"ckpt_{uuid4().hex}"
        super().__init__(warehouse / f"{self.schema}.db", spark)

    def open(self) -> Engine:
        return SparkEngine(self.schema, spark=self._spark)

    @contextmanager
    def lose_next_answer(self, engine: Engine) -> Iterator[None]:
        from pyspark.errors.exceptions.connect import SparkConnectGrpcException
        from pyspark.sql.connect.dataframe import DataFrame
        from pyspark.sql.connect.readwriter import DataFrameWriterV2

        def error() -> Exception:
            lost: Exception = SparkConnectGrpcException(
                "<_MultiThreadedRendezvous of RPC that terminated with: UNAVAILABLE>"
            )
            return lost

        with after_once(DataFrameWriterV2, "append", error), after_once(DataFrame, "collect", error, when=_is_merge):
            yield


def _is_merge(frame: Any) -> bool:
    return "num_affected_rows" in frame.columns


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def connected(warehouse: Path) -> "Iterator[SparkSession]":
    spark = session(str(warehouse))
    yield spark
    spark.stop()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
class TestOverConnect(EngineConformance):
    rounds = 2

    @pytest.fixture
    def harness(self, warehouse: Path, connected: "SparkSession") -> ConnectHarness:
        return ConnectHarness(warehouse, connected)
