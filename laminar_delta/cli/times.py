"""Times as people type them, and as they are shown to them."""

from __future__ import annotations

import datetime as dt
import re

from laminar_delta.cli.texts import ago
from laminar_delta.config import parse_duration
from laminar_delta.errors import InvalidInputError

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_AGO = re.compile(r"(\d+\s*[smhdw])\s+ago")


def parse_moment(text: str, now: dt.datetime | None = None) -> dt.datetime:
    """A moment: `2026-11-16T03:12`, `2026-11-16`, `03:12` (the last time it was that late), `2h ago`. UTC unless told."""
    present = now or dt.datetime.now(dt.timezone.utc)
    stripped = text.strip()
    past = _AGO.fullmatch(stripped)
    try:
        if past is not None:
            return present - parse_duration(past[1])
        clock = _CLOCK.fullmatch(stripped)
        if clock is not None:
            found = present.replace(hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0), microsecond=0)
            return found if found <= present else found - dt.timedelta(days=1)
        moment = dt.datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", stripped))
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{text!r} is no time",
            expected="such as 2026-11-16T03:12",
            found=text,
            next_step="Write 2026-11-16T03:12 (UTC), 2026-11-16T03:12+01:00, 03:12, or 2h ago.",
        ) from error
    return moment.replace(tzinfo=dt.timezone.utc) if moment.tzinfo is None else moment


def moment_of(timestamp_ms: int) -> dt.datetime | None:
    """The time of a checkpoint or commit; None for one that no calendar has."""
    from laminar_delta.catalog.rows import created_at

    return created_at(timestamp_ms)


def when_saved(timestamp_ms: int) -> str:
    """When a checkpoint was saved, by its own time, for people."""
    saved = moment_of(timestamp_ms)
    return "at an unknown time" if saved is None else f"{saved:%Y-%m-%d %H:%M:%S} UTC, {ago(saved)}"
