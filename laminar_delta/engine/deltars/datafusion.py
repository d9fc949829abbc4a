"""Queries answered by DataFusion, through delta-rs: over Delta tables, or over rows that are put into some first."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from laminar_delta.engine.deltars.faults import answering, reading
from laminar_delta.engine.sql import not_a_query


def query(sql: str, tables: Mapping[str, DeltaTable], views: Mapping[str, str], known: Sequence[str]) -> pa.Table:
    """Answers a query over tables that were opened for it."""
    builder = QueryBuilder()
    with reading(", ".join(tables)):
        for name, handle in tables.items():
            builder.register(name, handle)
        for name, body in views.items():
            # A view of this query alone: it ends with the builder.
            builder.execute(f"CREATE VIEW {name} AS {body}")
    with answering(list(tables), known):
        _check_plan(builder, sql, known)
        stream = builder.execute(sql)
        # The planned columns, because an answer without rows may come without a batch.
        planned: Any = stream.schema
        # Batch by batch in Python, as a scan is read: a panic on a rotten file is then an exception.
        return pa.Table.from_batches([pa.record_batch(batch) for batch in stream], pa.schema(planned))


def _check_plan(builder: QueryBuilder, sql: str, known: Sequence[str]) -> None:
    """Refuses what is planned but is no query (`SELECT … INTO`), before it runs."""
    for batch in builder.execute(f"EXPLAIN {sql}"):
        for step in pa.record_batch(batch).to_pylist():
            if step["plan_type"].endswith("error"):
                raise not_a_query(step["plan"], known)


def query_rows(sql: str, tables: Mapping[str, pa.Table], views: Mapping[str, str], known: Sequence[str]) -> pa.Table:
    """The same over rows in memory. delta-rs registers Delta tables only, so they become some for as long as it takes."""
    with tempfile.TemporaryDirectory(prefix="laminar-delta-") as place:
        for name, rows in tables.items():
            write_deltalake(f"{place}/{name}", rows)
        return query(sql, {name: DeltaTable(f"{place}/{name}") for name in tables}, views, known)
