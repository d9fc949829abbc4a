"""Log checkpoints and log clean-up of tables, by delta-rs, whichever engine commits to them: Spark has no words for either.

Spark keeps a checksum beside every file it writes (`.name.crc`) and refuses a file that does not match. So where delta-rs
writes over or removes a file of Spark's, the checksum goes with it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from laminar_delta.engine.local import durability
from laminar_delta.engine.local.log import LOG_DIRECTORY, oldest_entry

if TYPE_CHECKING:
    from deltalake import DeltaTable

_UNFINISHED = re.compile(r".+#[0-9]+")
"""delta-rs writes a file under its name with `#1` added and renames it. It never lists such names again itself."""


def write_log_checkpoint(handle: DeltaTable, table: Path | None) -> None:
    """Writes a log checkpoint at the handle's version; flushed where `table` is a local directory."""
    if table is not None:
        log = table / LOG_DIRECTORY
        for name in ("_last_checkpoint", f"{handle.version():020}.checkpoint.parquet"):
            durability.checksum_path(log / name).unlink(missing_ok=True)
    handle.create_checkpoint()
    if table is not None:
        durability.fsync_log_checkpoint(table)


def clean_log(handle: DeltaTable, table: Path | None) -> None:
    """Removes what a log checkpoint covers and the log's retention lets go, after that log checkpoint is on the disk."""
    if table is not None:
        durability.fsync_log_checkpoint(table)
    handle.cleanup_metadata()
    if table is not None:
        _sweep(table / LOG_DIRECTORY, oldest_entry(table) or 0)


def remove_unfinished(table: Path, *, dry_run: bool) -> list[str]:
    """Removes data files that a killed process was writing; their names. Only under the lock: then nobody is writing any."""
    found = [path for path in _unfinished(table) if path.parent.name != LOG_DIRECTORY]
    for path in [] if dry_run else found:
        path.unlink(missing_ok=True)
    return [str(path.relative_to(table)) for path in found]


def _unfinished(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*#*") if _UNFINISHED.fullmatch(path.name) and path.is_file())


def _sweep(log: Path, oldest: int) -> None:
    """Removes checksums, Hadoop's and Delta's own, of log entries that are gone, and log entries that were never finished."""
    for path in _unfinished(log):
        path.unlink(missing_ok=True)
    for checksum in log.glob("*.crc"):
        if checksum.name.startswith("."):
            if not (log / checksum.name.removeprefix(".").removesuffix(".crc")).exists():
                checksum.unlink(missing_ok=True)
        elif checksum.stem.isdecimal() and int(checksum.stem) < oldest:
            checksum.unlink(missing_ok=True)
            durability.checksum_path(checksum).unlink(missing_ok=True)
