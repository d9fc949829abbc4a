"""Rows of an open table, read by DataFusion: whichever engine commits to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from laminar_delta.engine.arrow import canonical, cast_stream, project
from laminar_delta.engine.predicate import Apart, Dialect, Predicate, quote_name
from laminar_delta.errors import FormatError

SQL = Dialect.DATAFUSION
AT_ONCE = 8
"""How many conditions that are apart are looked for at a time."""


def schema_of(handle: DeltaTable) -> pa.Schema:
    """The columns at the version a handle stands at."""
    try:
        arrow: Any = handle.schema().to_arrow()  # an arro3 schema, which Arrow takes through its C interface
        return canonical(pa.schema(arrow))
    except (pa.ArrowException, TypeError) as error:
        raise FormatError(f"the columns of {handle.table_uri} cannot be read as Arrow: {error}") from error


def scan(
    handle: DeltaTable,
    table: str,
    columns: Sequence[str] | None,
    where: Predicate | None,
    reading: Callable[[], AbstractContextManager[None]],
) -> pa.RecordBatchReader:
    """See `Engine.scan`; always streamed. `reading` translates what goes wrong."""
    schema = project(schema_of(handle), columns, table)
    names = ", ".join(quote_name(name, SQL) for name in schema.names)
    # One as the other: what could not even be planned is told before a row is asked for.
    first, *others = _queries(f"SELECT {names} FROM t", where)
    with reading():
        builder = QueryBuilder().register("t", handle)
        stream = builder.execute(first)
    streams = chain((stream,), map(builder.execute, others))
    # Batch by batch in Python: handing the stream itself to Arrow's C interface would make a panic on a rotten file,
    # which arrives here as an exception, abort the process.
    batches = (pa.record_batch(batch) for found in streams for batch in found)
    return cast_stream(batches, schema, reading)


def _queries(select: str, where: Predicate | None) -> list[str]:
    """What to ask, one after the other. DataFusion leaves out no row group for conditions of which any may hold, so those that
    are apart are looked for by themselves, some at a time: each holds a row group in memory.
    """
    if not isinstance(where, Apart) or not where.parts:
        return [select + (f" WHERE {where.sql(SQL)}" if where is not None else "")]
    each = [f"{select} WHERE {part.sql(SQL)}" for part in where.parts]
    return [" UNION ALL ".join(each[at : at + AT_ONCE]) for at in range(0, len(each), AT_ONCE)]
