"""Reading a local table's log as files: which entry is the newest, whether it is whole, what it added.

After a power loss the newest entries can be empty, and the newest cut off. Both engines open a table with an empty entry
silently without that commit and what came after, so they are looked at before every use and reported, never read past.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from laminar_delta.errors import ErrorCode, StorageError

LOG_DIRECTORY = "_delta_log"


def newest_entry(table: Path) -> int | None:
    """The highest version that has a log entry; None without a log."""
    return max(_versions(table), default=None)


def oldest_entry(table: Path) -> int | None:
    """The lowest version that has a log entry; None without a log."""
    return min(_versions(table), default=None)


def _versions(table: Path) -> list[int]:
    try:
        with os.scandir(table / LOG_DIRECTORY) as entries:
            return [version for entry in entries if (version := _version_of(entry.name)) is not None]
    except (FileNotFoundError, NotADirectoryError):
        return []


def entry_path(table: Path, version: int) -> Path:
    """Where the log entry of a version is."""
    return table / LOG_DIRECTORY / f"{version:020}.json"


def check_newest_entry(table: Path) -> int | None:
    """Makes sure the newest log entry is whole, and none that is still needed is empty.

    One look at the directory: entries that a log checkpoint covers are not read any more, and the others are not opened here.

    Returns:
        The newest version; None without a log.

    Raises:
        StorageError: Code `log-damaged`: the newest entry is empty, cut off, or not a log entry; or another one is empty.
    """
    try:
        with os.scandir(table / LOG_DIRECTORY) as found:
            files = list(found)
    except (FileNotFoundError, NotADirectoryError):
        return None
    entries = {version: file for file in files if (version := _version_of(file.name)) is not None}
    if not entries:
        return None
    covered = max((_checkpointed(file.name) for file in files), default=-1)
    for version in sorted(version for version in entries if version >= covered):
        if _is_empty(entries[version]):
            raise _damaged(entry_path(table, version), "is empty")
    newest = max(entries)
    actions_of(table, newest)
    return newest


def check_all_entries(table: Path) -> None:
    """Looks at every log entry there is, to name the one that is damaged; nothing when all can be parsed."""
    for path in sorted((table / LOG_DIRECTORY).glob("*.json")):
        version = _version_of(path.name)
        if version is not None:
            actions_of(table, version)


def actions_of(table: Path, version: int) -> list[dict[str, Any]]:
    """The actions of one log entry, or `StorageError` (code `log-damaged`) naming the file."""
    path = entry_path(table, version)
    content = path.read_bytes()
    try:
        actions = [json.loads(line) for line in content.splitlines() if line.strip()]
    except ValueError as error:
        raise _damaged(path, f"is cut off or damaged ({error})") from error
    if not actions:
        raise _damaged(path, "is empty")
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


def _damaged(path: Path, what: str) -> StorageError:
    return StorageError(
        f"log entry {path} {what}",
        code=ErrorCode.LOG_DAMAGED,
        expected="a whole log entry",
        found=what,
        next_step="It was not acknowledged if power was lost while it was written: move the file away to go on without it.",
        details={"path": str(path)},
    )
