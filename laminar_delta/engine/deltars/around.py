"""Reading a table whose log checkpoint is damaged: the entries it covers tell the same, as long as they are there.

delta-rs takes the newest log checkpoint and nothing else. So it is shown the table in another directory, of links to every file
but that one. Such a handle is for reading only: a commit on it would be lost with the directory.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable

from laminar_delta.engine.deltars.faults import reading
from laminar_delta.engine.local.log import LAST_CHECKPOINT, LOG_DIRECTORY, check_entries
from laminar_delta.errors import LaminarDeltaError, StorageError
from laminar_delta.logs import Event, log_event

_LOG = logging.getLogger(__name__)


class Around:
    """Opens tables around damage; keeps the directories of links as long as it lives, because streams are read from there."""

    def opened(self, table: Path, version: int | None, opening: Callable[[], DeltaTable]) -> DeltaTable:
        """What `opening` gives; a handle around the log checkpoint where it says that one is damaged. For reading only."""
        try:
            return opening()
        except StorageError as error:
            damaged = error.details.get("log_checkpoint")
            if not isinstance(damaged, str):
                raise
            try:
                return self.open(table, Path(damaged), version)
            except LaminarDeltaError:
                raise error from None

    def open(self, table: Path, damaged: Path, version: int | None) -> DeltaTable:
        """A handle to read a table without one of its log checkpoints. Raises where the entries do not reach back that far."""
        place = tempfile.mkdtemp(prefix="laminar-delta-")
        weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
        shown = Path(place, table.name)
        (shown / LOG_DIRECTORY).mkdir(parents=True)
        for path in table.iterdir():
            if path.name != LOG_DIRECTORY:
                (shown / path.name).symlink_to(path.absolute())
        for path in (table / LOG_DIRECTORY).iterdir():
            if path.name not in (damaged.name, LAST_CHECKPOINT):
                (shown / LOG_DIRECTORY / path.name).symlink_to(path.absolute())
        with reading(table.name, version):
            check_entries(shown, version=version)
            handle = DeltaTable(str(shown), version=version)
        log_event(
            _LOG,
            logging.WARNING,
            Event.LOG_CHECKPOINT_FAILED,
            "log checkpoint %s is damaged: table %s is read by the entries of its log",
            damaged,
            table.name,
            table=table.name,
            path=str(damaged),
        )
        return handle
