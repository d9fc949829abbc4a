"""Progress of long saves and loads, and the way to cancel them: whoever is told may raise, and nothing of it stays visible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laminar_delta.catalog.state.given import Key

TELL_EVERY = 1 << 20


@dataclass(frozen=True, slots=True)
class StateProgress:
    """How far the state of one operator partition is."""

    operator: str
    partition: int
    done: int
    """Raw bytes so far."""
    total: int | None
    """Raw bytes in all; None while a state is saved, whose end is not known before it comes, and while deltas are applied."""


TellProgress = Callable[[StateProgress], None]
"""Is told about every megabyte or so. What it raises ends the save or the load."""


def told(
    pieces: Iterator[bytes | memoryview], key: Key, total: int | None, tell: TellProgress
) -> Iterator[bytes | memoryview]:
    """Pieces of a state as they come, and how far it is told as they go; at the end in any case."""
    done = last = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        if done - last >= TELL_EVERY and done != total:
            last = done
            tell(StateProgress(*key, done, total))
    tell(StateProgress(*key, done, done))
