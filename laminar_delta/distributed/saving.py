"""Saving a frame: executors write the files, the driver commits them in one commit. No state passes through the driver."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalake.transaction import AddAction
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from laminar_delta.catalog.attempt import Part
from laminar_delta.catalog.digest import rows_digest
from laminar_delta.catalog.state.layout import LAYOUT_CHUNK, Layout, Origin
from laminar_delta.catalog.state.staging import StagedState, staged_state
from laminar_delta.catalog.state.upon import is_stored_upon
from laminar_delta.catalog.tables import BY_NAME, OPERATOR_SNAPSHOTS, PAYLOADS
from laminar_delta.distributed.cutting import (
    CUT,
    SEQUENCE,
    TABLE,
    WRITTEN,
    Order,
    chunk_batches,
    more_than_once,
    write_parts,
)
from laminar_delta.distributed.plainly import last_line
from laminar_delta.engine.deltars.faults import reading
from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.embedded.payloads import files_of
from laminar_delta.engine.predicate import col
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.errors import InvalidInputError, StorageError
from laminar_delta.model.ids import new_attempt_id

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.policy import StatePolicy
    from laminar_delta.catalog.state.staging import Layouts
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
    if not isinstance(engine, SparkEngine | EmbeddedEngine):
        raise InvalidInputError(
            f"executors cannot write to a catalog of the engine {engine.name!r}",
            expected=[EmbeddedEngine.name, SparkEngine.name],
            found=engine.name,
            next_step="Give the state to `cp.state`.",
        )
    # Where Spark appends, executors open nothing themselves.
    options = engine.storage_options if isinstance(engine, EmbeddedEngine) else {}
    order = Order(attempt=attempt, policy=policy, upon=dict(upon), location=engine.location, options=options)
    prepared = _prepared(frame)
    if isinstance(engine, SparkEngine):
        return _stage_rows(engine, order, prepared)
    return _stage_files(engine, order, prepared)


def _stage_files(engine: EmbeddedEngine, order: Order, frame: DataFrame) -> StagedState:
    """Executors write the files; the driver commits them through delta-rs."""
    written = _run(frame, order)
    layouts = _only_once(layout for row in written for layout in pickle.loads(row["layouts"]))  # our own tasks'
    parts: list[Part] = []
    for table in sorted({row["table"] for row in written}):
        own = [row for row in written if row["table"] == table]
        files = [AddAction(**json.loads(row["action"])) for row in own]
        check_there(order, table, files)
        made = engine.add_files(
            table,
            files,
            metadata=order.attempt.metadata("stage"),
            key={"attempt_id": order.attempt.attempt_id, "part_id": own[0]["part_id"]},
        )
        assert made.version is not None
        parts += [
            Part(table=table, part_id=row["part_id"], version=made.version, rows=row["rows"], digest=row["digest"])
            for row in own
        ]
    return staged_state(engine, order.attempt, parts, layouts)


def check_there(order: Order, table: str, files: Sequence[AddAction]) -> None:
    """Raises unless the driver sees what executors wrote: a directory of each machine's own would take the state for good."""
    place = f"{order.location}/{table}"
    with reading(table):
        found = files_of(order.location, table, order.options).get_file_info([file.path for file in files])
    for file, seen in zip(files, found, strict=True):
        if seen.size != file.size:
            raise StorageError(
                f"executors wrote {place}/{file.path}, which the driver does not see as they wrote it",
                expected=file.size,
                found=seen.size,
                next_step="Keep the catalog in a directory or an object store that the driver and all executors share.",
                details={"path": f"{place}/{file.path}"},
            )


def _stage_rows(engine: SparkEngine, order: Order, frame: DataFrame) -> StagedState:
    """Executors cut, Spark appends what they cut; the driver reads back all of it but the state."""
    part_id = new_attempt_id()

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return chunk_batches(order, part_id, batches)

    with _told_plainly():
        cut = frame.mapInArrow(task, from_arrow_schema(CUT))
        if any(is_stored_upon(layout, order.policy) for layout in order.upon.values()):
            # Two appends of what is cut once: a second time, a frame might come out otherwise. If some is lost, the save fails.
            cut = cut.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
            tables = [row[TABLE] for row in cut.select(TABLE).distinct().collect()]
        else:
            tables = [OPERATOR_SNAPSHOTS.name]
        staged = [_append_rows(engine, order, table, part_id, cut) for table in sorted(tables)]
    layouts = _only_once(layout for _, found in staged for layout in found)
    # Of a frame without rows nothing is left to look for.
    return staged_state(engine, order.attempt, [part for part, _ in staged if part.rows], layouts)


def _append_rows(
    engine: SparkEngine, order: Order, table: str, part_id: str, cut: DataFrame
) -> tuple[Part, list[Layout]]:
    spec = BY_NAME[table]
    made = engine.append_frame(
        table,
        cut.where(cut[TABLE] == table).drop(TABLE),
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
    rows = engine.read(table, where=where, columns=columns, version=made.version).to_pylist()
    origin = Origin(table=table, checkpoint_id=order.attempt.checkpoint_id, attempt_id=order.attempt.attempt_id)
    layouts = [replace(Layout.from_row(row), origin=origin) for row in rows if row["chunk"] == LAYOUT_CHUNK]
    part = Part(table=table, part_id=part_id, version=made.version, rows=len(rows), digest=rows_digest(rows))
    return part, layouts


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
            raise InvalidInputError(f"the state frame cannot be saved: {last_line(error)}") from error
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"executors could not write the state: {last_line(error)}") from error


def _only_once(layouts: Iterable[Layout]) -> dict[Key, Layout]:
    found: dict[Key, Layout] = {}
    for layout in layouts:
        key = layout.operator, layout.partition
        if key in found:
            raise more_than_once(key)
        found[key] = layout
    return found
