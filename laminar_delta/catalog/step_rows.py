"""Rows of steps as callers and tables have them: in the columns of a step, each a step that a session can commit.

What is no step is refused and never rounded, cut off or read as something near it: a position that nobody was at is a loss.
The statements in `laminar_delta/sql` look at each row by the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from operator import index
from types import NoneType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.catalog.buffer import checkpoint_of
from laminar_delta.catalog.names import check_name
from laminar_delta.catalog.position_rows import RESULT, SOURCE
from laminar_delta.catalog.tables import SESSION_STEPS
from laminar_delta.errors import InvalidInputError
from laminar_delta.model.ids import check_ordering_number, check_u64

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row

CONFIG = "config"
"""The kind of a step that sets the config hash."""
CLEAR = "clear"
"""The kind of a step that removes everything first."""

COLUMNS = ("kind", "source", "sequence", "position", "config_hash")
"""What a step has."""
_NUMBERS = ("sequence", "config_hash")
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)
_SCHEMA = pa.schema([SESSION_STEPS.schema.field(name) for name in COLUMNS])


def as_table(rows: Any) -> pa.Table:
    """Rows in the columns of a step; what is left out is null, what is unknown is refused."""
    if hasattr(rows, "toArrow"):  # a Spark DataFrame, known here by what it can do
        rows = rows.toArrow()
    try:
        if isinstance(rows, list):
            _check_values(rows)
            unknown = {name for row in rows for name in row} - set(COLUMNS)
            table = pa.Table.from_pylist(rows, schema=_SCHEMA)
        else:
            table = rows if isinstance(rows, pa.Table) else pa.table(rows)
            unknown = set(table.column_names) - set(COLUMNS)
            _check_columns(table)
        if unknown:
            raise InvalidInputError(
                f"a step has no column {sorted(unknown)[0]!r}", expected=list(COLUMNS), found=sorted(unknown)
            )
        columns = [
            table[name].cast(wanted.type) if name in table.column_names else pa.nulls(table.num_rows, wanted.type)
            for name, wanted in zip(COLUMNS, _SCHEMA, strict=True)
        ]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"these are no steps: {error}", expected=str(_SCHEMA), found=type(rows).__name__
        ) from error
    return pa.table(columns, schema=_SCHEMA)


def checked_rows(table: pa.Table) -> list[Row]:
    """The rows, each with its kind.

    Raises:
        InvalidInputError: One is no step, also where another would count in its place.
    """
    rows: list[Row] = [{**row, "kind": SOURCE if row["kind"] is None else row["kind"]} for row in table.to_pylist()]
    for row in rows:
        kind = row["kind"]
        if kind == CONFIG:
            _require(row, "config_hash")
            check_u64("config hash", int(row["config_hash"]))
        elif kind == RESULT:
            _require(row, "source", "sequence")
            check_name("a query", row["source"])
            check_ordering_number("result sequence", row["sequence"])
        elif kind == SOURCE:
            _require(row, "source", "sequence")
            check_name("a source", row["source"])
            checkpoint_of(row["source"], row["sequence"], row["position"])
        elif kind != CLEAR:
            raise InvalidInputError(
                f"{kind!r} is no kind of step", expected=[SOURCE, RESULT, CONFIG, CLEAR], found=kind
            )
    return rows


def _require(row: Row, *columns: str) -> None:
    missing = [name for name in columns if row[name] is None]
    if missing:
        raise InvalidInputError(
            f"a step of kind {row['kind']!r} has no {missing[0]}", expected=missing[0], found=dict(row)
        )


def _check_values(rows: list[Any]) -> None:
    """Arrow cuts off what is behind the point, and takes a text for its bytes."""
    for row in rows:
        if not isinstance(row, Mapping):
            continue
        for name in _NUMBERS:
            if not _is_whole(row.get(name)):
                raise InvalidInputError(
                    f"the {name} of a step is no whole number", expected="an integer", found=str(row[name])
                )
        if not isinstance(row.get("position"), (bytes, bytearray, memoryview, NoneType)):
            raise _no_bytes(type(row["position"]).__name__)


def _no_bytes(found: str) -> InvalidInputError:
    return InvalidInputError(
        "the position of a step is no bytes",
        expected="bytes",
        found=found,
        next_step="Encode it as whoever resumes there reads it.",
    )


def _is_whole(value: object) -> bool:
    if value is None:
        return True
    if isinstance(value, Decimal):  # as a hash comes out of a table
        return value.is_finite() and value == value.to_integral_value()
    try:
        index(value)  # type: ignore[arg-type]  # whether it is one is what is asked
    except TypeError:
        return False
    return not isinstance(value, bool)


def _check_columns(table: pa.Table) -> None:
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise InvalidInputError(f"a step has several columns {twice[0]!r}", expected=list(COLUMNS), found=twice)
    for name in _NUMBERS:
        kind = table[name].type if name in table.column_names else pa.null()
        is_whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
        if not (is_whole or pa.types.is_null(kind)):
            raise InvalidInputError(
                f"the {name} of a step is no whole number",
                expected="integers",
                found=str(kind),
                next_step="Give a column of integers; of pandas one of the type `Int64`, which can have gaps.",
            )
    position = table["position"].type if "position" in table.column_names else pa.null()
    if not any(is_one(position) for is_one in _BYTES):
        raise _no_bytes(str(position))
