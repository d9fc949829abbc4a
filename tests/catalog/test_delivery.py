"""A pipeline that dies at every single step: whoever comes next delivers the rest, and every record is there once."""

import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.sinks import Step, When
from laminar_delta.testing.forks import run_forked
from tests.support import statuses
from tests.support.delivery import PIPELINE, RECORDS, AnySink, counting, deliver_all, main, make_sinks

Opener = Callable[[], ld.Catalog]
Point = tuple[str, str, int]
"""A step, on which side of it, and how often it was passed before by the same process, from 1."""

MIXES = [["file"], ["forgetful"], ["file", "file"], ["file", "forgetful", "file"]]
"""Kinds of sinks under which every crash must come out even: at most one that forgets."""


class Killed(BaseException):
    """The end of a process: nothing catches it."""


def _deliver(
    open_catalog: Opener, place: Path, kinds: Sequence[str], kill: Point | None, workers: int = 1
) -> list[Point]:
    """One life of the pipeline, up to the point of its death if that comes; the points it passed."""
    passed: list[Point] = []

    def react(step: Step, when: When, count: int) -> None:
        passed.append((step.value, when.value, count))
        if passed[-1] == kill:
            raise Killed

    try:
        deliver_all(open_catalog(), make_sinks(place, kinds), observe=counting(react), max_workers=workers)
    except Killed:
        assert kill in passed
    return passed


def _assert_every_record_once(sinks: Sequence[AnySink]) -> None:
    for sink in sinks:
        assert sink.output() == RECORDS


@pytest.mark.parametrize(("kinds", "workers"), [*((kinds, 1) for kinds in MIXES), (MIXES[-1], 3)])
def test_a_crash_at_any_step_of_a_run_or_a_resume_neither_repeats_nor_skips(
    tmp_path: Path, kinds: list[str], workers: int
) -> None:
    """Each round a first process dies at one point, its successor when it first comes to the same step."""
    points = _deliver(_fresh_memory(), tmp_path / "whole", kinds, None, workers)
    for number, point in enumerate(points):
        open_catalog, place = _fresh_memory(), tmp_path / str(number)
        _deliver(open_catalog, place, kinds, point, workers)
        _deliver(open_catalog, place, kinds, (point[0], point[1], 1), workers)
        report = deliver_all(open_catalog(), make_sinks(place, kinds), max_workers=workers)
        assert report.repeated == {}, point
        _assert_every_record_once(make_sinks(place, kinds))


@pytest.mark.parametrize("kinds", MIXES, ids="+".join)
def test_crash_upon_crash_neither_repeats_nor_skips(tmp_path: Path, kinds: list[str]) -> None:
    """Sixty lives, most of them too short to get anywhere."""
    chance = random.Random("+".join(kinds))
    open_catalog = _fresh_memory()
    for _ in range(60):
        point = (chance.choice(list(Step)).value, chance.choice(list(When)).value, chance.randrange(1, 5))
        _deliver(open_catalog, tmp_path, kinds, point)
    deliver_all(open_catalog(), make_sinks(tmp_path, kinds))
    _assert_every_record_once(make_sinks(tmp_path, kinds))


def _fresh_memory() -> Opener:
    store: dict[str, object] = {}
    return lambda: ld.open_catalog("memory", engine="memory", store=store)


@pytest.mark.also_on_spark
def test_a_crash_between_commit_and_record_comes_out_even_on_every_engine(open_again: Opener, tmp_path: Path) -> None:
    for count in (1, 2):
        _deliver(open_again, tmp_path / "sinks", ["file", "forgetful"], ("record", "before", count))
    report = deliver_all(open_again(), make_sinks(tmp_path / "sinks", ["file", "forgetful"]))
    assert report.repeated == {}
    _assert_every_record_once(make_sinks(tmp_path / "sinks", ["file", "forgetful"]))


KINDS = ["file", "file"]
LEFT_BEHIND: Point = ("commit", "before", 4)
"""Where the process before dies: the second epoch is saved, one sink shows it, the other holds it."""


