"""What sources note for themselves below `sources/<n>/`.

A file source numbers its entries by its own position (`logOffset`), which falls behind the batches when one brings it
nothing. Every tenth entry is `<n>.compact` and holds all before it, which are then deleted. Other sources note at most where
they began, under the number of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from laminar_delta.errors import NotFoundError

if TYPE_CHECKING:
    from laminar_delta.interop.place import Place

LONGEST_SOURCE_LOG = 1 << 20
"""Bytes of an entry that are kept with a batch."""

COMPACT = ".compact"


def log_position(offset: str) -> int | None:
    """The number of the last entry of a file source's log that an offset tells; None for other sources."""
    try:
        found = json.loads(offset).get("logOffset")
    except (AttributeError, ValueError):
        return None
    return found if isinstance(found, int) and found >= 0 else None


def own_numbers(batch: int, offset: str, before: str | None) -> range:
    """Which entries of a source's log a batch brought.

    Args:
        batch: Its number.
        offset: Where the source was after it.
        before: Where it was before; None when that is not known.
    """
    last = log_position(offset)
    if last is None:
        return range(batch, batch + 1)
    start = log_position(before) if before is not None else None
    # The same entry again rather than none, when the batch brought nothing: nobody has to look elsewhere for it.
    return range(last if start is None else min(start + 1, last), last + 1)


def read_entries(place: Place, index: int, numbers: range) -> dict[str, str]:
    """Entries by their path below the checkpoint directory; those that are not there are left out."""
    found = {}
    for number in numbers:
        name = f"sources/{index}/{number}"
        try:
            found[name] = place.read(name, limit=LONGEST_SOURCE_LOG).decode("utf-8", "replace")
        except NotFoundError:
            continue
    return found


def compacted(place: Place, index: int, numbers: range) -> Iterator[tuple[int, str]]:
    """Numbers and paths of those that hold all before them."""
    for number in numbers:
        name = f"sources/{index}/{number}{COMPACT}"
        if place.size(name) is not None:
            yield number, name
