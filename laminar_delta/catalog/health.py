"""Whether a catalog is in good order beyond its checkpoints: settings, permissions, lock, clock, leftovers. Nothing is changed.

What is wrong with data is for `validate` and recovery to say; here is what makes trouble later, and how to mend it.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from laminar_delta.catalog.clock import now
from laminar_delta.catalog.later import present
from laminar_delta.catalog.maintenance import check_windows
from laminar_delta.catalog.orphans import find_orphans
from laminar_delta.catalog.overview import overviews
from laminar_delta.catalog.standing import Standing, standings
from laminar_delta.catalog.steps import remove_steps
from laminar_delta.catalog.tables import TABLES, WRITERS
from laminar_delta.engine.local.lock import HOLDER_FILE, CatalogLock, Process
from laminar_delta.engine.local.place import local_path
from laminar_delta.errors import ErrorCode, LaminarDeltaError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.maintenance import MaintenancePolicy

_LOCK_PATIENCE_S = 2.0
_CLOCK_TOLERANCE = dt.timedelta(minutes=5)
_NETWORK_DISKS = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")


class Level(str, Enum):
    """How much a check matters."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing."""
    WARNING = "warning"
    """Works, and costs something until it is mended."""
    PROBLEM = "problem"
    """Something does not work, or can go wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What one check found."""

    name: str
    level: Level
    found: str
    fix: str | None = None
    """What to do about it."""


class _Told(NamedTuple):
    """What a check found, without the name it has in the list of all."""

    level: Level
    found: str
    fix: str | None = None


def check_catalog(catalog: Catalog, policy: MaintenancePolicy) -> Iterator[Check]:
    """All checks, one after another; one that cannot be made says so."""
    root = None if catalog.engine.by_name or not catalog.engine.persistent else local_path(catalog.engine.location)
    checks: tuple[tuple[str, Callable[[], _Told]], ...] = (
        ("tables", lambda: _tables(catalog)),
        ("retention", lambda: _retention(catalog, policy)),
        ("permissions", lambda: _permissions(root)),
        ("lock", lambda: _lock(root)),
        ("disk", lambda: _disk(root)),
        ("clock", lambda: _clock(catalog)),
        ("writers", lambda: _writers(catalog)),
        ("sinks", lambda: _sinks(catalog)),
        ("orphans", lambda: _orphans(catalog)),
        ("steps", lambda: _steps(catalog)),
        ("removal", lambda: _removal(catalog, policy)),
    )
    for name, check in checks:
        try:
            told = check()
            yield Check(name=name, level=told.level, found=told.found, fix=told.fix)
        except LaminarDeltaError as error:
            yield Check(name=name, level=Level.PROBLEM, found=error.message, fix=error.next_step)


def _tables(catalog: Catalog) -> _Told:
    changed = []
    there = present(catalog.engine)
    for spec in there:
        stored = catalog.engine.properties(spec.name)
        catalog.engine.version(spec.name)
        changed += [
            f"{spec.name}: {name} is {stored.get(name)!r}, made with {value!r}"
            for name, value in spec.properties.items()
            if stored.get(name) != value
        ]
    if changed:
        return _Told(
            Level.WARNING,
            "; ".join(changed),
            fix="Set the properties back with ALTER TABLE … SET TBLPROPERTIES, unless the change was meant.",
        )
    return _Told(Level.OK, f"{len(there)} tables, properties as they were made")


def _retention(catalog: Catalog, policy: MaintenancePolicy) -> _Told:
    check_windows(catalog.engine, policy)
    return _Told(Level.OK, "logs and files are kept as long as healing and slow writes need them")


def _permissions(root: Path | None) -> _Told:
    if root is None:
        return _Told(Level.NOTE, "not told: only a write would show them here")
    refused = [
        str(path)
        for spec in TABLES
        for path in (root / spec.name, root / spec.name / "_delta_log")
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK)
    ]
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        refused.insert(0, str(root))
    if refused:
        return _Told(
            Level.WARNING,
            f"this user cannot write to {', '.join(refused[:3])}" + (" and others" if len(refused) > 3 else ""),
            fix="Give the user the rights of the pipeline's, or only read: ls, show, validate and recover work.",
        )
    return _Told(Level.OK, "this user can read and write")


def _lock(root: Path | None) -> _Told:
    if root is None or not os.access(root, os.W_OK):
        return _Told(Level.NOTE, "there is no lock to look at here")
    holder = root / HOLDER_FILE
    if holder.exists() and not holder.read_text().strip():
        return _Told(
            Level.PROBLEM,
            f"{holder} is empty",
            fix="Make sure no JVM writes here, then delete it.",
        )
    try:
        with CatalogLock(root, _LOCK_PATIENCE_S).held():
            return _Told(Level.OK, "free")
    except StorageError as error:
        if error.code is not ErrorCode.LOCKED:
            raise
        return _Told(
            Level.WARNING,
            error.message,
            fix="If it stays so, find the process (lsof on .laminar.lock; .laminar.jvm names a JVM) and end it.",
        )


