"""One catalog per module and engine; every test has a pipeline of its own in it."""

import itertools
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from tests.sessions.support import Opener, StoreOpener
from tests.support.catalogs import ENGINES, ready_made

_numbers = itertools.count()


@pytest.fixture(scope="module", params=ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opener:
    place: Path = tmp_path_factory.mktemp("sessions") / "catalog"
    return ready_made(request.param, place, request)


@pytest.fixture(scope="module")
def catalog(open_again: Opener) -> ld.Catalog:
    return open_again()


@pytest.fixture
def pipeline() -> str:
    return f"query {next(_numbers)}"


@pytest.fixture
def open_store(open_again: Opener, pipeline: str) -> StoreOpener:
    """Opens the store as another program would."""

    def open_one(**options: Any) -> ld.SourceCheckpointStore:
        return ld.SourceCheckpointStore(open_again(), pipeline, **{"owner": "job", **options})

    return open_one


@pytest.fixture
def store(open_store: StoreOpener) -> ld.SourceCheckpointStore:
    return open_store()


@pytest.fixture
def persistent_store(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> ld.SourceCheckpointStore:
    """A store that says it is persistent, so that the rules for such stores are held against every engine."""
    monkeypatch.setattr(type(catalog.engine), "persistent", True)
    return store
