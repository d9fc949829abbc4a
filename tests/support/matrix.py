"""The crash matrix as tests use it: homes to die in, and a round of kills."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import laminar_delta as ld
from laminar_delta.catalog.catalog import Catalog
from laminar_delta.catalog.tables import ENGINE_PROPERTY, TABLES
from laminar_delta.engine import open_engine
from laminar_delta.testing.crashes import Live, Point, Record, assert_survived, die, live_alone, record
from laminar_delta.testing.scenarios import FROM_NOTHING, prepare


@dataclass(slots=True)
class Matrix:
    """One engine's matrix in one place. Catalogs are prepared without Spark, which would take a minute: they are the same."""

    place: Path
    engine: str
    open: Callable[[Path], ld.Catalog]
    """How what was left is opened."""
    live: Live = live_alone
    """How a process is run."""
    settle: Callable[[], None] = lambda: None
    """Returns when nothing goes on any more of what a killed process began."""
    _records: dict[str, Record] = field(default_factory=dict)

    def recorded(self, scenario: str) -> Record:
        """A scenario run to its end, once."""
        if scenario not in self._records:
            self._records[scenario] = record(
                self.engine, self.home(scenario, f"recorded-{scenario}"), scenario, self.live
            )
        return self._records[scenario]

    def kill(self, scenario: str, points: Sequence[Point], states: Record | None = None) -> int:
        """Kills the scenario at each point and looks at what is left, while the next one dies; at how many it died."""
        died = 0
        expected = self.recorded(scenario) if states is None else states
        with ThreadPoolExecutor(1) as dying:
            deaths = [dying.submit(self._die, scenario, point, number) for number, point in enumerate(points)]
            try:
                for point, death in zip(points, deaths, strict=True):
                    home = death.result()
                    if home is not None:
                        died += 1
                        self._look_after(home, expected, f"{scenario} killed {point}")
            finally:
                dying.shutdown(cancel_futures=True)
        return died

    def _die(self, scenario: str, point: Point, number: int) -> Path | None:
        """Kills the scenario at a point; where it died, if it did."""
        home = self.home(scenario, f"{scenario}-{number}")
        if die(self.engine, home, scenario, point, self.live):
            self.settle()
            return home
        shutil.rmtree(home)
        return None

    def _look_after(self, home: Path, expected: Record, what: str) -> None:
        try:
            assert_survived(self.open(home / "catalog"), home, expected.states, reader=without_spark(home))
        except Exception as error:
            raise AssertionError(f"{what}: {error}") from error
        shutil.rmtree(home)

    def home(self, scenario: str, name: str) -> Path:
        """A place to die in, with what the scenario begins with."""
        home = self.place / name
        home.mkdir()
        if scenario not in FROM_NOTHING:
            prepared = self.place / "prepared"
            if not prepared.exists():
                _prepare(prepared, self.engine)
            shutil.copytree(prepared, home, dirs_exist_ok=True)
        return home


@contextmanager
def quick_place() -> Iterator[Path]:
    """A directory, in memory where that is possible: what a killed process leaves is the same, and fsync takes no time."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as found:
        yield Path(found)


def _prepare(home: Path, committer: str) -> None:
    engine = open_engine("embedded", str(home / "catalog"))
    for spec in TABLES:
        engine.create(replace(spec, properties={**spec.properties, ENGINE_PROPERTY: committer}))
    prepare(Catalog(engine))


def without_spark(home: Path) -> Catalog:
    """The catalog in a home, to be read in milliseconds whichever engine commits to it."""
    return Catalog(open_engine("embedded", str(home / "catalog")))
