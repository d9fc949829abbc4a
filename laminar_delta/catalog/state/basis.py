"""What the next state is stored upon: the last one that this writer saved, or the one it recovered from, proved valid then."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from laminar_delta.catalog.healing import find_row
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.state.staging import Layouts

_LOG = logging.getLogger(__name__)


class Basis:
    """The layouts of a pipeline's newest state. Safe to share between threads."""

    def __init__(self, reading: Reading, pipeline: str) -> None:
        self._reading = reading
        self._pipeline = pipeline
        self._layouts: Layouts = {}
        self._checkpoint_id: int | None = None
        self._is_newest = True
        self._lock = threading.Lock()

    def layouts(self) -> Layouts:
        """By operator and partition; empty when the next state is to be stored whole."""
        with self._lock:
            if self._checkpoint_id is not None:
                self._layouts = self._read(self._checkpoint_id)
                self._checkpoint_id = None
            if not self._is_newest and self._layouts:
                # Nobody kept them: a checkpoint stored upon what is gone would be of no use.
                gone = standing(self._reading, self._pipeline).retired
                self._layouts = {key: found for key, found in self._layouts.items() if not found.reaches & gone}
            return self._layouts

    def are(self, layouts: Layouts) -> None:
        """From now on these, of a checkpoint just committed."""
        with self._lock:
            self._layouts, self._checkpoint_id, self._is_newest = layouts, None, True

    def were(self) -> None:
        """A checkpoint without such state was committed after them: by now they may be retired."""
        with self._lock:
            self._is_newest = False

    def of(self, checkpoint_id: int | None) -> None:
        """From now on those of this checkpoint, read when they are needed; of none, to store the next state whole."""
        with self._lock:
            self._layouts, self._checkpoint_id, self._is_newest = {}, checkpoint_id, True

    def _read(self, checkpoint_id: int) -> Layouts:
        try:
            row = find_row(self._reading, self._pipeline, checkpoint_id)
            if row is None or row["state_pipeline"] not in (None, self._pipeline):
                return {}
            state = CheckpointState(self._reading, row)
            found = [state.resting(layout) for layout in state.layouts()]
        except LaminarDeltaError as error:
            # A delta is a saving of space, never a need: without it the state is stored whole.
            log_event(
                _LOG,
                logging.WARNING,
                Event.STATE_NOT_STORED_UPON,
                "checkpoint %d cannot be stored upon: %s",
                checkpoint_id,
                error,
                pipeline=self._pipeline,
                checkpoint_id=checkpoint_id,
                error=str(error),
            )
            return {}
        return {(layout.operator, layout.partition): layout for layout in found}
