from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.report import write_report
from tests.support.histories import add_delta, fill
from tests.support.reported import fill_hostile


@pytest.fixture(scope="package")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> ld.Catalog:
    """One for all tests of the report; none of them changes it."""
    made = ld.open_catalog(str(tmp_path_factory.mktemp("report") / "catalog"))
    fill(made)
    add_delta(made)
    fill_hostile(made)
    return made


@pytest.fixture(scope="package")
def report(catalog: ld.Catalog) -> Path:
    file = Path(catalog.engine.location).parent / "report.html"
    write_report(catalog, file)
    return file