def _disk(root: Path | None) -> _Told:
    if root is None:
        return _Told(Level.NOTE, "no local disk")
    kind = _file_system(root)
    if kind in _NETWORK_DISKS:
        return _Told(
            Level.PROBLEM,
            f"{root} is on {kind}, whose locks do not hold",
            fix="Move the catalog to a local disk or an object store.",
        )
    stat = os.statvfs(root)
    free = stat.f_bavail * stat.f_frsize
    if free < 1 << 30:
        return _Told(
            Level.WARNING,
            f"{free >> 20} MB are free",
            fix="Make room, or run `laminar-delta maintain`.",
        )
    return _Told(Level.OK, f"{kind or 'local'}, {free >> 30} GB free")


def _file_system(root: Path) -> str | None:
    """The kind of the file system a directory is on, where the system tells."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return None
    inside = [(point, kind) for point, kind in mounts if root.resolve().is_relative_to(point)]
    return max(inside, key=lambda mount: len(mount[0]))[1] if inside else None


def _clock(catalog: Catalog) -> _Told:
    newest = max(
        (entry.timestamp_ms for spec in TABLES for entry in catalog.engine.history(spec.name, limit=1)), default=0
    )
    ahead = dt.datetime.fromtimestamp(newest / 1000, dt.timezone.utc) - now()
    if ahead > _CLOCK_TOLERANCE:
        return _Told(
            Level.WARNING,
            f"the newest commit is {ahead} ahead of this machine's clock",
            fix="Set the clocks (NTP). Nothing is ordered by them, but ages, as_of and retention by age are told by them.",
        )
    return _Told(Level.OK, "no commit is in the future")


def _writers(catalog: Catalog) -> _Told:
    """Writers of this machine whose process ended without letting go."""
    newest: dict[str, dict[str, object]] = {}
    for row in catalog.reading.rows(WRITERS):
        if row["generation"] >= newest.get(row["pipeline"], row)["generation"]:
            newest[row["pipeline"]] = row
    dead = [
        f"{row['owner']!r} of pipeline {name!r} (pid {row['pid']})"
        for name, row in sorted(newest.items())
        if row["released_at"] is None
        and row["host"] == socket.gethostname()
        and isinstance(row["pid"], int)
        and not Process.of(row["pid"]).alive()
    ]
    if dead:
        return _Told(
            Level.NOTE,
            f"ended without letting go: {', '.join(dead)}",
            fix="Nothing: the next writer takes over by itself. Commands that ask for no takeover need --takeover.",
        )
    return _Told(Level.OK, "none of this machine ended without letting go")


def _sinks(catalog: Catalog) -> _Told:
    found = overviews(catalog.reading)
    failed = [(one.pipeline, number) for one in found for number in one.failed_ids]
    if failed:
        pipeline, number = failed[0]
        return _Told(
            Level.WARNING,
            f"failed to deliver: {', '.join(f'{name} {which}' for name, which in failed)}",
            fix=f"See the error with `laminar-delta show {pipeline} {number}`; a restart goes back behind it until then.",
        )
    pending = sum(one.sinks_pending for one in found)
    return _Told(Level.OK, f"none failed, {pending} pending")


def _orphans(catalog: Catalog) -> _Told:
    found = {one.pipeline: len(find_orphans(catalog.engine, one.pipeline)) for one in overviews(catalog.reading)}
    left = {name: count for name, count in found.items() if count}
    if left:
        told = ", ".join(f"{name} ({count})" for name, count in left.items())
        return _Told(
            Level.WARNING,
            f"left behind by failed attempts: {told}",
            fix="Run `laminar-delta orphans --apply`.",
        )
    return _Told(Level.OK, "none")


def _steps(catalog: Catalog) -> _Told:
    found = {
        one.pipeline: remove_steps(catalog.engine, one.pipeline, owner="doctor", dry_run=True)
        for one in overviews(catalog.reading)
    }
    left = sum(found.values())
    if left:
        return _Told(
            Level.WARNING,
            f"{left} staged steps of sessions that ended",
            fix="Run `laminar-delta maintain --apply`.",
        )
    return _Told(Level.OK, "no staged steps of sessions that ended")


def _removal(catalog: Catalog, policy: MaintenancePolicy) -> _Told:
    due = now() - policy.grace
    late = sum(_overdue(seen, due) for seen in standings(catalog.reading).values())
    if late:
        return _Told(
            Level.NOTE,
            f"{late} checkpoints have been retired for longer than the grace period",
            fix="Run `laminar-delta maintain --apply`, daily.",
        )
    return _Told(Level.OK, "nothing retired is overdue")


def _overdue(seen: Standing, due: dt.datetime) -> int:
    return sum(1 for number, at in seen.retired_at.items() if number not in seen.removed and at <= due)
