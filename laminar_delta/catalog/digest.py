"""Digests over rows: what was saved can be told from what is read, whichever engine wrote or read it.

A digest is over the values, in one spelling: columns by name, maps by key, numbers and bytes as text. It does not depend on the
order of rows, of files, or on how an engine spells a type.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal

from laminar_delta.codec import xxh3_hex


def row_digest(row: Mapping[str, object], *, without: Iterable[str] = ()) -> str:
    """The digest of one row, leaving out the columns named."""
    left_out = set(without)
    return xxh3_hex(_spell({name: value for name, value in row.items() if name not in left_out}))


def rows_digest(rows: Iterable[Mapping[str, object]], *, without: Iterable[str] = ()) -> str:
    """The digest of a set of rows, in whatever order they come."""
    left_out = list(without)
    return xxh3_hex("\n".join(sorted(row_digest(row, without=left_out) for row in rows)).encode())


def _spell(value: object) -> bytes:
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    if value is None or isinstance(value, (str, int)):
        # Nearly all there are.
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.timezone.utc).isoformat(timespec="microseconds")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        # Arrow gives a map as key and value pairs, in the order the writer happened to use.
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return {"map": sorted(([str(key), _plain(item)] for key, item in value), key=lambda pair: str(pair[0]))}
        return [_plain(item) for item in value]
    return value
