"""What a table's files tell about its commits, and the upkeep of its log, where they are on this machine's disk.

Spark has no statement for the fence that stands or for a log checkpoint, and needs a quarter of a second to tell its newest
version. On local files delta-rs and a look at the log do it in milliseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from deltalake import DeltaTable

from laminar_delta.engine.answer import HistoryEntry, PartitionSize
from laminar_delta.engine.deltars import upkeep
from laminar_delta.engine.deltars.faults import reading
from laminar_delta.engine.deltars.sizes import partition_sizes
from laminar_delta.engine.local import durability
from laminar_delta.engine.local.log import LOG_DIRECTORY, actions_of, check_entries, newest_entry
from laminar_delta.engine.request import COMMIT_KEY, FENCES_KEY, Stamp, parse_user_metadata
from laminar_delta.errors import LaminarDeltaError, NotFoundError
from laminar_delta.logs import Event, log_event

_LOG = logging.getLogger(__name__)


def check_newest(table: str, directory: Path, *, version: int | None = None, back: int | None = None) -> int:
    """The newest version, its log entry found whole; see `check_entries`.

    Also for whom Spark shows an earlier version: it opens the newest first, and remembers it as it was then.
    """
    found = check_entries(directory, back=back)
    if version is not None:
        check_entries(directory, version=version)
    if found is None:
        raise NotFoundError(
            f"there is no table {table!r} at {directory}", found=str(directory), next_step="Create the catalog first."
        )
    return found


def sizes(table: str, directory: Path) -> list[PartitionSize]:
    """See `Engine.sizes`."""
    with reading(table):
        return partition_sizes(DeltaTable(str(directory)))


def find_commit(directory: Path, made: Stamp, after: int) -> int | None:
    """The version above `after` that a stamped commit made."""
    for version in range(newest_entry(directory) or 0, after, -1):
        for action in actions_of(directory, version):
            said = parse_user_metadata(action.get("commitInfo", {}).get("userMetadata"))
            if said.get(COMMIT_KEY) == made.commit_id:
                return version
    return None


def standing_fences(directory: Path, names: Sequence[str]) -> dict[str, int | None]:
    """The fences of these applications as they stand now, for messages: None where nobody raised one or it cannot be told."""
    try:
        with reading(directory.name):
            return fences_of(DeltaTable(str(directory)), names)
    except LaminarDeltaError as error:
        _LOG.debug("the fences of %s cannot be told: %s", directory, error)
        return dict.fromkeys(names)


def fences_of(handle: DeltaTable, names: Sequence[str]) -> dict[str, int | None]:
    """The fences of these applications at the version of a handle; None where nobody raised one."""
    return {name: handle.transaction_version(name) for name in names}


def fences_told(history: Iterable[HistoryEntry], names: Sequence[str]) -> dict[str, int | None]:
    """The fences of these applications as far as commits told them in their metadata."""
    found: dict[str, int | None] = dict.fromkeys(names)
    for entry in history:
        carried = entry.metadata.get(FENCES_KEY)
        for name in names:
            version = carried.get(name) if isinstance(carried, dict) else None
            if isinstance(version, int):
                found[name] = max(version, found[name] or 0)
    return found


def write_log_checkpoint(table: str, directory: Path) -> None:
    """Writes a log checkpoint at the newest version, flushed."""
    with reading(table):
        upkeep.write_log_checkpoint(DeltaTable(str(directory)), directory)


def clean_log(table: str, directory: Path) -> None:
    """Removes log entries past the log's retention that a log checkpoint covers."""
    with reading(table):
        upkeep.clean_log(DeltaTable(str(directory)), directory)


def flush_log_checkpoint(directory: Path, version: int) -> None:
    """Flushes the log checkpoint Spark wrote with a commit, if it did. The commit stands without it."""
    if (directory / LOG_DIRECTORY / f"{version:020}.checkpoint.parquet").exists():
        try:
            durability.fsync_log_checkpoint(directory)
        except OSError as error:
            log_event(
                _LOG,
                logging.WARNING,
                Event.LOG_CHECKPOINT_FAILED,
                "the log checkpoint of %s at version %d could not be flushed: %s",
                directory,
                version,
                error,
                table=directory.name,
                version=version,
                error=str(error),
            )
