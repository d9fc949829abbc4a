"""What the next state is stored upon: the last one that this writer saved, or the one it recovered from, proved valid then."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.healing import find_row
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.state.applying import AppliedDelta
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.errors import ConflictError, LaminarDeltaError
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.state.staging import Layouts, States

_LOG = logging.getLogger(__name__)


class Basis:
    """The layouts of a pipeline's newest state. Safe to share between threads."""

    def __init__(self, reading: Reading, pipeline: str) -> None:
        self._reading = reading
        self._pipeline = pipeline
        self._layouts: Layouts = {}
        self._checkpoint_id: int | None = None
        self._is_newest = True
        self._in_doubt = False
        self._turn = 0
        self._lock = threading.Lock()

    @property
    def turn(self) -> int:
        """Rises whenever the newest state becomes another one, or may have."""
        with self._lock:
            return self._turn

    def layouts(self, states: States | None = None) -> Layouts:
        """By operator and partition; empty when the next state is to be stored whole.

        Args:
            states: What is to be stored upon them.

        Raises:
            ConflictError: An application delta among those was given upon another state than this.
        """
        with self._lock:
            for (operator, partition), source in (states or {}).items():
                if isinstance(source, AppliedDelta) and source.given_at not in (None, self._turn):
                    raise ConflictError(
                        f"another checkpoint was committed since the delta of operator {operator!r} partition {partition} "
                        "was given: it says what changed in the state before that",
                        expected=source.given_at,
                        found=self._turn,
                        next_step="Save the whole state, or begin a new checkpoint with what changed since.",
                    )
            if self._checkpoint_id is not None:
                found = self._read(self._checkpoint_id)
                self._layouts, self._checkpoint_id = found if self._is_newest else _without_origin(found), None
            if not self._is_newest and self._layouts:
                # Nobody kept them: a checkpoint stored upon what is gone would be of no use.
                gone = standing(self._reading, self._pipeline).retired
                self._layouts = {key: found for key, found in self._layouts.items() if not found.reaches & gone}
            return self._layouts

    def are(self, layouts: Layouts) -> None:
        """From now on these, of a checkpoint just committed."""
        with self._lock:
            self._set(layouts, None)

    def were(self) -> None:
        """A checkpoint without such state was committed after them: by now they may be retired.

        Their blocks can be shared all the same; but they are not the state before the next one, which no delta can say
        anything about.
        """
        with self._lock:
            self._layouts = _without_origin(self._layouts)
            self._is_newest = False
            self._turn += 1

    def of(self, checkpoint_id: int | None) -> None:
        """From now on those of this checkpoint, read when they are needed; of none, to store the next state whole."""
        with self._lock:
            self._set({}, checkpoint_id)

    def doubted(self) -> None:
        """Whether a checkpoint was committed is not known: the next state is stored whole, and no delta put upon any."""
        with self._lock:
            self._set({}, None)
            self._in_doubt = True

    def found(self, checkpoint_id: int) -> None:
        """The newest checkpoint turned out to be this one: if that was in doubt, the next state is stored upon it."""
        with self._lock:
            if self._in_doubt:
                self._set({}, checkpoint_id)

    def _set(self, layouts: Layouts, checkpoint_id: int | None) -> None:
        self._layouts, self._checkpoint_id, self._is_newest, self._in_doubt = layouts, checkpoint_id, True, False
        self._turn += 1

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


def _without_origin(layouts: Layouts) -> Layouts:
    """Layouts whose blocks can be shared, and upon which no application delta can stand."""
    return {key: replace(found, origin=None) for key, found in layouts.items()}
