"""Progress of long saves and loads, and the way to cancel them: whoever is told may raise, and nothing of it stays visible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateProgress:
    """How far the state of one operator partition is."""

    operator: str
    partition: int
    done: int
    """Raw bytes so far."""
    total: int | None
    """Raw bytes in all; None while a state is saved, whose end is not known before it comes."""


TellProgress = Callable[[StateProgress], None]
"""Is told about every megabyte or so. What it raises ends the save or the load."""
