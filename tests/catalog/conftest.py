"""A catalog per test, on each engine in turn."""

from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from tests.support.catalogs import ENGINES, ready_made

SPARK_IN_SOAK = ("test_derive", "test_group", "test_maintenance", "test_state_deltas")
"""Modules about what is decided above the engines: on Spark, ten seconds a test, CI runs what is marked `also_on_spark`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if item.path.stem in SPARK_IN_SOAK and "spark" in marks and "also_on_spark" not in marks:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(params=ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ld.Catalog]:
    return ready_made(request.param, tmp_path / "catalog", request)


@pytest.fixture
def catalog(open_again: Callable[[], ld.Catalog]) -> ld.Catalog:
    return open_again()
