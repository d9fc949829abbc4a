from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laminar_delta.testing.conformance import LocalConformance
from tests.support.spark_harness import SparkHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
class TestSpark(LocalConformance):
    rounds = 4
    process_rounds = 6
    process_count = 2

    @pytest.fixture
    def harness(self, tmp_path: Path, spark: "SparkSession") -> SparkHarness:
        return SparkHarness(tmp_path / "catalog", spark)
