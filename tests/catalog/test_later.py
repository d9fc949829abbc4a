"""Tables that came after the format: catalogs without them work as they did, also in the past, and get them when needed."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.later import ABSENT, ensure, present
from laminar_delta.catalog.tables import ENGINE_PROPERTY, LATER, QUERY_PROGRESS, TABLES
from laminar_delta.catalog.views import VIEWS, views_without
from tests.support.catalogs import ENGINES_SPARK_IN_SOAK, ready_made
from tests.support.golden_catalog import CATALOG, DATA

OVER_IT = [name for name in VIEWS if name.startswith("progress_")]


@pytest.fixture(params=ENGINES_SPARK_IN_SOAK)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ld.Catalog]:
    return ready_made(request.param, tmp_path / "catalog", request)


def test_with_and_without_the_table_the_views_have_the_same_columns(opener: Callable[[], ld.Catalog]) -> None:
    catalog = opener()
    assert present(catalog.engine) == TABLES
    before = {name: catalog.sql(f"SELECT * FROM {name}").schema for name in OVER_IT}
    assert ensure(catalog.engine, QUERY_PROGRESS)
    assert not ensure(opener().engine, QUERY_PROGRESS)
    assert present(catalog.engine) == (*TABLES, *LATER)
    for name in OVER_IT:
        assert catalog.sql(f"SELECT * FROM {name}").schema == before[name]
    assert catalog.engine.properties(QUERY_PROGRESS.name)[ENGINE_PROPERTY] == catalog.engine.name


def test_a_catalog_as_it_was_before_the_table_has_no_rows_of_it(opener: Callable[[], ld.Catalog]) -> None:
    catalog = opener()
    before = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == before:
        pass
    ensure(catalog.engine, QUERY_PROGRESS)
    row = pa.Table.from_pylist([{"attempt_id": "a", "event": "progress"}], schema=QUERY_PROGRESS.schema)
    catalog.engine.append(QUERY_PROGRESS.name, row)
    then = catalog.as_of(timestamp_ms=before)
    assert then.versions is not None
    assert then.versions[QUERY_PROGRESS.name] == ABSENT
    assert then.sql("SELECT * FROM progress_history").num_rows == 0
    assert catalog.as_of(timestamp_ms=before + 10_000_000).sql("SELECT * FROM progress_history").num_rows == 1


def test_every_view_over_a_later_table_has_one_without_rows() -> None:
    without = views_without([spec.name for spec in LATER])
    assert list(without) == list(VIEWS)
    changed = {name for name in VIEWS if without[name] != VIEWS[name]}
    assert changed == {name for name, text in VIEWS.items() if any(f"FROM {spec.name}" in text for spec in LATER)}


@pytest.mark.parametrize("golden", sorted(path for path in DATA.glob("v*")), ids=lambda path: path.name)
def test_a_catalog_of_a_released_format_gets_the_table_when_it_is_needed(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / CATALOG, tmp_path / "catalog")
    catalog = ld.open_catalog(str(tmp_path / "catalog"), create=False)
    catalog.maintain()
    assert present(catalog.engine) == TABLES
    ensure(catalog.engine, QUERY_PROGRESS)
    catalog.maintain()
    assert ld.open_catalog(str(tmp_path / "catalog"), create=False).pipeline("orders").recover(dry_run=True).chosen_id
