"""A catalog per test, on each engine in turn."""

from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from tests.support.catalogs import ENGINES, ready_made


@pytest.fixture(params=ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ld.Catalog]:
    return ready_made(request.param, tmp_path / "catalog", request)


@pytest.fixture
def catalog(open_again: Callable[[], ld.Catalog]) -> ld.Catalog:
    return open_again()
