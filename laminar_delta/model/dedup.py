"""Which events of a source were processed already, by their sequence."""

from __future__ import annotations

from collections.abc import Mapping

from laminar_delta.model.source_checkpoint import SourceCheckpoint


class SequenceFilter:
    """Remembers how far each source is. After a restart a source repeats what it had sent since its position; this drops it."""

    def __init__(self, positions: Mapping[str, SourceCheckpoint] | None = None) -> None:
        """Begins at positions, such as those to resume from."""
        self._last = {name: checkpoint.sequence for name, checkpoint in (positions or {}).items()}

    def is_duplicate(self, source: str, sequence: int | None) -> bool:
        """Whether an event was processed already. One without a sequence, or of an unknown source, never was."""
        last = self._last.get(source)
        return sequence is not None and last is not None and sequence <= last

    def advance(self, source: str, sequence: int | None) -> None:
        """Takes note of a processed event. Never goes back."""
        if sequence is not None:
            self._last[source] = max(sequence, self._last.get(source, sequence))
