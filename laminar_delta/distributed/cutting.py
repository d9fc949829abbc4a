"""What executors do to save state: their rows of a frame become chunks, in files that the driver will commit or forget.

This module runs in executors: it commits nothing, and everything it needs comes with the order. A task that is lost or
repeated leaves files that no commit names.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.catalog.digest import rows_digest
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.state.again import stored_blocks
from laminar_delta.catalog.state.chunks import rows_table
from laminar_delta.catalog.state.given import given_key
from laminar_delta.catalog.state.packing import Packer
from laminar_delta.catalog.state.staging import Cutting
from laminar_delta.catalog.tables import BY_NAME, OPERATOR_SNAPSHOTS, PAYLOADS
from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.embedded.payloads import files_of, write_files
from laminar_delta.errors import InvalidInputError, StorageError
from laminar_delta.masking import masked
from laminar_delta.model.ids import new_attempt_id

if TYPE_CHECKING:
    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.catalog.state.policy import StatePolicy
    from laminar_delta.codec import Block, StateSource

SEQUENCE = "sequence"
"""The column that numbers the pieces of states that come in several rows."""
BATCH_BYTES = 4 << 20
"""About how much one Arrow batch carries from Python to the JVM."""
WRITTEN = pa.schema(
    dict[str, pa.DataType](
        table=pa.string(),
        part_id=pa.string(),
        rows=pa.int64(),
        digest=pa.string(),
        action=pa.string(),
        layouts=pa.binary(),
    )
)
"""What a task says of each file it wrote: whose it is, the part it is, the action to commit, and the layouts that end in it."""
TABLE = "table"
"""The column that says which state table a row is for, where rows of both come together."""
CUT = OPERATOR_SNAPSHOTS.schema.append(pa.field(TABLE, pa.string()))
"""Rows of the state tables, which have the same columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to do, as it travels to executors."""

    attempt: Attempt
    policy: StatePolicy
    upon: Mapping[Key, Layout]
    location: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What opens the object store. Credentials among them: for executors, never for a log."""


def cut_rows(
    order: Order,
    batches: Iterable[pa.RecordBatch],
    again: Callable[[Layout, set[bytes]], Iterator[Block]] | None = None,
) -> Iterator[tuple[str, dict[str, Any], Layout | None]]:
    """The rows that a task's states make, each with the state table it is for; with the last of each state its layout.

    `again` reads blocks of what a state is stored upon, where a task can: see `state.again`.

    Raises:
        InvalidInputError: A value is null or none that an operator or a partition can have, or the rows of an operator
            partition are not one, or pieces numbered one by one from 0.
    """
    with Packer() as packer:
        for found, rows in groupby(_rows(batches), key=lambda row: (row["operator"], row["partition"])):
            key = given_key(*found)
            source = _source(_pieces(key, rows))
            cutting = Cutting(order.attempt, *key, source, order.policy, order.upon.get(key), again)
            for row in cutting.rows(packer):
                yield cutting.table, row, cutting.layout


def write_parts(order: Order, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes a task's states among the files of the state tables; says what it wrote."""
    waiting: dict[str, _Waiting] = {}
    reading = Reading(EmbeddedEngine(order.location, storage_options=order.options))
    for table, row, layout in cut_rows(order, batches, partial(stored_blocks, reading, order.attempt.pipeline)):
        part = waiting.setdefault(table, _Waiting())
        part.rows.append(row)
        part.size += len(row["data"]) + len(row["names"])
        if layout is not None:
            part.layouts.append(layout)
        if part.size >= order.policy.part_bytes:
            yield _write(order, table, waiting.pop(table))
    for table, part in waiting.items():
        yield _write(order, table, part)


@dataclass(slots=True)
class _Waiting:
    """What the next file of a table will hold."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    size: int = 0


def chunk_batches(order: Order, part_id: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task's states as rows of the state tables, for Spark to append; see `CUT`."""
    waiting: list[dict[str, Any]] = []
    size = 0
    for table, row, _ in cut_rows(order, batches):
        waiting.append({**row, "part_id": part_id, TABLE: table})
        size += len(row["data"]) + len(row["names"])
        if size >= BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(waiting, schema=CUT)
            waiting, size = [], 0
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema=CUT)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for number in range(batch.num_rows):
            # One by one: as Python's, all payloads of a batch would be in memory twice.
            (row,) = batch.slice(number, 1).to_pylist()
            if any(value is None for value in row.values()):
                raise InvalidInputError(
                    "a row of the state frame has no operator, partition or payload, or no sequence",
                    expected="no nulls",
                    found={name: value for name, value in row.items() if name != "payload"},
                )
            yield row


def _source(pieces: Iterator[bytes]) -> StateSource:
    """A state in one row as the bytes it is: what changed of it can be measured beforehand, and of pieces it cannot."""
    # There is a row, or nobody would ask.
    first = next(pieces)
    second = next(pieces, None)
    return first if second is None else chain((first, second), pieces)


def _pieces(key: Key, rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """The payloads of one state. Put together from rows of two states, or with a piece missing, it would be nobody's."""
    before: dict[str, Any] | None = None
    for row in rows:
        if before is None and row.get(SEQUENCE, 0) != 0:
            raise InvalidInputError(
                f"the beginning of partition {key[1]} of operator {key[0]!r} is missing in the state frame",
                expected="sequence 0 first",
                found=row[SEQUENCE],
                next_step="Number the pieces of each state one by one from 0, in order.",
            )
        if before is not None and (SEQUENCE not in row or row[SEQUENCE] == before[SEQUENCE]):
            raise more_than_once(key)
        if before is not None and row[SEQUENCE] != before[SEQUENCE] + 1:
            raise InvalidInputError(
                f"pieces of partition {key[1]} of operator {key[0]!r} are missing in the state frame",
                expected=f"sequence {before[SEQUENCE] + 1} after {before[SEQUENCE]}",
                found=row[SEQUENCE],
                next_step="Number the pieces of each state one by one from 0, in order.",
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


def _write(order: Order, table: str, part: _Waiting) -> pa.RecordBatch:
    spec = BY_NAME[table]
    part_id = new_attempt_id()
    own = [{**row, "part_id": part_id} for row in part.rows]
    arrow = rows_table(own, spec.schema)
    stats = spec.properties["delta.dataSkippingStatsColumns"].split(",")
    try:
        (action,) = write_files(files_of(order.location, table, order.options), arrow, spec.partition_by, stats)
    except Exception as error:  # noqa: BLE001  # whatever a store answers with
        # Not chained: Spark hands on the whole text of it, and a server may repeat in its answer what it was asked with.
        raise StorageError(
            f"a file of table {table!r} cannot be written: {' '.join(masked(str(error), order.options).split())}"
        ) from None
    said = {
        "table": table,
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
        "layouts": pickle.dumps(part.layouts),
    }
    return pa.RecordBatch.from_pylist([said], schema=WRITTEN)
