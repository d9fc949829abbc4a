"""What executors do to save state: their rows of a frame become chunks, in files that the driver will commit or forget.

This module runs in executors: it opens no catalog, and everything it needs comes with the order. A task that is lost or
repeated leaves files that no commit names.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.catalog.digest import rows_digest
from laminar_delta.catalog.state.chunks import rows_table
from laminar_delta.catalog.state.packing import Packer
from laminar_delta.catalog.state.staging import Cutting
from laminar_delta.catalog.tables import BY_NAME, PAYLOADS
from laminar_delta.engine.embedded.payloads import write_files
from laminar_delta.errors import InvalidInputError
from laminar_delta.model.ids import new_attempt_id

if TYPE_CHECKING:
    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.catalog.state.policy import StatePolicy
    from laminar_delta.catalog.state.staging import Key

SEQUENCE = "sequence"
"""The column that numbers the pieces of states that come in several rows."""
BATCH_BYTES = 4 << 20
"""About how much one Arrow batch carries from Python to the JVM."""
WRITTEN = pa.schema(
    dict[str, pa.DataType](
        part_id=pa.string(), rows=pa.int64(), digest=pa.string(), action=pa.string(), layouts=pa.binary()
    )
)
"""What a task says of each file it wrote: the part it is, the action to commit, and the layouts that end in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to do, as it travels to executors."""

    attempt: Attempt
    policy: StatePolicy
    upon: Mapping[Key, Layout]
    table: str
    location: str


def cut_rows(order: Order, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[dict[str, Any], Layout | None]]:
    """The rows of a state table that a task's states make; with the last of each state its layout.

    Raises:
        InvalidInputError: A value is null, or the rows of an operator partition are not one, or pieces numbered one by one.
    """
    with Packer() as packer:
        for key, rows in groupby(_rows(batches), key=lambda row: (row["operator"], row["partition"])):
            cutting = Cutting(order.attempt, *key, _pieces(key, rows), order.policy, order.upon.get(key), order.table)
            for row in cutting.rows(packer):
                yield row, cutting.layout


def write_parts(order: Order, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes a task's states below the table's directory; says what it wrote."""
    waiting: list[dict[str, Any]] = []
    layouts: list[Layout] = []
    size = 0
    for row, layout in cut_rows(order, batches):
        waiting.append(row)
        size += len(row["data"]) + len(row["names"])
        if layout is not None:
            layouts.append(layout)
        if size >= order.policy.part_bytes:
            yield _write(order, waiting, layouts)
            waiting, layouts, size = [], [], 0
    if waiting:
        yield _write(order, waiting, layouts)


def chunk_batches(order: Order, part_id: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task's states as rows of the state table, for Spark to append."""
    schema = BY_NAME[order.table].schema
    waiting: list[dict[str, Any]] = []
    size = 0
    for row, _ in cut_rows(order, batches):
        waiting.append({**row, "part_id": part_id})
        size += len(row["data"]) + len(row["names"])
        if size >= BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(waiting, schema=schema)
            waiting, size = [], 0
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema=schema)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for row in batch.to_pylist():
            if any(value is None for value in row.values()):
                raise InvalidInputError(
                    "a row of the state frame has no operator, partition or payload, or no sequence",
                    expected="no nulls",
                    found={name: value for name, value in row.items() if name != "payload"},
                )
            yield row


def _pieces(key: Key, rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """The payloads of one state. Put together from rows of two states, or with a piece missing, it would be nobody's."""
    before: dict[str, Any] | None = None
    for row in rows:
        if before is not None and (SEQUENCE not in row or row[SEQUENCE] == before[SEQUENCE]):
            raise more_than_once(key)
        if before is not None and row[SEQUENCE] != before[SEQUENCE] + 1:
            raise InvalidInputError(
                f"pieces of partition {key[1]} of operator {key[0]!r} are missing in the state frame",
                expected=f"sequence {before[SEQUENCE] + 1} after {before[SEQUENCE]}",
                found=row[SEQUENCE],
                next_step="Number the pieces of each state one by one, in order.",
            )
        yield row["payload"]
        before = row


def more_than_once(key: Key) -> InvalidInputError:
    """The error for an operator partition that a frame has twice."""
    return InvalidInputError(
        f"partition {key[1]} of operator {key[0]!r} comes more than once in the state frame",
        expected="one row, or pieces numbered by `sequence`",
        found="several",
    )


def _write(order: Order, rows: list[dict[str, Any]], layouts: list[Layout]) -> pa.RecordBatch:
    spec = BY_NAME[order.table]
    part_id = new_attempt_id()
    own = [{**row, "part_id": part_id} for row in rows]
    arrow = rows_table(own, spec.schema)
    stats = spec.properties["delta.dataSkippingStatsColumns"].split(",")
    (action,) = write_files(Path(order.location) / order.table, arrow, spec.partition_by, stats)
    said = {
        "part_id": part_id,
        "rows": len(own),
        "digest": rows_digest(arrow.drop_columns(list(PAYLOADS)).to_pylist()),
        "action": json.dumps(
            {
                "path": action.path,
                "size": action.size,
                "partition_values": action.partition_values,
                "modification_time": action.modification_time,
                "data_change": action.data_change,
                "stats": action.stats,
            }
        ),
        "layouts": pickle.dumps(layouts),
    }
    return pa.RecordBatch.from_pylist([said], schema=WRITTEN)
