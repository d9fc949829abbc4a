"""Rows of an open table, read by DataFusion: whichever engine commits to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from laminar_delta.engine.arrow import canonical, cast_stream, project
from laminar_delta.engine.predicate import Dialect, Predicate, quote_name
from laminar_delta.errors import FormatError

SQL = Dialect.DATAFUSION


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
    query = f"SELECT {names} FROM t" + (f" WHERE {where.sql(SQL)}" if where is not None else "")
    with reading():
        stream = QueryBuilder().register("t", handle).execute(query)
    # Batch by batch in Python: handing the stream itself to Arrow's C interface would make a panic on a rotten file,
    # which arrives here as an exception, abort the process.
    batches = (pa.record_batch(batch) for batch in stream)
    return cast_stream(batches, schema, reading)
