"""What all tests share: how hypothesis searches, and one Spark for the whole run."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.configurations import LOCAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No deadline: time is measured in benchmarks, never in tests. In CI the same examples every time, and no database of failures.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")


ON_ALL_ENGINES = [Path(__file__).parent / name for name in ("catalog", "sessions")]
"""Where tests are of what is decided above the engines, and run on each of them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is decided above the engines runs on all of them. On Spark, ten seconds a test, all of it runs in soak, and in CI
    what is marked `also_on_spark`: where what Spark does by itself could make it come out otherwise.
    """
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if item.path.parent in ON_ALL_ENGINES and "spark" in marks and "also_on_spark" not in marks:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session at Spark's defaults apart from what keeps it small: the engine must do well beside any session."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # What people are given to start with is what the tests run on: `conf/local`.
    before = os.environ.get("SPARK_CONF_DIR")
    os.environ["SPARK_CONF_DIR"] = str(LOCAL)
    builder = (
        SparkSession.builder.appName("laminar-delta-tests")
        .config("spark.log.level", "OFF")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        # Two cores: a collector with threads of its own takes theirs from the tests.
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
    )
    try:
        session = builder.getOrCreate()
    finally:
        # Processes that tests start have a Spark of their own.
        if before is None:
            del os.environ["SPARK_CONF_DIR"]
        else:
            os.environ["SPARK_CONF_DIR"] = before
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _forgotten_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delta keeps the last state of each table it met for an hour, and Spark holds every query against all of them.

    A job has the tables of a catalog; a run of tests has those of hundreds, which slow it down and end its heap.
    """
    yield
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
