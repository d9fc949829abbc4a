"""One data file looked at by itself: there, as long as the log says, readable to its end, with the rows the log tells of."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.transaction import AddAction, create_table_with_add_actions

from laminar_delta.engine.arrow import canonical, cast_table
from laminar_delta.engine.deltars.faults import reading
from laminar_delta.errors import LaminarDeltaError

if TYPE_CHECKING:
    from deltalake import Schema

Intact = Callable[[Mapping[str, Any]], bool]
Action = Mapping[str, Any]
"""A file as the log has it, in delta-rs's flat words."""

PARTITION, LEAST, MOST = "partition.", "min.", "max."
MISSING = "is missing"
OTHERWISE = "has other rows than the log tells"
_PLAIN = 30
"""Texts up to this long stand in the log as they are, longer ones cut off."""


class Looked:
    """What was found of files so far, which stands as long as they stay as they are."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], str | None] = {}
        self.whole: set[tuple[Path, int, int]] = set()
        """Files of logs with nothing wrong: path, size, and time of change."""

    def problem(self, path: Path, action: Action) -> str | None:
        """What is wrong with a data file, in words."""
        try:
            there = path.stat()
        except FileNotFoundError:
            return MISSING
        if there.st_size != action["size_bytes"]:
            return f"has {there.st_size} bytes instead of {action['size_bytes']}"
        key = path, there.st_size, there.st_mtime_ns, action.get("num_records"), *bounds_of(action).items()
        if key not in self._found:
            self._found[key] = _unreadable(path) or _out_of_bounds(path, action)
        return self._found[key]


def partition_of(action: Action) -> dict[str, Any]:
    """By column the partition a file is in."""
    return {name.removeprefix(PARTITION): value for name, value in action.items() if name.startswith(PARTITION)}


def bounds_of(action: Action) -> dict[str, tuple[Any, Any]]:
    """By column the least and the greatest value in a file, where the log tells them whole."""
    found = {name: (value, value) for name, value in partition_of(action).items() if value is not None}
    for key, least in action.items():
        name = key.removeprefix(LEAST)
        most = action.get(f"{MOST}{name}")
        if key.startswith(LEAST) and _is_plain(least) and _is_plain(most):
            found[name] = least, most
    return found


def refused(path: Path, action: Action, schema: Schema, partition_by: list[str]) -> str | None:
    """What delta-rs says of a file that Arrow finds nothing wrong with: it is put into a table of its own and read."""
    values = {name: str(value) for name, value in partition_of(action).items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="laminar-delta-") as place:
        Path(place, "file.parquet").symlink_to(path)
        add = AddAction("file.parquet", path.stat().st_size, values, 0, True, "{}")
        create_table_with_add_actions(place, schema, [add], partition_by=partition_by)
        try:
            with reading(path.name):
                for _ in QueryBuilder().register("t", DeltaTable(place)).execute("SELECT * FROM t"):
                    pass
        except LaminarDeltaError as error:
            return f"cannot be read ({error.found})"
    return None


def changed(path: Path, action: Action, schema: pa.Schema, intact: Intact) -> str | None:
    """Whether a file has rows that are not as they were written, in words."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    partition = partition_of(action)
    wanted = pa.schema([field for field in schema if field.name not in partition])
    unknown = set(wanted.names) - set(file.schema_arrow.names)
    if unknown:
        return f"has no column {min(unknown)!r}"
    for batch in file.iter_batches(columns=wanted.names):
        try:
            rows = cast_table(pa.Table.from_batches([batch]).select(wanted.names), wanted).to_pylist()
            whole = all(intact({**partition, **row}) for row in rows)
        except (pa.ArrowException, TypeError, ValueError):
            whole = False  # what cannot even be looked at was not written so
        if not whole:
            return "has rows that are not as they were written"
    return None


def _unreadable(path: Path) -> str | None:
    # Imported where it is used, as below: it takes as long as all else that opening a catalog imports.
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path).iter_batches():
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"cannot be read ({' '.join(str(error).split())})"
    return None


def _out_of_bounds(path: Path, action: Action) -> str | None:
    """Whether a file has more or other rows than its statistics say: readers pass over it by those."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    if action.get("num_records") not in (None, file.metadata.num_rows):
        return OTHERWISE
    for name, (least, most) in bounds_of(action).items():
        if name not in file.schema_arrow.names:
            continue
        rows = file.read(columns=[name])
        # A merge of delta-rs writes views, of which Arrow knows no bounds.
        found: Any = pc.min_max(cast_table(rows, canonical(rows.schema)).column(name)).as_py()
        if found["min"] is not None and not least <= found["min"] <= found["max"] <= most:
            return OTHERWISE
    return None


def _is_plain(bound: object) -> bool:
    return isinstance(bound, int) or (isinstance(bound, str) and len(bound) < _PLAIN)
