"""Telling a local directory from everything else a location can be, and from those that delta-rs cannot write to."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

from laminar_delta.errors import InvalidInputError

_UNUSABLE = re.compile(r"[#?\\\[\]^|\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")
"""What delta-rs takes for something else in a path, also when it is percent-encoded in a `file:` URI. A table below `#` or `?`
has no history for it, below a backslash or `%20` it is looked for elsewhere, below a bracket it cannot be changed."""


def local_path(location: str) -> Path | None:
    """The absolute directory a location names, or None when it is a URI of another kind."""
    if location.startswith("file:"):
        found = urlparse(location)
        if found.query or found.fragment:
            raise InvalidInputError(
                f"{location!r} ends in something that no directory has: {(found.query or found.fragment)!r}",
                expected="file: and a path, with # and ? percent-encoded",
                found=location,
            )
        return Path(unquote(found.path)).absolute()
    if "://" in location:
        return None
    return Path(location).absolute()


def check_usable(root: Path) -> Path:
    """Refuses a directory that delta-rs would make tables in and not find again. Raises `InvalidInputError` naming why."""
    found = _UNUSABLE.search(str(root))
    if found is not None:
        raise InvalidInputError(
            f"the path {str(root)!r} has {found[0]!r} in it, which delta-rs cannot have in the path of a table",
            expected="a path without # ? \\ [ ] ^ |, control characters, and % before two hexadecimal digits",
            found=found[0],
            next_step="Choose another directory, or reach this one by a link of another name. Nothing was made.",
        )
    return root