@pytest.mark.processes
def test_a_process_killed_at_any_step_neither_repeats_nor_skips(tmp_path: Path) -> None:
    """SIGKILL in real processes on real files. What a killed process left is where the next one is killed in turn."""
    left = tmp_path / "left"
    assert _live(left, LEFT_BEHIND) == -signal.SIGKILL
    whole = shutil.copytree(left, tmp_path / "whole")
    assert _live(whole, None) == 0
    points = [(step, when, count) for step, when, count in json.loads((whole / "steps.json").read_text())]
    assert {(step, when) for step, when, _ in points} == {(s.value, w.value) for s, w in product(Step, When)}
    for number, point in enumerate(_first_and_last(points)):
        place = shutil.copytree(left, tmp_path / str(number))
        assert _live(place, point) == -signal.SIGKILL, f"{point} was never passed"
        report = deliver_all(_open(place), make_sinks(place, KINDS))
        assert report.repeated == {}, point
        _assert_every_record_once(make_sinks(place, KINDS))
        shutil.rmtree(place)


def _first_and_last(points: list[Point]) -> list[Point]:
    """Of each step the first time it is taken, which is in `resume` where it occurs there, and the last, deep in `run`."""
    last = Counter({(step, when): count for step, when, count in points})
    return [(step, when, count) for (step, when), most in last.items() for count in sorted({1, most})]


def _live(place: Path, kill: Point | None) -> int:
    """One process; how it ended."""
    place.mkdir(exist_ok=True)
    order = json.dumps({"place": str(place), "kinds": KINDS, "kill": kill})
    return run_forked(main, order)


def _open(place: Path) -> ld.Catalog:
    return ld.open_catalog(str(place / "catalog"), engine="embedded")


@pytest.mark.processes
def test_statuses_of_two_processes_lose_nothing(tmp_path: Path) -> None:
    """One pipeline, of which the second process becomes the writer while the first is at it; each has a sink of its own."""
    catalog = _open(tmp_path)
    _save_with_sinks(catalog, PIPELINE, ["first", "second"], checkpoints=12)
    first, second = (statuses.start(tmp_path / "catalog", PIPELINE, [name], 12) for name in ("first", "second"))
    statuses.go(first)
    told = [statuses.hear(first), statuses.hear(first)]
    statuses.go(second)
    told += statuses.hear_out(first) + statuses.hear_out(second)
    acknowledged = {line for line in told if line != "fenced"}
    assert acknowledged >= {f"{number} second" for number in range(1, 13)}
    assert _committed(catalog, PIPELINE) == acknowledged


@pytest.mark.processes
def test_statuses_of_two_processes_with_a_pipeline_each_lose_nothing(tmp_path: Path) -> None:
    catalog = _open(tmp_path)
    names = [f"sink-{number}" for number in range(4)]
    for pipeline in ("orders", "returns"):
        _save_with_sinks(catalog, pipeline, names, checkpoints=3)
    processes = [statuses.start(tmp_path / "catalog", pipeline, names, 3) for pipeline in ("orders", "returns")]
    for process in processes:
        statuses.go(process)
    for process in processes:
        assert len(statuses.hear_out(process)) == 12
    for pipeline in ("orders", "returns"):
        assert len(_committed(catalog, pipeline)) == 12


def _save_with_sinks(catalog: ld.Catalog, pipeline: str, names: Sequence[str], checkpoints: int) -> None:
    with catalog.writer(pipeline) as writer:
        for _ in range(checkpoints):
            with writer.checkpoint() as cp:
                for name in names:
                    cp.sink(name)


def _committed(catalog: ld.Catalog, pipeline: str) -> set[str]:
    """Which sinks have which checkpoints, as the workers say it."""
    found = catalog.pipeline(pipeline)
    return {
        f"{head.checkpoint_id} {name}"
        for head in found.list()
        for name, status in found.get(head.checkpoint_id).sink_commit_statuses.items()
        if status.is_committed
    }
