"""The lives of a driver of streaming queries: its input, its deaths, and what it must have left when it is done."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from laminar_delta.catalog.sinks import Step, When
from laminar_delta.streaming import BatchStep
from tests.support.kafka import Broker
from tests.support.named import open_kept
from tests.support.stream_driver import COUNTS, DIED, DURING, LIFE_ENDS_WITHIN_S, PHASES, TOPIC, Kill
from tests.support.streams import FileFrameSink

if TYPE_CHECKING:
    import pytest

JVM_ENDS_WITHIN_S = 120


@dataclass(frozen=True)
class Input:
    """Numbered records for each source: as many in each, so many to a batch."""

    home: Path
    sources: Sequence[str]
    records: int
    per_batch: int
    broker: Broker | None = None
    by_name: bool = False
    """Whether the catalog is given by name, and committed by Spark."""

    def make(self) -> None:
        starts = range(0, self.records, self.per_batch)
        for kind in self.sources:
            place = self.home / kind / "in"
            if kind in ("files", COUNTS):
                different = self.records // 2 if kind == COUNTS else self.records
                place.mkdir(parents=True)
                for start in starts:
                    lines = (json.dumps({"id": number % different}) for number in range(start, start + self.per_batch))
                    (place / f"{start:09}.json").write_text("\n".join(lines))
            elif kind == "delta":
                for start in starts:
                    write_deltalake(str(place), pa.table({"id": range(start, start + self.per_batch)}), mode="append")
            else:
                assert self.broker is not None
                self.broker.create(TOPIC)
                self.broker.send(TOPIC, map(str, range(self.records)))

    def live(self, kill: Kill | None = None, **more: Any) -> None:
        """One life of the driver: to its end, or until it is killed."""
        order: dict[str, Any] = {
            "home": str(self.home),
            "sources": list(self.sources),
            "records": self.records,
            "per_batch": self.per_batch,
            "by_name": self.by_name,
            "kill": None if kill is None else asdict(kill),
            "kafka": None if self.broker is None else self.broker.address,
            **more,
        }
        jvm = self.home / "jvm.pid"
        jvm.unlink(missing_ok=True)  # that of the life before
        with (self.home / "driver.log").open("ab") as log:
            try:
                code = subprocess.run(
                    [sys.executable, "-m", "tests.support.stream_driver", json.dumps(order)],
                    stdout=log,
                    stderr=log,
                    check=False,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    timeout=LIFE_ENDS_WITHIN_S,
                ).returncode
            except subprocess.TimeoutExpired:
                if jvm.exists():  # it would go on writing, and outlive the tests
                    os.kill(int(jvm.read_text()), signal.SIGKILL)
                raise
        told = (self.home / "driver.log").read_text()[-3000:]
        assert code == (0 if kill is None else -9), f"{kill} ended with {code}:\n{told}"
        # On a local disk Delta relies on one JVM writing at a time; whoever restarts a driver has to wait for its end.
        _wait_for_end(int(jvm.read_text()))

    def assert_each_once(self, request: pytest.FixtureRequest) -> None:
        """Every record is once in each sink; state and offsets are those of all records."""
        catalog = open_kept(self.home, by_name=self.by_name, request=request)
        for kind in self.sources:
            ids = self.output(kind)
            repeated = {number: count for number, count in Counter(ids).items() if count > 1}
            assert (len(ids), repeated) == (self.records, {}), (kind, len(ids), list(repeated.items())[:5])
            assert set(ids) == set(range(self.records))
            shown = FileFrameSink(self.home / kind / "files").output()
            assert sorted(map(int, shown)) == list(range(self.records)), kind
            pipeline = catalog.pipeline(kind)
            chosen = pipeline.recover(dry_run=True)
            assert chosen.chosen_id is not None
            assert int(pipeline.state(chosen.chosen_id).read("total")) == sum(range(self.records))

    def output(self, kind: str) -> list[int]:
        """What is in the sink's table."""
        return [int(str(number)) for path in self.files(kind) for number in pq.read_table(path)["id"].to_pylist()]

    def files(self, kind: str) -> list[Path]:
        """Those the sink's table consists of."""
        return [Path(uri) for uri in DeltaTable(str(self.home / kind / "out")).file_uris()]

    def deaths(self) -> list[dict[str, Any]]:
        """Where drivers really died, as each wrote it down."""
        return [json.loads(line) for line in (self.home / DIED).read_text().splitlines()]

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home / "results.jsonl").read_text().splitlines()]


POINTS: tuple[tuple[str, str], ...] = (
    *((phase, side.value) for phase in PHASES for side in When),
    *[(Step.COMMIT.value, DURING)] * 2,
)
"""Both sides of every phase of a batch, and amid a write twice: each phase is hit at least twice."""


def planned_kills(seed: int, sources: Sequence[str], kills: int) -> list[Kill]:
    """Deaths at all those points, the rest at any of them; in an order of chance."""
    chance = random.Random(seed)
    assert kills >= len(POINTS)
    chosen = [*POINTS, *chance.choices(POINTS, k=kills - len(POINTS))]
    chance.shuffle(chosen)
    # Each source as often as any other.
    return [_kill(*point, chance, sources[number % len(sources)]) for number, point in enumerate(chosen)]


def _kill(step: str, side: str, chance: random.Random, pipeline: str) -> Kill:
    once = step == BatchStep.RESUME.value  # a run resumes once
    # Amid a write by Spark the JVM has to go too, or it ends the write.
    return Kill(
        pipeline, step, side, 1 if once else chance.randint(1, 2), jvm_too=side == DURING or chance.random() < 0.5
    )


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + JVM_ENDS_WITHIN_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)  # a process of another parent cannot be waited on
    raise AssertionError(f"the JVM {pid} did not end")
