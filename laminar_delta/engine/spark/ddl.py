"""Table definitions as Spark SQL text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.engine.predicate import Dialect, quote_name, quote_text
from laminar_delta.errors import ErrorCode, InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.engine.request import TableSpec

SQL = Dialect.SPARK

_PLAIN = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


def create_table(reference: str, spec: TableSpec) -> str:
    """The statement that makes a table unless it is there."""
    # NOT NULL only at the top: Delta refuses it inside arrays and maps, and SQL has no word for an array's elements.
    columns = ", ".join(
        f"{quote_name(field.name, SQL)} {sql_type(field.type)}{'' if field.nullable else ' NOT NULL'}"
        for field in spec.schema
    )
    parts = [f"CREATE TABLE IF NOT EXISTS {reference} ({columns}) USING DELTA"]
    if spec.partition_by:
        parts.append(f"PARTITIONED BY ({', '.join(quote_name(name, SQL) for name in spec.partition_by)})")
    if spec.comment:
        parts.append(f"COMMENT {quote_text(spec.comment, SQL)}")
    if spec.properties:
        pairs = (f"{quote_text(name, SQL)} = {quote_text(value, SQL)}" for name, value in spec.properties.items())
        parts.append(f"TBLPROPERTIES ({', '.join(pairs)})")
    return " ".join(parts)


def sql_type(kind: pa.DataType) -> str:
    """The Spark SQL type whose values are exactly those of an Arrow type."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, pa.Decimal128Type):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, pa.MapType):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if isinstance(kind, (pa.ListType, pa.LargeListType)):
        return f"ARRAY<{sql_type(kind.value_type)}>"
    if isinstance(kind, pa.StructType):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return f"STRUCT<{', '.join(f'{quote_name(field.name, SQL)}: {sql_type(field.type)}' for field in fields)}>"
    raise InvalidInputError(
        f"Delta on Spark has no type for Arrow's {kind}",
        code=ErrorCode.UNSUPPORTED,
        expected="signed integers, decimals, floats, text, bytes, dates, UTC microseconds, and lists, maps, structs of them",
        found=str(kind),
    )
