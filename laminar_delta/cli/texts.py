"""Values as tables and JSON documents have them."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

_CONTROL = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")
"""Also what turns the direction of writing round, so that a line reads as another. Not tabs and ends of lines."""
_UNITS = (("d", 86400), ("h", 3600), ("min", 60))


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, dt.datetime):
        return f"{value.astimezone(dt.timezone.utc):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(plain(value), ensure_ascii=False)
    return str(value)


def printable(text: str) -> str:
    """A text that does nothing to a terminal: what would move its cursor or change its title is written as an escape."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def plain(value: object) -> Any:
    """A value as JSON has it: times as ISO 8601 in UTC, bytes as base64, spans as seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        to_dict = getattr(value, "to_dict", None)
        return (
            plain(to_dict())
            if to_dict is not None
            else {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        )
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, dt.datetime):
        moment = value.replace(tzinfo=dt.timezone.utc) if value.tzinfo is None else value.astimezone(dt.timezone.utc)
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else str(value)
    if isinstance(value, (bytes, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and value != value:  # NaN is no JSON
        return None
    return value if isinstance(value, (str, int, float, type(None))) else str(value)


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return ""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError


def ago(moment: dt.datetime | None, now: dt.datetime | None = None) -> str:
    """How long ago, for people."""
    if moment is None:
        return ""
    seconds = ((now or dt.datetime.now(dt.timezone.utc)) - moment).total_seconds()
    # Clocks differ: what another machine did just now may be a moment ahead of this one's.
    unit, length = next((one for one in _UNITS if abs(seconds) >= one[1]), ("s", 1))
    return f"{seconds / length:.0f} {unit} ago" if seconds > -1 else f"in {-seconds / length:.0f} {unit}"
