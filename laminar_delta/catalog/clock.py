"""The time of day, for people: nothing is ordered by it."""

from __future__ import annotations

import datetime as dt


def now() -> dt.datetime:
    """In UTC."""
    return dt.datetime.now(dt.timezone.utc)
