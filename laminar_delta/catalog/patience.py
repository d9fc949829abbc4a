"""Trying again where somebody else came first: each try lost means that another commit was made, so it comes to an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from laminar_delta.errors import ConflictError, FencedError

T = TypeVar("T")

TRIES = 100
"""Races lost in a row before giving up."""


def again_after_conflicts(act: Callable[[], T], *, tries: int = TRIES) -> T:
    """Calls `act` until nobody came between. A fenced writer is not tried again: it never gets through.

    Raises:
        ConflictError: The last of `tries` in a row.
    """
    for _ in range(tries):
        try:
            return act()
        except FencedError:
            raise
        except ConflictError as conflict:
            last = conflict
    raise last
