"""Races between threads: on engine objects of their own, and sharing one."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.engine.predicate import col, target
from laminar_delta.engine.request import Fence, Merge, WhenMatched
from laminar_delta.errors import ConflictError, FencedError
from laminar_delta.testing.conformance.tables import LINES, PARTITIONED, line, part
from laminar_delta.testing.invariants import assert_fences_rise

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.testing.harness import EngineHarness

APP = "laminar:orders"
RIVALS = 4


class Races:
    """Exactly one winner, every loser told, nothing acknowledged lost."""

    rounds = 6
    """Rounds per race; an engine with slow commits may run fewer."""

    def test_of_rivals_offering_one_version_exactly_one_wins(self, harness: EngineHarness) -> None:
        engines = [harness.open() for _ in range(RIVALS)]
        engines[0].create(LINES)
        for turn in range(self.rounds):
            start = threading.Barrier(RIVALS)

            def offer(rival: int, turn: int = turn, start: threading.Barrier = start) -> str | None:
                attempt = f"{turn}-{rival}"
                start.wait()
                try:
                    engines[rival].append(
                        LINES.name, line("p", turn, attempt), fences=[Fence(APP, turn + 1)], key={"attempt": attempt}
                    )
                except FencedError:
                    return None
                return attempt

            with ThreadPoolExecutor(RIVALS) as pool:
                winners = [attempt for attempt in pool.map(offer, range(RIVALS)) if attempt]
            assert len(winners) == 1
            stored = [row["attempt"] for row in harness.raw_rows(LINES.name) if row["id"] == turn]
            assert stored == winners
        assert_fences_rise(engines[0], LINES.name)

    def test_threads_sharing_an_engine_never_let_a_fenced_writer_through(self, harness: EngineHarness) -> None:
        """A writer, its successor taking over, and a bystander whose commits refresh whatever they may share."""
        engine = harness.open()
        engine.create(LINES)
        acknowledged: list[str] = []
        told: list[str] = []
        for turn in range(self.rounds):
            start = threading.Barrier(3)

            def write(attempt: str, app: str, version: int, start: threading.Barrier = start) -> None:
                start.wait()
                try:
                    engine.append(
                        LINES.name, line(app, version, attempt), fences=[Fence(app, version)], key={"attempt": attempt}
                    )
                except FencedError:
                    told.append(attempt)
                else:
                    acknowledged.append(attempt)

            def take_over(version: int, start: threading.Barrier = start) -> None:
                start.wait()
                engine.raise_fence(LINES.name, Fence(APP, version))

            generation = turn * 2**32
            with ThreadPoolExecutor(3) as pool:
                jobs = [
                    pool.submit(write, f"old-{turn}", APP, generation + 1),
                    pool.submit(take_over, generation + 2**32),
                    pool.submit(write, f"bystander-{turn}", "laminar:other", turn + 1),
                ]
                for job in jobs:
                    job.result()
        stored = Counter(row["attempt"] for row in harness.raw_rows(LINES.name))
        assert sorted(stored.elements()) == sorted(acknowledged)
        assert len(acknowledged) + len(told) == 2 * self.rounds
        assert all(attempt.startswith("old") for attempt in told)
        assert_fences_rise(engine, LINES.name)

    def test_appends_without_a_fence_all_land_once(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        numbers = range(2 * self.rounds)
        with ThreadPoolExecutor(RIVALS) as pool:
            versions = list(pool.map(lambda n: engine.append(LINES.name, line("p", n)).version, numbers))
        assert len(set(versions)) == len(numbers)
        assert sorted(row["id"] for row in harness.raw_rows(LINES.name)) == list(numbers)

    def test_of_rivals_inserting_one_key_exactly_one_wins(self, harness: EngineHarness) -> None:
        engines = [harness.open() for _ in range(RIVALS)]
        engines[0].create(PARTITIONED)
        merge = Merge(keys=("pipeline", "checkpoint_id"), scope=target("pipeline").eq("p"))
        for turn in range(max(self.rounds // 2, 2)):
            start = threading.Barrier(RIVALS)

            def insert(rival: int, turn: int = turn, start: threading.Barrier = start) -> int:
                start.wait()
                try:
                    made = engines[rival].merge(PARTITIONED.name, part("p", turn, rival), merge)
                except ConflictError:
                    return 0
                return made.inserted or 0

            with ThreadPoolExecutor(RIVALS) as pool:
                wins = list(pool.map(insert, range(RIVALS)))
            assert sum(wins) == 1
            stored = [row["value"] for row in harness.raw_rows(PARTITIONED.name) if row["checkpoint_id"] == turn]
            assert stored == [wins.index(1)]

    def test_of_rivals_guarded_by_one_row_exactly_one_wins(self, harness: EngineHarness) -> None:
        """Compare and set without a fence: each rewrites the row that its guard looks at."""
        engines = [harness.open() for _ in range(RIVALS)]
        engines[0].create(PARTITIONED)
        engines[0].append(PARTITIONED.name, part("p", 0, -1))
        for turn in range(max(self.rounds // 2, 2)):
            start = threading.Barrier(RIVALS)

            def swap(rival: int, turn: int = turn, start: threading.Barrier = start) -> bool:
                merge = Merge(
                    keys=("pipeline", "checkpoint_id"),
                    scope=target("pipeline").eq("p"),
                    when_matched=(WhenMatched(),),
                    guard=col("pipeline").eq("p") & col("checkpoint_id").eq(0) & col("value").eq(turn - 1),
                )
                rows = pa.concat_tables([part("p", 0, turn), part("p", 1 + turn, rival)])
                start.wait()
                try:
                    return engines[rival].merge(PARTITIONED.name, rows, merge).version is not None
                except ConflictError:
                    return False

            with ThreadPoolExecutor(RIVALS) as pool:
                wins = list(pool.map(swap, range(RIVALS)))
            assert sum(wins) == 1
            stored = [row["value"] for row in harness.raw_rows(PARTITIONED.name) if row["checkpoint_id"] == 1 + turn]
            assert stored == [wins.index(True)]

    def test_merges_in_different_partitions_all_land(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(PARTITIONED)

        def insert(name: str) -> None:
            _merge_until_done(engine, name)

        names = [f"pipeline {n}" for n in range(RIVALS)]
        with ThreadPoolExecutor(RIVALS) as pool:
            list(pool.map(insert, names))
        assert sorted(row["pipeline"] for row in harness.raw_rows(PARTITIONED.name)) == names


def _merge_until_done(engine: Engine, name: str) -> None:
    merge = Merge(keys=("pipeline", "checkpoint_id"), scope=target("pipeline").eq(name))
    made = engine.merge(PARTITIONED.name, part(name, 1), merge)
    assert made.inserted == 1
