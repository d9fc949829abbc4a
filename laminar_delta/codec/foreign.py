"""SHA-256, for what other systems recorded: our own checksums are xxh3.

One place, so that nothing else of the core comes to use it. Loaded when it is needed: it brings OpenSSL along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hashlib


def sha256(data: bytes = b"") -> hashlib._Hash:
    """A SHA-256 under way, over `data` so far."""
    import hashlib

    return hashlib.sha256(data)
