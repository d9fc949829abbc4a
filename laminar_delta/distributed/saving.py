"""Saving a frame: executors write the files, the driver commits them in one commit. No state passes through the driver."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake.transaction import AddAction
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from laminar_delta.catalog.attempt import Part
from laminar_delta.catalog.digest import rows_digest
from laminar_delta.catalog.state.layout import LAYOUT_CHUNK, Layout, Origin
from laminar_delta.catalog.state.staging import StagedState, staged_state
from laminar_delta.catalog.tables import BY_NAME, OPERATOR_DELTAS, OPERATOR_SNAPSHOTS, PAYLOADS
from laminar_delta.distributed.cutting import SEQUENCE, WRITTEN, Order, chunk_batches, more_than_once, write_parts
from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.predicate import col
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.errors import InvalidInputError, StorageError
from laminar_delta.model.ids import new_attempt_id

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.state.policy import StatePolicy
    from laminar_delta.catalog.state.staging import Key, Layouts
    from laminar_delta.engine.base import Engine

_WHOLE_NUMBERS = ("int", "bigint", "smallint", "tinyint")
COLUMNS = {"operator": ("string",), "partition": _WHOLE_NUMBERS, "payload": ("binary",)}
"""What a state frame has; `sequence` may be added to give a state in ordered pieces."""


def stage_frame(
    engine: Engine, attempt: Attempt, frame: DataFrame, *, policy: StatePolicy, upon: Layouts
) -> StagedState:
    """Stages the states in a frame: a row for each operator partition, or several in the order of `sequence`.

    Raises:
        InvalidInputError: The frame has other columns, an operator partition comes twice, or pieces are missing.
        StorageError: A task failed; nothing was committed.
    """
    if not isinstance(engine, SparkEngine) and (not isinstance(engine, EmbeddedEngine) or engine.root is None):
        raise InvalidInputError(
            "executors write to a catalog in a directory that they share with the driver, or to one that Spark commits to",
            expected="a path, or a schema on Spark",
            found=engine.location,
            next_step="Give the state to `cp.state`, or keep the catalog with engine='spark', which writes to object stores.",
        )
    table = OPERATOR_DELTAS.name if upon else OPERATOR_SNAPSHOTS.name
    order = Order(attempt=attempt, policy=policy, upon=dict(upon), table=table, location=engine.location)
    prepared = _prepared(frame)
    if isinstance(engine, SparkEngine):
        return _stage_rows(engine, order, prepared)
    return _stage_files(engine, order, prepared)


def _stage_files(engine: EmbeddedEngine, order: Order, frame: DataFrame) -> StagedState:
    """Executors write the files; the driver commits them through delta-rs."""
    written = _run(frame, order)
    layouts = _only_once(layout for row in written for layout in pickle.loads(row["layouts"]))  # our own tasks'
    if not written:
        return staged_state(engine, order.attempt, [], layouts)
    files = [AddAction(**json.loads(row["action"])) for row in written]
    check_there(Path(order.location) / order.table, files)
    made = engine.add_files(
        order.table,
        files,
        metadata=order.attempt.metadata("stage"),
        key={"attempt_id": order.attempt.attempt_id, "part_id": written[0]["part_id"]},
    )
    assert made.version is not None
    parts = [
        Part(table=order.table, part_id=row["part_id"], version=made.version, rows=row["rows"], digest=row["digest"])
        for row in written
    ]
    return staged_state(engine, order.attempt, parts, layouts)


def check_there(table: Path, files: Iterable[AddAction]) -> None:
    """Raises unless the driver sees what executors wrote: a directory of each machine's own would take the state for good."""
    for file in files:
        path = table / file.path
        found = path.stat().st_size if path.exists() else None
        if found != file.size:
            raise StorageError(
                f"executors wrote {path}, which the driver does not see as they wrote it",
                expected=file.size,
                found=found,
                next_step="Keep the catalog in a directory that the driver and all executors share.",
                details={"path": str(path)},
            )


def _stage_rows(engine: SparkEngine, order: Order, frame: DataFrame) -> StagedState:
    """Executors cut, Spark appends what they cut; the driver reads back all of it but the state."""
    spec = BY_NAME[order.table]
    part_id = new_attempt_id()

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return chunk_batches(order, part_id, batches)

    with _told_plainly():
        if frame.isEmpty():
            return staged_state(engine, order.attempt, [], {})
        made = engine.append_frame(
            order.table,
            frame.mapInArrow(task, from_arrow_schema(spec.schema)),
            metadata=order.attempt.metadata("stage"),
            key={"attempt_id": order.attempt.attempt_id, "part_id": part_id},
        )
    assert made.version is not None
    where = (
        col("pipeline").eq(order.attempt.pipeline)
        & col("checkpoint_id").eq(order.attempt.checkpoint_id)
        & col("part_id").eq(part_id)
    )
    columns = [name for name in spec.schema.names if name not in PAYLOADS]
    rows = engine.read(order.table, where=where, columns=columns, version=made.version).to_pylist()
    origin = Origin(table=order.table, checkpoint_id=order.attempt.checkpoint_id, attempt_id=order.attempt.attempt_id)
    found = [replace(Layout.from_row(row), origin=origin) for row in rows if row["chunk"] == LAYOUT_CHUNK]
    layouts = _only_once(found)
    part = Part(table=order.table, part_id=part_id, version=made.version, rows=len(rows), digest=rows_digest(rows))
    return staged_state(engine, order.attempt, [part], layouts)


def _prepared(frame: DataFrame) -> DataFrame:
    """The frame with its columns checked and, where states come in pieces, the pieces of each together and in order."""
    found = dict(frame.dtypes)
    wanted = {**COLUMNS, SEQUENCE: _WHOLE_NUMBERS} if SEQUENCE in found else COLUMNS
    wrong = {name: found.get(name) for name, kinds in wanted.items() if found.get(name) not in kinds}
    extra = sorted(found.keys() - wanted.keys())
    if wrong or extra:
        raise InvalidInputError(
            f"a state frame has other columns: {', '.join(sorted(wrong) or extra)}",
            expected={name: kinds[0] for name, kinds in wanted.items()},
            found=found,
        )
    if SEQUENCE in found:
        frame = frame.repartition("operator", "partition").sortWithinPartitions("operator", "partition", SEQUENCE)
    return frame.select(*wanted)


def _run(frame: DataFrame, order: Order) -> list[dict[str, Any]]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_parts(order, batches)

    with _told_plainly():
        return [row.asDict() for row in frame.mapInArrow(task, from_arrow_schema(WRITTEN)).collect()]


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Translates what goes wrong in tasks: their errors arrive as text inside Spark's."""
    try:
        yield
    except (PySparkException, StorageError) as error:
        if InvalidInputError.__name__ in str(error):
            raise InvalidInputError(f"the state frame cannot be saved: {_last_line(error)}") from error
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"executors could not write the state: {_last_line(error)}") from error


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line]
    return (named or lines)[-1]


def _only_once(layouts: Iterable[Layout]) -> dict[Key, Layout]:
    found: dict[Key, Layout] = {}
    for layout in layouts:
        key = layout.operator, layout.partition
        if key in found:
            raise more_than_once(key)
        found[key] = layout
    return found
