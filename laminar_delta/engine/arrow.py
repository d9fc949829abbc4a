"""Arrow schemas and rows as all engines mean them: which columns, which types, and casting that loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from laminar_delta.engine.kernels import cast
from laminar_delta.errors import FormatError, InvalidInputError


def conform(data: pa.Table, schema: pa.Schema, table: str) -> pa.Table:
    """The rows of `data` in the columns, order and types of `schema`."""
    given, wanted = set(data.column_names), set(schema.names)
    if given != wanted or len(data.column_names) != len(schema.names):
        raise InvalidInputError(
            f"rows for table {table!r} have other columns: missing {sorted(wanted - given)}, unknown {sorted(given - wanted)}",
            expected=schema.names,
            found=data.column_names,
        )
    ordered = data.select(schema.names)
    for name in schema.names:
        if schema.field(name).type != ordered.schema.field(name).type and _is_unsigned(ordered.schema.field(name).type):
            # A u64 above 2^63-1 would fail as an Arrow overflow further down; the limit is worth naming.
            _check_signed(ordered.column(name), name, table)
    try:
        return cast_table(ordered, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInputError(
            f"rows for table {table!r} do not fit its columns: {error}",
            expected=str(schema),
            found=str(ordered.schema),
        ) from error


def _is_unsigned(kind: pa.DataType) -> bool:
    return bool(pa.types.is_unsigned_integer(kind))


def _check_signed(column: pa.ChunkedArray[Any], name: str, table: str) -> None:
    top = max((value for value in column.to_pylist() if value is not None), default=0)
    if top > 2**63 - 1:
        raise InvalidInputError(
            f"column {name!r} of table {table!r} holds {top}; a BIGINT ends at {2**63 - 1}",
            expected=2**63 - 1,
            found=top,
        )


def cast_table(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """`data` with the types of `schema`, column by column; metadata and nullability are the schema's."""
    columns = [
        column if column.type == field.type else cast(column, field.type)
        for column, field in zip(data.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def cast_stream(
    source: Iterable[pa.RecordBatch], schema: pa.Schema, translating: Callable[[], AbstractContextManager[None]]
) -> pa.RecordBatchReader:
    """A stream in the types of `schema`, cast batch by batch as it is read, its errors translated as they come."""

    def batches() -> Iterator[pa.RecordBatch]:
        with translating():
            for batch in source:
                yield from cast_table(pa.Table.from_batches([batch]), schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def canonical(schema: pa.Schema) -> pa.Schema:
    """The schema in the one spelling all engines agree on: plain strings and binaries, unnamed list items, no metadata."""
    return pa.schema([pa.field(field.name, _canonical_type(field.type)) for field in schema])


def _canonical_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(_canonical_type(kind.key_type), _canonical_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_canonical_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _canonical_type(field.type)) for field in kind])
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def answered(data: pa.Table) -> pa.Table:
    """The answer to a query in types that do not depend on which engine computed it: numbers of full width, times in UTC."""
    schema = pa.schema([pa.field(field.name, _answer_type(field.type)) for field in canonical(data.schema)])
    columns = [
        # Not safe only in that a time loses what is below a microsecond, which no table holds.
        column if column.type == field.type else column.cast(field.type, safe=not pa.types.is_timestamp(field.type))
        for column, field in zip(data.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _answer_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_dictionary(kind):
        return _answer_type(_canonical_type(kind.value_type))
    return kind


def project(schema: pa.Schema, columns: Sequence[str] | None, table: str) -> pa.Schema:
    """The schema of a scan, refusing columns the table does not have."""
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise InvalidInputError(f"table {table!r} has no column {unknown[0]!r}", expected=schema.names, found=unknown)
    return pa.schema([schema.field(name) for name in columns])


def check_same_table(
    table: str, wanted: pa.Schema, found: pa.Schema, wanted_partitions: Sequence[str], found_partitions: Sequence[str]
) -> None:
    """Raises `FormatError` when an existing table is not the one asked for. Nullability is not compared: Spark drops it."""
    if [(f.name, f.type) for f in wanted] != [(f.name, f.type) for f in found]:
        raise FormatError(f"table {table!r} exists with other columns", expected=str(wanted), found=str(found))
    if list(wanted_partitions) != list(found_partitions):
        raise FormatError(
            f"table {table!r} exists with another partitioning",
            expected=list(wanted_partitions),
            found=list(found_partitions),
        )
