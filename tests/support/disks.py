"""Disks that fill up or cannot be written, for real: mounts of a child process in namespaces of its own, needing no rights.

    unshare --map-root-user --mount python -m tests.support.disks full <directory>

mounts what it needs below the directory, runs a catalog on it, and prints one JSON object per thing that happened.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import laminar_delta as ld
from laminar_delta.catalog.writer import Writer
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.model.report import RecoveryReport
from laminar_delta.testing.invariants import assert_goes_on, assert_sound, holdings
from laminar_delta.testing.scenarios import PIPELINE, save

PRIVATE_MOUNTS = ["unshare", "--map-root-user", "--mount"]
FREE_KIB = (0, 4, 8, 12, 16, 20, 28, 40, 56, 80, 120)
"""How much room a save finds: each time it runs out at another place."""
DISK_KIB = 6_000


@cache
def mounts_allowed() -> bool:
    """Whether this system lets a process mount in namespaces of its own."""
    try:
        probe = [*PRIVATE_MOUNTS, "mount", "-t", "tmpfs", "-o", "size=1m", "probe", "/mnt"]
        return subprocess.run(probe, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def happened(kind: str, place: Path) -> list[dict[str, Any]]:
    """Runs one of these in a process of its own; what it said."""
    command = [*PRIVATE_MOUNTS, sys.executable, "-m", "tests.support.disks", kind, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tried(action: Callable[[], Any]) -> dict[str, Any]:
    """What an application is told; anything but an error of ours is a failure of the test."""
    try:
        return {"told": "done", "answer": action()}
    except LaminarDeltaError as error:
        return {"told": type(error).__name__, "code": error.code.value, "next": error.next_step, "text": str(error)}


def fill_up(place: Path) -> Iterator[dict[str, Any]]:
    """Saves on a disk with less and less room, each time with a fresh writer as after a restart."""
    disk = place / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", f"size={DISK_KIB}k", "tmpfs", str(disk))
    catalog = ld.open_catalog(str(disk / "catalog"), engine="embedded")
    writer = catalog.writer(PIPELINE)
    save(writer)
    ballast = disk / "ballast"
    for free, action in [*((free, save) for free in FREE_KIB), *((free, save_offsets) for free in FREE_KIB[:3])]:
        before = holdings(catalog)[PIPELINE]["manifests"]
        room = os.statvfs(disk)
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail * room.f_frsize - free * 1024))
        outcome = tried(partial(action, writer))
        ballast.unlink()
        after = holdings(catalog)[PIPELINE]["manifests"]
        lost = {key: value for key, value in before.items() if after.get(key) != value}
        yield {"free": free, **outcome, "lost": lost, "new": sorted(map(int, after.keys() - before.keys()))}
        yield {"free": "again", **tried(lambda: save(writer))}
    assert_goes_on(catalog, PIPELINE)
    assert_sound(catalog)


def save_offsets(writer: Writer) -> int:
    """A save without state: its sources are all it stages."""
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": str(cp.id)})
    return cp.id


def refuse_writes(place: Path) -> Iterator[dict[str, Any]]:
    """Reads and writes a catalog on a disk that was made read-only under a running writer."""
    disk = place / "disk"
    disk.mkdir()
    mount("--bind", str(disk), str(disk))
    catalog = ld.open_catalog(str(disk / "catalog"), engine="embedded")
    writer = catalog.writer(PIPELINE)
    save(writer)
    writer.sink_committed(1, "warehouse")
    before = holdings(catalog)
    mount("-o", "remount,ro,bind", str(disk))
    pipeline = catalog.pipeline(PIPELINE)
    writes: dict[str, Callable[[], Any]] = {
        "save": lambda: save(writer),
        "status": lambda: writer.sink_committed(1, "warehouse"),
        "takeover": lambda: catalog.writer(PIPELINE),
        "pin": lambda: pipeline.pin(1, reason="try"),
        "close": writer.close,
        "create": lambda: ld.open_catalog(str(disk / "another"), engine="embedded"),
    }
    for name, action in writes.items():
        yield {"tried": name, **tried(action)}
    reads: dict[str, Callable[[], Any]] = {
        "open": lambda: holdings(ld.open_catalog(str(disk / "catalog"), engine="embedded")) == before,
        "recover": lambda: _report(pipeline.recover()),
    }
    for name, action in reads.items():
        yield {"tried": name, **tried(action)}
    mount("-o", "remount,rw,bind", str(disk))
    assert holdings(catalog) == before
    assert_goes_on(catalog, PIPELINE)
    assert_sound(catalog)


def _report(report: RecoveryReport) -> dict[str, Any]:
    return {"chosen": report.chosen_id, "stored": report.stored, "notes": list(report.notes)}


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


KINDS = {"full": fill_up, "read-only": refuse_writes}


if __name__ == "__main__":
    for line in KINDS[sys.argv[1]](Path(sys.argv[2])):
        sys.stdout.write(json.dumps(line, default=str) + "\n")
        sys.stdout.flush()
