"""Telling a local directory from everything else a location can be."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse


def local_path(location: str) -> Path | None:
    """The absolute directory a location names, or None when it is a URI of another kind."""
    if location.startswith("file:"):
        return Path(unquote(urlparse(location).path)).absolute()
    if "://" in location:
        return None
    return Path(location).absolute()
