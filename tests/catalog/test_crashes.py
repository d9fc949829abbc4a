"""The crash matrix: SIGKILL before and after every storage step, and death inside delta-rs, of everything that writes."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import laminar_delta as ld
from laminar_delta.testing.crashes import Point, Record, assert_survived, die, record
from laminar_delta.testing.scenarios import FROM_NOTHING, SCENARIOS, prepare
from laminar_delta.testing.steps import JVM_STEPS, all_steps

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """In memory where there is room: what a killed process leaves does not depend on the disk, only the time that fsync takes."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as found:
        yield Path(found)


@pytest.fixture(scope="module")
def prepared(place: Path) -> Path:
    """What scenarios begin with, to be copied."""
    prepare(_open(place / "prepared"))
    return place / "prepared"


@pytest.fixture(scope="module")
def recorded(prepared: Path, place: Path) -> Callable[[str], Record]:
    """Each scenario run to its end once."""

    @cache
    def run(scenario: str) -> Record:
        return record("embedded", _copy(prepared, scenario, place / f"recorded-{scenario}"), scenario)

    return run


def test_every_storage_step_is_taken_by_a_scenario(recorded: Callable[[str], Record]) -> None:
    """A step that the engine contract, or what lies below it, gains is found by code: it needs a scenario that takes it."""
    taken = {point.step for scenario in SCENARIOS for point in recorded(scenario).points}
    assert taken == all_steps() - JVM_STEPS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_killed_around_any_step_leaves_the_old_or_the_new(
    scenario: str, prepared: Path, recorded: Callable[[str], Record], place: Path
) -> None:
    found = recorded(scenario)
    assert _kill_at(found.around(), scenario, prepared, found, place) == len(found.around())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_that_dies_inside_a_step_leaves_the_old_or_the_new(
    scenario: str, prepared: Path, recorded: Callable[[str], Record], place: Path
) -> None:
    """Data written and no log entry, a log entry written and not linked, linked and not tidied up."""
    found = recorded(scenario)
    assert _kill_at(found.inside(), scenario, prepared, found, place) > 0


def test_a_process_killed_below_the_engine_leaves_the_old_or_the_new(
    prepared: Path, recorded: Callable[[str], Record], place: Path
) -> None:
    """Each function that flushes, removes or locks, before and after it, in some scenario that comes by there."""
    somewhere = {
        side: (point, scenario) for scenario in SCENARIOS for side, point in recorded(scenario).below().items()
    }
    for point, scenario in somewhere.values():
        assert _kill_at([point], scenario, prepared, recorded(scenario), place) == 1


def _kill_at(points: Iterable[Point], scenario: str, prepared: Path, found: Record, place: Path) -> int:
    died = 0
    for number, point in enumerate(points):
        home = _copy(prepared, scenario, place / str(number))
        if die("embedded", home, scenario, point):
            died += 1
            try:
                assert_survived(_open(home), home, found.states)
            except Exception as error:
                raise AssertionError(f"killed {point}: {error} (left in {home})") from error
        shutil.rmtree(home)
    return died


def _copy(prepared: Path, scenario: str, home: Path) -> Path:
    home.mkdir(exist_ok=True)
    if scenario not in FROM_NOTHING:
        shutil.copytree(prepared, home, dirs_exist_ok=True)
    return home


def _open(home: Path) -> ld.Catalog:
    return ld.open_catalog(str(home / "catalog"), engine="embedded")
