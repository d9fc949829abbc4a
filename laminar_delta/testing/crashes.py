"""Killing a process before, after and inside every storage step of a scenario, and looking at what it left.

A first run of the scenario, in a process of its own, records its steps and what readers see after each thing it was told
(`record`). Then, each time in a fresh process on a fresh copy, the same program is killed at one point (`die`), and what it
left is held against the record (`assert_survived`): as it was before the step or after it, never between.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from laminar_delta.catalog.catalog import Catalog
from laminar_delta.catalog.opening import open_catalog
from laminar_delta.catalog.tables import MANIFESTS, WRITERS
from laminar_delta.engine import open_engine
from laminar_delta.testing.forks import run_forked
from laminar_delta.testing.invariants import Holdings, assert_goes_on, assert_sound, holdings
from laminar_delta.testing.scenarios import PIPELINE, SCENARIOS
from laminar_delta.testing.steps import Moment, engine_steps, watched
from laminar_delta.testing.syscalls import SystemCall, die_at

SURVIVED = 3
"""How a child ends that should have died inside a step, but came out of it: the step does not do what it was to die of."""


SHORT_LIVED_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""For JVMs that are dead before compiling anything well, or checking what they load, would have paid: a third less time."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where to die: a step, on which side of it or at which system call in it, and the how-manieth time, from 1."""

    step: str
    moment: str
    count: int

    def __str__(self) -> str:
        return f"{self.moment} {self.step} #{self.count}"


@dataclass(frozen=True, slots=True)
class Record:
    """A scenario that ran to its end."""

    points: tuple[Point, ...]
    """In order."""
    stages: tuple[str, ...]
    """For each point, what was on the disk and how much the program had been told: a kill cannot tell equal ones apart."""
    states: tuple[Holdings, ...]
    """What readers saw at the beginning, and after each thing the program was told."""

    def around(self) -> list[Point]:
        """Each of the engine's own steps, the first and the last time, on both sides; and every stage there is.

        Creating and upkeep go through tables that are one like the other, and so do files written ahead: of those only the
        first and the last.
        """
        last = Counter({(point.step, point.moment): point.count for point in self.points})
        chosen: list[Point] = []
        stage_before, upkeep = "", None
        for point, stage in zip(self.points, self.stages, strict=True):
            own = point.step in engine_steps()
            ends = own and point.count in (1, last[point.step, point.moment])
            middle = own and not ends and not point.step.startswith("_")
            if ends or (stage != stage_before and upkeep is None and not middle):
                chosen.append(point)
            if own and not point.step.startswith("_"):
                upkeep = point.step if middle and point.moment == Moment.BEFORE.value else None
            stage_before = stage
        return chosen

    def distinct(self) -> list[Point]:
        """Those of `around` at which the disk or what was told differs: where a process takes half a minute to get there."""
        stages = dict(zip(self.points, self.stages, strict=True))
        return list({stages[point]: point for point in reversed(self.around())}.values())[::-1]

    def inside(self) -> list[Point]:
        """At each kind of system call in each of the engine's own steps that changed the disk; not each makes all of them."""
        entered: dict[str, tuple[int, str]] = {}
        changing: dict[str, list[int]] = {}
        for point, stage in zip(self.points, self.stages, strict=True):
            if point.moment == Moment.BEFORE.value:
                entered[point.step] = point.count, stage
            elif point.step in engine_steps() and stage != entered[point.step][1]:
                changing.setdefault(point.step, []).append(entered[point.step][0])
        return [
            Point(step, call.value, count)
            for step, counts in changing.items()
            # See `around`.
            for count in (counts if step.startswith("_") else sorted({counts[0], counts[-1]}))
            for call in SystemCall
        ]

    def sides(self) -> dict[tuple[str, str], Point]:
        """For each step, and each side of it, the last time it was taken."""
        return {(point.step, point.moment): point for point in self.points}


Live = Callable[[str], int]
"""Runs `main` on an order in a process of its own; how that ended."""


def live_alone(order: str) -> int:
    """In a process that brings along whatever the engine needs."""
    return run_forked(main, order)


def record(engine: str, home: Path, scenario: str, live: Live = live_alone) -> Record:
    """Runs a scenario on the catalog in `home` to its end."""
    code = live(_order(engine, home, scenario, None))
    assert code == 0, f"the scenario itself ended with {code}: {_told(home)}"
    trace = [json.loads(line) for line in (home / "trace.jsonl").read_text().splitlines()]
    return Record(
        points=tuple(Point(*line["point"]) for line in trace),
        stages=tuple(line["stage"] for line in trace),
        states=tuple(line["state"] for line in _told(home)),
    )


