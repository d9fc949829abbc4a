"""Where a command that makes things puts them: a directory the user named, or one that goes away afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laminar_delta.errors import InvalidInputError


@contextmanager
def fresh_directory(named: Path | None) -> Iterator[Path]:
    """A directory nobody used before. One that was named is kept; it must not exist yet."""
    if named is None:
        with tempfile.TemporaryDirectory() as place:
            yield Path(place)
        return
    if named.exists():
        raise InvalidInputError(
            f"{named} exists already",
            expected="a directory to be made",
            found=str(named),
            next_step="Name another directory.",
        )
    try:
        named.mkdir(parents=True)
    except OSError as error:
        raise InvalidInputError(
            f"{named} cannot be made: {error.strerror or error}",
            expected="a directory to be made",
            found=str(named),
            next_step="Name a directory in a place where you may write.",
        ) from error
    yield named
