"""What sources note for themselves below `sources/<n>/`.

A file source numbers its entries by its own position (`logOffset`), which falls behind the batches when one brings it
nothing. Every tenth entry is `<n>.compact` and holds all before it, which are then deleted. Other sources note at most where
they began, under the number of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from laminar_delta.codec.checksum import xxh3_hex
from laminar_delta.errors import NotFoundError

if TYPE_CHECKING:
    from laminar_delta.interop.place import Place

LONGEST_SOURCE_LOG = 1 << 20
"""Bytes of an entry that are kept among what is said of a batch; a longer one is kept as state."""

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


def back_from(place: Place, index: int, number: int) -> Iterator[tuple[int, str | None]]:
    """Numbers and paths of the entries from one down to the newest that holds all before it; None for one that is missing."""
    for at in range(number, -1, -1):
        plain = f"sources/{index}/{at}"
        whole = f"{plain}{COMPACT}"
        if place.size(whole) is not None:
            yield at, whole
            return
        yield at, plain if place.size(plain) is not None else None


def own_digest(entry: bytes, number: int) -> str:
    """A digest of what a batch itself brought to an entry that holds all before it: other files make another one."""
    lines = entry.decode("utf-8", "replace").split("\n")[1:]
    # Looked for before it is parsed: such an entry has a line for each file the query ever read.
    own = [line for line in lines if f'"batchId":{number}' in line and _batch_of(line) == number]
    return xxh3_hex("\n".join(sorted(own or lines)).encode())


def _batch_of(line: str) -> object:
    try:
        return json.loads(line).get("batchId")
    except (AttributeError, ValueError):
        return None


def read_entries(place: Place, index: int, numbers: range) -> dict[str, str]:
    """Entries by their path below the checkpoint directory, those that are there and not too long to be kept so."""
    found = {}
    for number in numbers:
        name = f"sources/{index}/{number}"
        size = place.size(name)
        if size is None or size > LONGEST_SOURCE_LOG:
            continue
        with suppress(NotFoundError):  # Spark removes entries that it has put together
            found[name] = place.read(name, limit=LONGEST_SOURCE_LOG).decode("utf-8", "replace")
    return found


def long_entries(place: Place, index: int, numbers: range) -> Iterator[tuple[int, str]]:
    """Numbers and paths of those that are too long for that: of a batch over thousands of files."""
    for number in numbers:
        name = f"sources/{index}/{number}"
        if (place.size(name) or 0) > LONGEST_SOURCE_LOG:
            yield number, name


def compacted(place: Place, index: int, numbers: range) -> Iterator[tuple[int, str]]:
    """Numbers and paths of those that hold all before them."""
    for number in numbers:
        name = f"sources/{index}/{number}{COMPACT}"
        if place.size(name) is not None:
            yield number, name
