"""The crash matrix: SIGKILL before and after every storage step, and death inside delta-rs, of everything that writes."""

from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

import laminar_delta as ld
from laminar_delta.catalog.tables import TABLES
from laminar_delta.testing.crashes import Point, die
from laminar_delta.testing.invariants import holdings
from laminar_delta.testing.scenarios import SCENARIOS
from laminar_delta.testing.steps import JVM_STEPS, all_steps, engine_steps
from laminar_delta.testing.syscalls import SystemCall, possible
from tests.support.matrix import Matrix, quick_place

pytestmark = pytest.mark.processes

INSIDE = ["creating", "taking_over", "saving", "clearing_orphans", "committing_sessions", "keeping_up"]
"""One scenario of each kind of commit; the others are left to `make soak`."""


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    with quick_place() as place:
        yield Matrix(place, "embedded", lambda catalog: ld.open_catalog(str(catalog), engine="embedded"))


def test_every_storage_step_is_taken_by_a_scenario(matrix: Matrix) -> None:
    """A step that the engine contract, or what lies below it, gains is found by code: it needs a scenario that takes it."""
    taken = {point.step for scenario in SCENARIOS for point in matrix.recorded(scenario).points}
    assert taken == all_steps() - JVM_STEPS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_killed_around_any_step_leaves_the_old_or_the_new(scenario: str, matrix: Matrix) -> None:
    points = matrix.recorded(scenario).around()
    assert matrix.kill(scenario, points) == len(points)


@pytest.mark.skipif(not possible(), reason="the numbers of this system's calls are not known")
@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=[] if name in INSIDE else pytest.mark.soak) for name in SCENARIOS]
)
def test_a_process_that_dies_inside_a_step_leaves_the_old_or_the_new(scenario: str, matrix: Matrix) -> None:
    """Data written and no log entry, a log entry written and not linked, linked and not tidied up."""
    assert matrix.kill(scenario, matrix.recorded(scenario).inside()) > 0


def test_a_process_killed_below_the_engine_leaves_the_old_or_the_new(matrix: Matrix) -> None:
    """Each function that flushes, removes or locks, before and after it, in some scenario that comes by there."""
    # In a save where it comes by there: that is what happens all day, and it is short.
    names = [*SCENARIOS, "saving"]
    sides = {side: (name, point) for name in names for side, point in matrix.recorded(name).sides().items()}
    for scenario, point in sides.values():
        if point.step not in engine_steps():
            assert matrix.kill(scenario, [point]) == 1


@pytest.mark.skipif(not possible(), reason="the numbers of this system's calls are not known")
@pytest.mark.parametrize("call", [SystemCall.RENAME, SystemCall.LINK, SystemCall.UNLINK])
def test_files_that_a_dead_process_was_writing_are_deleted(call: SystemCall, matrix: Matrix) -> None:
    """delta-rs itself never sees them again: half a state could lie there for good."""
    home = matrix.home("saving", f"unfinished-{call.value}")
    for count in (1, 2, 3):
        die("embedded", home, "saving", Point("_append", call.value, count))
    catalog = matrix.open(home / "catalog")
    before = holdings(catalog)
    assert list(home.rglob("*#*"))
    for spec in TABLES:
        named = catalog.engine.vacuum(spec.name, older_than_hours=0)
        assert all((home / "catalog" / spec.name / name).exists() for name in named)
        assert catalog.engine.vacuum(spec.name, older_than_hours=0, dry_run=False) == named
        catalog.engine.clean_log(spec.name)
        handle = DeltaTable(str(home / "catalog" / spec.name))
        live = {unquote(uri.removeprefix("file://")) for uri in handle.file_uris()}
        assert {
            str(path) for path in (home / "catalog" / spec.name).rglob("*.parquet*") if path.parent.name != "_delta_log"
        } == live
    assert not list(home.rglob("*#*"))
    assert holdings(catalog) == before


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_killed_at_every_point_leaves_the_old_or_the_new(scenario: str, matrix: Matrix) -> None:
    """Also where nothing changed on the disk since the point before."""
    points = matrix.recorded(scenario).points
    assert matrix.kill(scenario, points) == len(points)
