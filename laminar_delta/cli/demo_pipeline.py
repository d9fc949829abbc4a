"""The pipeline of the demo: numbers in, running sums out, checkpoints into a catalog. It runs in a process of its own.

    python -m laminar_delta.cli.demo_pipeline DIRECTORY RECORDS [STEP COUNT]

It reads the numbers from 1 on, keeps their sum as operator state, and delivers one line per number to a sink of files, once
each. With STEP and COUNT it kills itself with SIGKILL when it has done that step for the COUNT-th time: no cleanup runs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import laminar_delta as ld
from laminar_delta.catalog.builder import CheckpointBuilder
from laminar_delta.catalog.coordinator import Coordinator
from laminar_delta.catalog.sinks import SinkEpoch, Step, When

PIPELINE = "sums"
BATCH = 5
"""Records per checkpoint."""


class FileSink:
    """Keeps an epoch in a hidden file until it is committed, then shows it by renaming."""

    name = "files"

    def __init__(self, directory: Path) -> None:
        self._hidden = directory / "hidden"
        self._shown = directory / "shown"
        self._lines: list[str] = []
        for path in (self._hidden, self._shown):
            path.mkdir(parents=True, exist_ok=True)

    def write(self, line: str) -> None:
        """One line of the epoch under way."""
        self._lines.append(line)

    def pre_commit(self, epoch: SinkEpoch) -> None:
        """See `ExactlyOnceSink`."""
        (self._hidden / epoch.key).write_text("".join(f"{line}\n" for line in self._lines))
        self._lines = []

    def commit(self, epoch: SinkEpoch) -> None:
        """See `ExactlyOnceSink`."""
        if not (self._shown / epoch.key).exists():
            (self._hidden / epoch.key).rename(self._shown / epoch.key)

    def abort(self, epoch: SinkEpoch) -> None:
        """See `ExactlyOnceSink`."""
        (self._hidden / epoch.key).unlink(missing_ok=True)
        self._lines = []

    def landed(self, epoch: SinkEpoch) -> bool | None:
        """See `ExactlyOnceSink`."""
        return (self._shown / epoch.key).exists()

    def prepared(self) -> Iterable[SinkEpoch]:
        """See `RedrivableSink`."""
        return [SinkEpoch.from_key(path.name) for path in self._hidden.iterdir()]

    def output(self) -> list[str]:
        """Everything a reader of the sink sees, in order."""
        return [line for path in sorted(self._shown.iterdir()) for line in path.read_text().splitlines()]


def run(place: Path, records: int, kill_at: tuple[str, int] | None) -> None:
    """Resumes where the last process was, and goes on to the end."""
    catalog = ld.open_catalog(str(place / "catalog"))
    sink = FileSink(place / "output")
    passed = 0

    def observe(step: Step, when: When) -> None:
        nonlocal passed
        if kill_at is not None and (step.value, when) == (kill_at[0], When.AFTER):
            passed += 1
            if passed == kill_at[1]:
                os.kill(os.getpid(), signal.SIGKILL)

    writer = catalog.writer(PIPELINE, owner=f"process-{os.getpid()}", reason="demo")
    coordinator = Coordinator(writer, [sink], observe=observe)
    manifest = coordinator.resume().recovery.manifest
    position = total = 0
    if manifest is not None:
        position = int(manifest.source_offsets["numbers"].offsets["0"])
        total = int(catalog.pipeline(PIPELINE).state(manifest.checkpoint_id).read("sum"))
    while position < records:
        for number in range(position + 1, min(position + BATCH, records) + 1):
            total += number
            sink.write(f"{number} {total}")
        position = min(position + BATCH, records)
        outcome = coordinator.run(lambda cp, at=position, knew=total: _fill(cp, at, knew))  # type: ignore[misc]  # bound now
        if not outcome.success:
            raise SystemExit(f"checkpoint {outcome.checkpoint_id} failed: {outcome.error}")
    writer.close()


def _fill(cp: CheckpointBuilder, position: int, total: int) -> None:
    cp.source("numbers", {"0": str(position)})
    cp.state("sum", str(total).encode())


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else None)
