"""A store per test, on each engine in turn. Stores opened in one test are several programs on one catalog."""

from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.stores import DeltaCheckpointStore
from tests.stores.support import PIPELINE, Opener, StoreOpener
from tests.support.catalogs import ENGINES_SPARK_IN_SOAK, ready_made


@pytest.fixture(params=ENGINES_SPARK_IN_SOAK)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return ready_made(request.param, tmp_path / "catalog", request)


@pytest.fixture
def catalog(open_again: Opener) -> ld.Catalog:
    return open_again()


@pytest.fixture
def open_store(open_again: Opener) -> StoreOpener:
    def open_one(**options: Any) -> DeltaCheckpointStore:
        return DeltaCheckpointStore(open_again(), PIPELINE, **{"owner": "job", "max_retained": 0, **options})

    return open_one


@pytest.fixture
def store(open_store: StoreOpener) -> DeltaCheckpointStore:
    return open_store()
