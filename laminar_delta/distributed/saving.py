"""Saving a frame: executors write the files, the driver commits them in one commit. No state passes through the driver."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from deltalake.transaction import AddAction
from pyspark.errors import PySparkException

from laminar_delta.catalog.attempt import Part
from laminar_delta.catalog.state.staging import StagedState, staged_state
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.distributed.cutting import WRITTEN, Order, write_parts
from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.errors import InvalidInputError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.catalog.state.policy import StatePolicy
    from laminar_delta.catalog.state.staging import Key, Layouts
    from laminar_delta.engine.base import Engine

COLUMNS = {"operator": ("string",), "partition": ("int", "bigint", "smallint", "tinyint"), "payload": ("binary",)}
"""What a state frame has; `sequence` may be added to give a state in ordered pieces."""
SEQUENCE = "sequence"


def stage_frame(
    engine: Engine, attempt: Attempt, frame: DataFrame, *, policy: StatePolicy, upon: Layouts
) -> StagedState:
    """Stages the states in a frame: a row for each operator partition, or several in the order of `sequence`.

    Raises:
        InvalidInputError: The frame has other columns, or an operator partition comes twice.
        StorageError: A task failed; nothing was committed.
    """
    if not isinstance(engine, EmbeddedEngine) or engine.root is None:
        raise InvalidInputError(
            "executors can write to a catalog in a directory that the embedded engine commits to",
            expected="a path",
            found=engine.location,
        )
    table = OPERATOR_DELTAS.name if upon else OPERATOR_SNAPSHOTS.name
    order = Order(attempt=attempt, policy=policy, upon=dict(upon), table=table, location=str(engine.root))
    written = _run(_prepared(frame), order)
    layouts = _layouts(written)
    if not written:
        return staged_state(engine, attempt, [], layouts)
    made = engine.add_files(
        table,
        [AddAction(**json.loads(row["action"])) for row in written],
        metadata=attempt.metadata("stage"),
        key={"attempt_id": attempt.attempt_id, "part_id": written[0]["part_id"]},
    )
    assert made.version is not None
    parts = [
        Part(table=table, part_id=row["part_id"], version=made.version, rows=row["rows"], digest=row["digest"])
        for row in written
    ]
    return staged_state(engine, attempt, parts, layouts)


def _prepared(frame: DataFrame) -> DataFrame:
    """The frame with its columns checked and, where states come in pieces, the pieces of each together and in order."""
    found = dict(frame.dtypes)
    wrong = {name: found.get(name) for name, kinds in COLUMNS.items() if found.get(name) not in kinds}
    extra = sorted(found.keys() - {*COLUMNS, SEQUENCE})
    if wrong or extra:
        raise InvalidInputError(
            f"a state frame has other columns: {', '.join(sorted(wrong) or extra)}",
            expected={name: kinds[0] for name, kinds in COLUMNS.items()},
            found=found,
        )
    if SEQUENCE not in found:
        return frame.select(*COLUMNS)
    together = frame.repartition("operator", "partition").sortWithinPartitions("operator", "partition", SEQUENCE)
    return together.select(*COLUMNS)


def _run(frame: DataFrame, order: Order) -> list[dict[str, Any]]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_parts(order, batches)

    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        rows = frame.mapInArrow(task, from_arrow_schema(WRITTEN)).collect()
    except PySparkException as error:
        if InvalidInputError.__name__ in str(error):
            raise InvalidInputError(f"the state frame cannot be saved: {_last_line(error)}") from error
        raise StorageError(f"executors could not write the state: {_last_line(error)}") from error
    return [row.asDict() for row in rows]


def _last_line(error: PySparkException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line]
    return (named or lines)[-1]


def _layouts(written: list[dict[str, Any]]) -> dict[Key, Layout]:
    found: dict[Key, Layout] = {}
    for row in written:
        for layout in pickle.loads(row["layouts"]):  # from our own executors
            key = layout.operator, layout.partition
            if key in found:
                raise InvalidInputError(
                    f"partition {key[1]} of operator {key[0]!r} comes more than once in the state frame",
                    expected="one row, or pieces numbered by `sequence`",
                    found="several",
                )
            found[key] = layout
    return found