def die(engine: str, home: Path, scenario: str, point: Point, live: Live = live_alone) -> bool:
    """Runs a scenario until it is killed at a point; whether it was. Only inside a step it need not be."""
    code = live(_order(engine, home, scenario, point))
    allowed = (-signal.SIGKILL,) if point.moment in list(Moment) else (-signal.SIGSYS, SURVIVED, 0)
    assert code in allowed, f"{scenario} ended with {code} and not {point}"
    return code < 0


def assert_survived(catalog: Catalog, home: Path, states: Sequence[Holdings], *, reader: Catalog | None = None) -> None:
    """Holds what a killed process left against the record: old or new, nothing told is gone, and it goes on.

    Args:
        catalog: What it left, opened anew.
        home: Where it ran.
        states: Of the record; they are the same on every engine.
        reader: The same catalog on an engine that reads quicker.
    """
    told = _told(home)
    found = holdings(reader or catalog)
    # The first line was said before anything happened.
    allowed = states[len(told) - 1 : len(told) + 1]
    if catalog.engine.many_fences:
        assert found in allowed, f"after {told} readers see {json.dumps(found)}"
    else:
        # Pipelines that save together do so one after the other there: each by itself is the old or the new.
        for name, held in found.items():
            assert held in [state.get(name) for state in allowed], f"after {told} readers see {json.dumps(found)}"
    generations = {row["generation"] for row in catalog.reading.rows(WRITERS) if row["pipeline"] == PIPELINE}
    assert {said["generation"] for said in told if "generation" in said} <= generations
    assert_goes_on(catalog, PIPELINE, reader=reader)
    assert_sound(reader or catalog)


class Child:
    """The process that runs a scenario: a `Story` that records, or ends where it was told to."""

    def __init__(self, engine: str, home: Path, kill: Point | None) -> None:
        self._engine = engine
        self._home = home
        self._kill = kill
        self._passed: Counter[tuple[str, str]] = Counter()
        self._begun = False
        self._told = 0
        self._one_by_one = threading.Lock()
        self._opened: list[Catalog] = []

    def open(self) -> Catalog:
        """See `Story.open`."""
        return self._kept(open_catalog(str(self._home / "catalog"), engine=self._engine))

    def begin(self) -> None:
        """See `Story.begin`."""
        self.done()
        self._begun = True

    def done(self, **said: object) -> None:
        """See `Story.done`."""
        begun, self._begun = self._begun, False
        if self._kill is None:
            # What readers see is the same on every engine, and this one sees it in milliseconds.
            reader = self._kept(Catalog(open_engine("embedded", str(self._home / "catalog"))))
            said["state"] = holdings(reader) if reader.engine.exists(MANIFESTS.name) else {}
        _write(self._home / "told.jsonl", said)
        self._told += 1
        self._begun = begun

    def observe(self, step: str, moment: Moment) -> None:
        """Passes a point, or does not."""
        if self._begun:
            with self._one_by_one:  # parts are staged by several threads
                self._pass(step, moment)

    def _kept(self, catalog: Catalog) -> Catalog:
        """Until the end: locks let go of files when they are collected, which is at no certain moment."""
        self._opened.append(catalog)
        return catalog

    def _pass(self, step: str, moment: Moment) -> None:
        self._passed[step, moment.value] += 1
        here = Point(step, moment.value, self._passed[step, moment.value])
        if self._kill is None:
            stage = f"{self._told} {_fingerprint(self._home / 'catalog')}"
            _write(self._home / "trace.jsonl", {"point": astuple(here), "stage": stage})
        elif here == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        elif (here.step, here.count) == (self._kill.step, self._kill.count) and self._kill.moment not in list(Moment):
            if moment is Moment.AFTER:
                os._exit(SURVIVED)
            die_at(SystemCall(self._kill.moment))


def main(argument: str) -> None:
    """Runs one child."""
    order = json.loads(argument)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["SPARK_SUBMIT_OPTS"] = SHORT_LIVED_JVM
    kill = Point(*order["kill"]) if order["kill"] else None
    child = Child(order["engine"], Path(order["home"]), kill)
    engine = type(open_engine(order["engine"], order["home"]))
    with watched(engine, child.observe):
        SCENARIOS[order["scenario"]](child)


def _order(engine: str, home: Path, scenario: str, kill: Point | None) -> str:
    order = {"engine": engine, "home": str(home), "scenario": scenario, "kill": None if kill is None else astuple(kill)}
    return json.dumps(order)


def _told(home: Path) -> list[dict[str, Any]]:
    """What the process was told; a line cut short was not."""
    path = home / "told.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _write(path: Path, content: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(content) + "\n")


def _fingerprint(root: Path) -> str:
    return json.dumps(sorted(_files(root)))


def _files(root: Path) -> Iterator[tuple[str, int, int]]:
    """What readers could see: of the lock's own files the lock is the judge."""
    for path in root.rglob("[!.]*"):
        with suppress(FileNotFoundError):  # another thread is at work
            found = path.stat()
            yield str(path.relative_to(root)), found.st_size, found.st_mtime_ns
