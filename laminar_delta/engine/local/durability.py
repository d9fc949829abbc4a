"""Making local commits durable: neither delta-rs nor Spark calls fsync, so a power loss could take an acknowledged commit.

Order: the data files a commit added, the directories that name them, then the log entry and the log directory. A write is
answered only after that.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from laminar_delta.engine.local.log import LOG_DIRECTORY, added_files, entry_path
from laminar_delta.errors import CommitUnknownError, StorageError


def fsync_path(path: Path) -> None:
    """Flushes one file or directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_files(root: Path, files: Iterable[Path], flushed: Collection[Path] = ()) -> None:
    """Flushes files below `root`, but for those that were `flushed`, then every directory from theirs up to `root`."""
    directories: set[Path] = {root}
    for file in files:
        if file not in flushed:
            fsync_path(file)
        directories.update(parent for parent in file.parents if root in parent.parents)
    for directory in sorted(directories, key=lambda path: len(path.parts), reverse=True):
        fsync_path(directory)


def fsync_commit(table: Path, version: int, flushed: Collection[Path] = ()) -> None:
    """Flushes a commit: what it added, then its log entry. Of files that were `flushed` when they were written, the names."""
    entry = entry_path(table, version)
    added = added_files(table, version)
    # A file this commit added may be gone already: a later one may have rewritten it, and a vacuum removed it.
    files = [*added, *(checksum_path(file) for file in [*added, entry])]
    fsync_files(table, [file for file in files if file.exists()], flushed)
    fsync_path(entry)
    fsync_path(table / LOG_DIRECTORY)


def checksum_path(file: Path) -> Path:
    """Where Spark keeps the checksum of a file it wrote: it does not read a file whose checksum was cut off."""
    return file.with_name(f".{file.name}.crc")


def acknowledge(name: str, table: Path, version: int, flushed: Collection[Path] = ()) -> None:
    """Flushes a commit just made, so that its caller may be told.

    Args:
        name: The table's.
        table: Its directory.
        version: The commit's.
        flushed: Its data files that this process flushed when it had written them.

    Raises:
        CommitUnknownError: The disk did not take it: a power loss may take the commit back.
    """
    try:
        fsync_commit(table, version, flushed)
    except OSError as error:
        raise CommitUnknownError(
            f"version {version} of table {name!r} was committed but could not be flushed to the disk: {error}",
            next_step="Mend the disk, then read back: a power loss may take this commit.",
            details={"table": name, "version": version},
        ) from error


def acknowledge_found(name: str, table: Path, version: int) -> None:
    """The same for a commit that was found.

    One that has no entry any more is in a log checkpoint, which was flushed before the entry was removed.
    """
    if entry_path(table, version).exists():
        acknowledge(name, table, version)


def fsync_log_checkpoint(table: Path) -> None:
    """Flushes the newest log checkpoint and the pointer to it: before any log entry it replaces is removed."""
    log = table / LOG_DIRECTORY
    parts = sorted(log.glob("*.checkpoint*.parquet"))
    newest = [part for part in parts if part.name.split(".", 1)[0] == parts[-1].name.split(".", 1)[0]]
    pointer = log / "_last_checkpoint"
    for path in [*newest, *([pointer] if pointer.exists() else [])]:
        fsync_path(path)
    fsync_path(log)


def make_directory(path: Path) -> None:
    """Creates a directory and its parents durably. Raises `StorageError` where that is not possible."""
    try:
        missing = [parent for parent in [path, *path.parents] if not parent.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for created in missing:
            fsync_path(created.parent)
    except OSError as error:
        raise StorageError(
            f"directory {path} cannot be made: {error.strerror or error}",
            next_step="Make its place writable, or use another. What stands there already must be a directory.",
            details={"path": str(path)},
        ) from error
