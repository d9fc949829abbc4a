"""Opening: made once by whoever comes first, refused when this code must not touch it."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import laminar_delta as ld
from laminar_delta.catalog.opening import upgrade_catalog
from laminar_delta.catalog.tables import TABLES
from laminar_delta.engine.embedded.engine import EmbeddedEngine
from laminar_delta.errors import ConflictError, FormatError, InvalidInputError, NotFoundError
from tests.support.catalogs import ENGINES, ON_DISK, catalog_opener, ready_made
from tests.support.stepping import stopped


@pytest.mark.also_on_spark
@pytest.mark.parametrize("engine", ENGINES)
def test_many_opening_at_once_make_one_catalog(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    open_again = catalog_opener(engine, tmp_path / "catalog", request)
    with ThreadPoolExecutor(6) as pool:
        catalogs = list(pool.map(lambda _: open_again(), range(6)))
    for spec in TABLES:
        assert catalogs[0].engine.version(spec.name) == 0
    with catalogs[0].writer("orders").checkpoint():
        pass
    assert catalogs[5].pipelines() == ["orders"]


def test_a_catalog_made_and_written_to_while_another_opens_it_is_nothing_lost(tmp_path: Path) -> None:
    opening = partial(ld.open_catalog, str(tmp_path))
    with stopped(opening, EmbeddedEngine, "exists", after=True) as late:
        ld.open_catalog(str(tmp_path)).writer("orders").save(ld.CheckpointManifest.new(1, 1))
    assert late.result().pipelines() == ["orders"]


def test_processes_that_open_at_once_all_get_a_writer(tmp_path: Path) -> None:
    names = [f"orders {number}" for number in range(10)]
    with ProcessPoolExecutor(len(names), mp_context=get_context("spawn")) as pool:
        list(pool.map(partial(_open_and_save, str(tmp_path)), names))
    assert ld.open_catalog(str(tmp_path)).pipelines() == names


def _open_and_save(place: str, pipeline: str) -> None:
    with ld.open_catalog(place).writer(pipeline).checkpoint():
        pass


def test_a_catalog_that_is_not_there_is_not_made_unless_wanted(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        ld.open_catalog(str(tmp_path / "nothing"), create=False)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("engine", ON_DISK)
def test_another_engines_catalog_is_refused_with_the_reason(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    open_again = ready_made(engine, tmp_path / "catalog", request)
    open_again()
    other = "embedded" if engine == "spark" else "spark"
    _set_property(tmp_path / "catalog", "laminar.engine", other)
    with pytest.raises(ConflictError, match=other) as caught:
        open_again()
    assert (caught.value.expected, caught.value.found) == (engine, other)


@pytest.mark.also_on_spark
@pytest.mark.parametrize("engine", ON_DISK)
def test_a_newer_format_is_refused(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    open_again = ready_made(engine, tmp_path / "catalog", request)
    open_again()
    _set_property(tmp_path / "catalog", "laminar.format", "2")
    with pytest.raises(FormatError) as caught:
        open_again()
    assert (caught.value.expected, caught.value.found) == (1, 2)


@pytest.mark.parametrize("table", ["manifests", "retention", "source_checkpoints", "state_batches"])
def test_fences_that_could_expire_are_refused(tmp_path: Path, table: str) -> None:
    ld.open_catalog(str(tmp_path))
    _set_property(tmp_path, "delta.setTransactionRetentionDuration", "interval 1 days", table=table)
    with pytest.raises(FormatError, match="expire") as caught:
        ld.open_catalog(str(tmp_path))
    assert table in str(caught.value)


def test_a_damaged_table_that_may_never_be_needed_does_not_close_the_catalog(tmp_path: Path) -> None:
    ld.open_catalog(str(tmp_path)).writer("orders").save(ld.CheckpointManifest.new(1, 1))
    (tmp_path / "state_batches" / "_delta_log" / f"{0:020}.json").write_bytes(b"")
    assert ld.open_catalog(str(tmp_path)).pipelines() == ["orders"]


def test_a_half_made_catalog_is_completed(tmp_path: Path) -> None:
    """As a process killed while creating leaves it: some tables there, `manifests` not."""
    catalog = ld.open_catalog(str(tmp_path))
    import shutil

    for name in ("manifests", "recoveries"):
        shutil.rmtree(tmp_path / name)
    with ld.open_catalog(str(tmp_path)).writer("orders").checkpoint():
        pass
    assert catalog.pipelines() == ["orders"]


def _set_property(place: Path, name: str, value: str, *, table: str = "manifests") -> None:
    DeltaTable(str(place / table)).alter.set_table_properties({name: value}, raise_if_not_exists=False)


def test_a_job_gives_its_session_also_where_no_jvm_commits(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"), spark=object())
    assert catalog.engine.name == "embedded"
    assert catalog.pipelines() == []


@pytest.mark.parametrize("character", ["#", "?", "%20", "%2F", "\\", "[", "]", "^", "|", "\n", "\x7f"])
def test_a_path_that_delta_rs_cannot_write_to_is_refused_before_anything_is_made(
    character: str, tmp_path: Path
) -> None:
    for place in (tmp_path / f"a{character}b", tmp_path / character / "catalog"):
        for location in (str(place), place, place.as_uri()):
            with pytest.raises(InvalidInputError, match="Nothing was made") as refused:
                ld.open_catalog(location)
            assert refused.value.found == character
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["with space é", "日本😀", "100%", "a%b", "{x}", "a:b;c=d&e", "'q' \"r\"", "x*y~z", "a.b"]
)
def test_other_paths_work_and_a_path_may_be_a_path(name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    with ld.open_catalog(place).writer("orders").checkpoint() as cp:
        cp.state("window", b"x" * 100_000)
    for location in (str(place), place.as_uri()):
        catalog = ld.open_catalog(location, create=False)
        assert catalog.pipeline("orders").state(1).read("window") == b"x" * 100_000
        assert len(catalog.audit(pipeline="orders")) >= 3


def test_a_path_is_no_schema_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ld.open_catalog(Path("main.checkpoints")).engine.location == str(tmp_path / "main.checkpoints")


@pytest.mark.parametrize("location", [None, 5, b"/tmp/x", "", "a\0b", "\ud800", Path("a\0b")])
def test_what_is_no_place_is_refused(location: Any) -> None:
    for opened in (ld.open_catalog, upgrade_catalog):
        with pytest.raises(InvalidInputError):
            opened(location)


def test_a_uri_with_more_than_a_path_is_refused(tmp_path: Path) -> None:
    for more in ("#b", "?b=c"):
        with pytest.raises(InvalidInputError, match="no directory has"):
            ld.open_catalog(f"{tmp_path.as_uri()}/a{more}")
    assert list(tmp_path.iterdir()) == []
