"""A small pipeline with real sinks: records are read from a list and delivered to directories, one file per epoch.

    python -m tests.support.delivery '{"place": …, "kinds": […], "kill": ["commit", "before", 4]}'

runs it in a process of its own, which kills itself at the given step and otherwise leaves the steps it took in `steps.json`.
"""

import json
import os
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import laminar_delta as ld
from laminar_delta.catalog.builder import CheckpointBuilder
from laminar_delta.catalog.coordinator import Coordinator
from laminar_delta.catalog.resume import ResumeReport
from laminar_delta.catalog.sinks import ExactlyOnceSink, Observe, SinkEpoch, Step, When

RECORDS = [f"record-{number:02}" for number in range(6)]
PER_EPOCH = 2
PIPELINE = "orders"


class FileSink:
    """Writes an epoch to a hidden file and shows it by renaming: atomic, and to be repeated by any process."""

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self.hidden = directory / "hidden"
        self.shown = directory / "shown"
        self.failing: dict[str, Exception] = {}
        self.calls: list[tuple[str, int]] = []
        self._written: list[str] = []
        for path in (self.hidden, self.shown):
            path.mkdir(parents=True, exist_ok=True)

    def write(self, record: str) -> None:
        self._written.append(record)

    def pre_commit(self, epoch: SinkEpoch) -> None:
        self._called("pre_commit", epoch)
        (self.hidden / epoch.key).write_text("\n".join(self._written))
        self._written = []

    def commit(self, epoch: SinkEpoch) -> None:
        self._called("commit", epoch)
        if not (self.shown / epoch.key).exists():
            (self.hidden / epoch.key).rename(self.shown / epoch.key)

    def abort(self, epoch: SinkEpoch) -> None:
        self._called("abort", epoch)
        (self.hidden / epoch.key).unlink(missing_ok=True)
        self._written = []

    def landed(self, epoch: SinkEpoch) -> bool | None:
        self._called("landed", epoch)
        return (self.shown / epoch.key).exists()

    def prepared(self) -> Iterable[SinkEpoch]:
        return [SinkEpoch.from_key(path.name) for path in self.hidden.iterdir()]

    def output(self) -> list[str]:
        """What a reader of the sink sees."""
        return [record for path in sorted(self.shown.iterdir()) for record in path.read_text().splitlines()]

    def called(self, name: str) -> list[int]:
        """The epochs a method was called for."""
        return [number for method, number in self.calls if method == name]

    def _called(self, name: str, epoch: SinkEpoch) -> None:
        self.calls.append((name, epoch.number))
        if name in self.failing:
            raise self.failing[name]


class ForgetfulSink:
    """Holds a pre-committed epoch in memory only: a crash loses it, and no other process can show it.

    A file comes into being with its content, and only once: dropping an epoch takes its name, so that whoever still holds its
    records cannot show them any more.
    """

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self.shown = directory / "shown"
        self._written: list[str] = []
        self._held: dict[SinkEpoch, list[str]] = {}
        self.shown.mkdir(parents=True, exist_ok=True)

    def write(self, record: str) -> None:
        self._written.append(record)

    def pre_commit(self, epoch: SinkEpoch) -> None:
        self._held[epoch], self._written = self._written, []

    def commit(self, epoch: SinkEpoch) -> None:
        if not self.landed(epoch):
            self._make(epoch, "\n".join(self._held[epoch]))

    def abort(self, epoch: SinkEpoch) -> None:
        self._held.pop(epoch, None)
        self._written = []
        if not (self.shown / epoch.key).exists():
            self._make(epoch, "")

    def landed(self, epoch: SinkEpoch) -> bool | None:
        path = self.shown / epoch.key
        return path.exists() and path.stat().st_size > 0

    def output(self) -> list[str]:
        return [record for path in sorted(self.shown.iterdir()) for record in path.read_text().splitlines()]

    def _make(self, epoch: SinkEpoch, content: str) -> None:
        with tempfile.NamedTemporaryFile("w", dir=self.shown.parent) as file:
            file.write(content)
            file.flush()
            os.link(file.name, self.shown / epoch.key)


AnySink = FileSink | ForgetfulSink
KINDS: dict[str, type[AnySink]] = {"file": FileSink, "forgetful": ForgetfulSink}


def make_sinks(place: Path, kinds: Sequence[str]) -> list[AnySink]:
    """Sinks as a process finds them when it starts."""
    return [KINDS[kind](place / f"{kind}-{number}") for number, kind in enumerate(kinds)]


def deliver_all(
    catalog: ld.Catalog, sinks: Sequence[AnySink], *, observe: Observe | None = None, max_workers: int = 1
) -> ResumeReport:
    """The pipeline's whole life: resumes, and delivers what is left of the records."""
    every: Sequence[ExactlyOnceSink] = sinks
    coordinator = Coordinator(
        catalog.writer(PIPELINE, owner="pipeline"), every, observe=observe, max_workers=max_workers
    )
    report = coordinator.resume()
    manifest = report.recovery.manifest
    position = 0 if manifest is None else int(manifest.source_offsets["list"].offsets["0"])
    while position < len(RECORDS):
        for record in RECORDS[position : position + PER_EPOCH]:
            for sink in sinks:
                sink.write(record)
        position += PER_EPOCH
        outcome = coordinator.run(partial(_fill, position))
        assert outcome.success, outcome
    return report


def _fill(position: int, cp: CheckpointBuilder) -> None:
    cp.source("list", {"0": str(position)})


def counting(react: Callable[[Step, When, int], None]) -> Observe:
    """An observer that also knows how often this point was passed, from 1."""
    passed: Counter[tuple[Step, When]] = Counter()
    one_by_one = threading.Lock()

    def observe(step: Step, when: When) -> None:
        with one_by_one:
            passed[step, when] += 1
            react(step, when, passed[step, when])

    return observe


def main(argument: str) -> None:
    order = json.loads(argument)
    place = Path(order["place"])
    taken: list[tuple[str, str, int]] = []

    def react(step: Step, when: When, count: int) -> None:
        taken.append((step.value, when.value, count))
        if order["kill"] == [step.value, when.value, count]:
            os.kill(os.getpid(), signal.SIGKILL)

    deliver_all(
        ld.open_catalog(str(place / "catalog"), engine="embedded"),
        make_sinks(place, order["kinds"]),
        observe=counting(react),
    )
    (place / "steps.json").write_text(json.dumps(taken))


if __name__ == "__main__":
    main(sys.argv[1])
