"""The tables the suite works on: between them every column type, layout and property the catalog uses."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

from laminar_delta.engine.request import TableSpec

U64 = pa.decimal128(20, 0)
MAX_U64 = 2**64 - 1
MAX_BIGINT = 2**63 - 1

PROPERTIES = {
    "delta.enableDeletionVectors": "false",
    "delta.checkpointPolicy": "classic",
    "delta.isolationLevel": "Serializable",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "50",
}


def schema_of(**columns: pa.DataType) -> pa.Schema:
    """A schema by column name."""
    return pa.schema(list(columns.items()))


EVERY_TYPE = TableSpec(
    name="every_type",
    schema=schema_of(
        id=pa.int64(),
        small=pa.int32(),
        flag=pa.bool_(),
        text=pa.string(),
        whole=U64,
        at=pa.timestamp("us", tz="UTC"),
        payload=pa.binary(),
        names=pa.list_(pa.string()),
        positions=pa.list_(U64),
        offsets=pa.map_(pa.string(), pa.string()),
        watermarks=pa.map_(pa.string(), pa.int64()),
        records=pa.list_(pa.struct([("operator", pa.string()), ("input", U64), ("data", pa.binary())])),
        nested=pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.list_(pa.int64())))]),
    ),
    properties={**PROPERTIES, "delta.dataSkippingStatsColumns": "id,text"},
)

LINES = TableSpec(
    name="lines",
    schema=schema_of(pipeline=pa.string(), id=pa.int64(), attempt=pa.string(), payload=pa.binary()),
    properties={**PROPERTIES, "delta.dataSkippingStatsColumns": "pipeline,id,attempt"},
)

PARTITIONED = TableSpec(
    name="partitioned",
    schema=schema_of(pipeline=pa.string(), checkpoint_id=pa.int64(), value=pa.int64()),
    partition_by=("pipeline", "checkpoint_id"),
    properties={**PROPERTIES, "delta.dataSkippingStatsColumns": "value"},
)

NASTY_NAMES = (
    "a/b c=d%é:",
    "..",
    ".",
    "p" * 200,
    'it\'s "quoted" `and` \\slashed\\',
    " lead and trail ",
    "%2F",
    "NULL",
    "日本😀",
    "new\nline\ttab",
    "x' OR '1'='1",
)


def line(pipeline: str, number: int, attempt: str = "", payload: bytes = b"") -> pa.Table:
    """One row of `LINES`."""
    row = {"pipeline": pipeline, "id": number, "attempt": attempt, "payload": payload}
    return pa.Table.from_pylist([row], schema=LINES.schema)


def part(pipeline: str, checkpoint_id: int, value: int = 0) -> pa.Table:
    """One row of `PARTITIONED`."""
    row = {"pipeline": pipeline, "checkpoint_id": checkpoint_id, "value": value}
    return pa.Table.from_pylist([row], schema=PARTITIONED.schema)


def every_type_rows() -> list[dict[str, Any]]:
    """Rows of `EVERY_TYPE`: full, at the edges, all empty, all null."""
    utc = dt.timezone.utc
    full = {
        "id": MAX_BIGINT,
        "small": -(2**31),
        "flag": True,
        "text": "tab\t \"quote\" 'single' \\ é 日本 😀",
        "whole": Decimal(MAX_U64),
        "at": dt.datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=utc),
        "payload": bytes(range(256)),
        "names": ["b", "a", "a", "", "é"],
        "positions": [Decimal(0), Decimal(MAX_U64), Decimal(2**53 + 1)],
        "offsets": [("0", "1500"), ("ü 😀", "")],
        "watermarks": [("s", -(2**63)), ("t", MAX_BIGINT)],
        "records": [
            {"operator": "join", "input": Decimal(MAX_U64), "data": b"\x00\xff"},
            {"operator": "", "input": Decimal(0), "data": b""},
        ],
        "nested": {"a": 1, "b": [("k", [1, 2]), ("empty", [])]},
    }
    edge = {
        **full,
        "id": -(2**63),
        "small": 2**31 - 1,
        "flag": False,
        "whole": Decimal(MAX_U64 - 1),
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=utc),
        "records": [None, {"operator": None, "input": None, "data": None}],
        "nested": {"a": None, "b": None},
    }
    empty = {
        "id": 0,
        "small": 0,
        "flag": False,
        "text": "",
        "whole": Decimal(0),
        "at": dt.datetime(1970, 1, 1, tzinfo=utc),
        "payload": b"",
        "names": [],
        "positions": [],
        "offsets": [],
        "watermarks": [],
        "records": [],
        "nested": {"a": 0, "b": []},
    }
    null: dict[str, Any] = dict.fromkeys(EVERY_TYPE.schema.names)
    return [full, edge, empty, {**null, "id": 1}]


def ids(rows: pa.Table) -> list[int]:
    """The `id` column, in order."""
    return sorted(row["id"] for row in rows.to_pylist())
