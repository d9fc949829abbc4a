"""The harness of the Spark engine: one session for the whole run, hurt from below through PySpark's own calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from laminar_delta.engine.base import Engine
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.errors import StorageError
from tests.support.harnesses import DeltaFiles, after_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkHarness(DeltaFiles):
    def __init__(self, root: Path, spark: SparkSession) -> None:
        super().__init__(root)
        self._spark = spark

    def open(self) -> Engine:
        return SparkEngine(str(self.root), spark=self._spark)

    def open_impatient(self) -> Engine:
        return SparkEngine(str(self.root), spark=self._spark, lock_timeout_s=0.2)

    def opening(self) -> Mapping[str, Any]:
        return self.opening_at(self.root)

    @staticmethod
    def opening_at(root: Path) -> Mapping[str, Any]:
        return {"name": "spark", "location": str(root)}

    @contextmanager
    def lose_next_answer(self, engine: Engine) -> Iterator[None]:
        from py4j.protocol import Py4JNetworkError
        from pyspark.sql.classic.dataframe import DataFrame
        from pyspark.sql.readwriter import DataFrameWriterV2

        def error() -> Exception:
            lost: Exception = Py4JNetworkError("Answer from Java side is empty")
            return lost

        with after_once(DataFrameWriterV2, "append", error), after_once(DataFrame, "collect", error, when=_is_merge):
            yield

    @contextmanager
    def break_reading(self, engine: Engine) -> Iterator[None]:
        with patch.object(engine, "history", side_effect=StorageError("the log cannot be read")):
            yield


def _is_merge(frame: Any) -> bool:
    return "num_affected_rows" in frame.columns
