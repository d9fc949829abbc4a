"""Arrow types by their Delta SQL names, for comparing code with documents."""

import pyarrow as pa


def sql_name(kind: pa.DataType) -> str:
    """The name `docs/format.md` uses."""
    if pa.types.is_list(kind):
        return f"ARRAY<{sql_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_name(kind.key_type)},{sql_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        inner = ", ".join(f"{field.name}: {sql_name(field.type)}" for field in kind)
        return f"STRUCT<{inner}>"
    names = {
        pa.string(): "STRING",
        pa.int64(): "BIGINT",
        pa.int32(): "INT",
        pa.bool_(): "BOOLEAN",
        pa.float64(): "DOUBLE",
        pa.binary(): "BINARY",
        pa.timestamp("us", tz="UTC"): "TIMESTAMP",
        pa.decimal128(20, 0): "DECIMAL(20,0)",
    }
    return names[kind]
