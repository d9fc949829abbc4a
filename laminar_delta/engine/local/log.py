"""Reading a local table's log as files: which entry is the newest, whether it is whole, what it added.

After a power loss the newest entries can be empty, and the newest cut off. Both engines open a table with an empty entry
silently without that commit and what came after, so they are looked at before every use and reported, never read past.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from laminar_delta.errors import ErrorCode, StorageError

LOG_DIRECTORY = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
"""Where in a log it is written which log checkpoint is the newest."""


def newest_entry(table: Path) -> int | None:
    """The highest version that has a log entry; None without a log."""
    return max(entry_versions(table), default=None)


def oldest_entry(table: Path) -> int | None:
    """The lowest version that has a log entry; None without a log."""
    return min(entry_versions(table), default=None)


def entry_versions(table: Path) -> list[int]:
    """The versions that have a log entry, ascending."""
    try:
        with os.scandir(table / LOG_DIRECTORY) as entries:
            return sorted(version for entry in entries if (version := _version_of(entry.name)) is not None)
    except (FileNotFoundError, NotADirectoryError):
        return []


def log_checkpoints(table: Path) -> dict[int, list[Path]]:
    """By version the files of its log checkpoint."""
    found: dict[int, list[Path]] = {}
    for path in sorted((table / LOG_DIRECTORY).glob("*.checkpoint.*")):
        version = _checkpointed(path.name)
        if version >= 0 and path.suffix == ".parquet":
            found.setdefault(version, []).append(path)
    return found


def entry_path(table: Path, version: int) -> Path:
    """Where the log entry of a version is."""
    return table / LOG_DIRECTORY / f"{version:020}.json"


def check_entries(table: Path, *, version: int | None = None, back: int | None = None) -> int | None:
    """Makes sure of the log entries that readers go by: the last of them is whole, and none of the others is empty.

    One look at the directory: entries that a log checkpoint covers are not read any more, and all but the last are not opened.

    Args:
        table: The table's directory.
        version: Make sure of what readers of this version go by, and of nothing after it: what an entry of a later commit
            would say changes no earlier version. Of the newest by default.
        back: Make sure of that many of the newest as well, as who asks for the history needs them.

    Returns:
        The newest version; None without a log.

    Raises:
        StorageError: Code `log-damaged`: the last entry is empty, cut off, or not a log entry; or another one is empty.
    """
    try:
        with os.scandir(table / LOG_DIRECTORY) as found:
            files = list(found)
    except (FileNotFoundError, NotADirectoryError):
        return None
    entries = {number: file for file in files if (number := _version_of(file.name)) is not None}
    if not entries:
        return None
    newest = max(entries)
    covered = {_checkpointed(file.name) for file in files} | {-1}
    if version is None or version >= newest:
        last: int | None = newest
        # With the one a log checkpoint was written at: it is there, and tells of damage early.
        needed = {number for number in entries if number >= max(covered)}
    else:
        since = max(number for number in covered if number <= version)
        needed = {number for number in entries if since < number <= version}
        last = max(needed, default=None)
    if back is not None:
        needed |= {number for number in entries if number > newest - back}
    # The newest first: those above it can still be told.
    for number in sorted(needed, reverse=True):
        if _is_empty(entries[number]):
            raise damaged_entry(table, number, "is empty")
    if last is not None:
        # An earlier one can have been cleaned away since the look: the engine then says that the version is gone.
        with nullcontext() if last == newest else suppress(FileNotFoundError):
            actions_of(table, last)
    return newest


def actions_of(table: Path, version: int) -> list[dict[str, Any]]:
    """The actions of one log entry, or `StorageError` (code `log-damaged`) naming the file."""
    path = entry_path(table, version)
    content = path.read_bytes()
    try:
        actions = [json.loads(line) for line in content.splitlines() if line.strip()]
    except ValueError as error:
        raise damaged_entry(table, version, f"is cut off or damaged ({error})") from error
    if not actions:
        raise damaged_entry(table, version, "is empty")
    return actions


def added_files(table: Path, version: int) -> list[Path]:
    """The data files a version added."""
    return [
        table / unquote(action["add"]["path"]) for action in actions_of(table, version) if action.get("add") is not None
    ]


def _version_of(name: str) -> int | None:
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot and suffix == "json" and len(stem) == 20 and stem.isdecimal() else None


def _is_empty(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.stat().st_size == 0
    except FileNotFoundError:
        # Cleaned away since the look at the directory: a newer log checkpoint covers it.
        return False


def _checkpointed(name: str) -> int:
    """The version whose log checkpoint a file is, whole or in parts; -1 for any other."""
    stem, _, suffix = name.partition(".")
    is_one = suffix.startswith("checkpoint.") and len(stem) == 20 and stem.isdecimal()
    return int(stem) if is_one else -1


def damaged_entry(table: Path, version: int, what: str) -> StorageError:
    """The error for a log entry that is damaged."""
    path = entry_path(table, version)
    return StorageError(
        f"log entry {path} {what}",
        code=ErrorCode.LOG_DAMAGED,
        expected="a whole log entry",
        found=what,
        next_step="It was not acknowledged if power was lost while it was written: move the file away to go on without it."
        if version == newest_entry(table)
        else "Bring the file back from a backup: others were committed after it.",
        details={"path": str(path), "version": version},
    )
