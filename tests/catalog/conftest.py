"""A catalog per test, on each engine in turn."""

from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from tests.support.catalogs import ENGINES, ready_made

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is decided above the engines runs on all of them. On Spark, ten seconds a test, all of it runs in soak, and in CI
    what is marked `also_on_spark`: where what Spark does by itself could make it come out otherwise.
    """
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if item.path.parent == HERE and "spark" in marks and "also_on_spark" not in marks:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(params=ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ld.Catalog]:
    return ready_made(request.param, tmp_path / "catalog", request)


@pytest.fixture
def catalog(open_again: Callable[[], ld.Catalog]) -> ld.Catalog:
    return open_again()
