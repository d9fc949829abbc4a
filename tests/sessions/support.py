"""What the tests of sessions share."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

import laminar_delta as ld
from laminar_delta.catalog.buffer import Buffer
from laminar_delta.catalog.position_rows import checksum, sum_over
from laminar_delta.catalog.positions import compare_and_set, read_positions
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col
from laminar_delta.model import SourceCheckpoint

Opener = Callable[[], ld.Catalog]
StoreOpener = Callable[..., ld.SourceCheckpointStore]


class EventError(Exception):
    """Processing an event failed."""


def at(sequence: int, position: bytes | None = None) -> SourceCheckpoint:
    """A position."""
    return SourceCheckpoint(sequence=sequence, position=position)


def raw(catalog: ld.Catalog, pipeline: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of a pipeline as they are in the table, by kind and source."""
    rows = catalog.engine.read(SOURCE_CHECKPOINTS.name, where=col("pipeline").eq(pipeline)).to_pylist()
    found = {(row["kind"], row["source"]): row for row in rows}
    assert len(found) == len(rows), "two rows of one key"
    return found


def commits(catalog: ld.Catalog) -> int:
    """How many versions the table has."""
    return catalog.engine.version(SOURCE_CHECKPOINTS.name)


def commit_as_statement(
    catalog: ld.Catalog,
    pipeline: str,
    session_id: str,
    metadata: Mapping[str, object] | None = None,
    *,
    values: Mapping[str, object] | None = None,
) -> int:
    """Commits as SQL does: without a fence, and saying of itself what its author had it say. The version it made.

    Args:
        catalog: Where.
        pipeline: Whose.
        session_id: As which session.
        metadata: What it says.
        values: What its row of the source has that no session would write; everything that guards it fits.
    """
    now = read_positions(catalog.reading, pipeline)
    buffer = Buffer()
    buffer.stage("kafka", now.ordinal + 1, None)
    rows, merge = buffer.rows(now, session_id, "notebook"), compare_and_set(pipeline, now.generation, now.ordinal)
    if values is not None:
        written, head = rows.to_pylist()
        written.update(values)
        written["checksum"] = checksum(written)
        head["sequence"] = sum_over([written["checksum"]])
        head["checksum"] = checksum(head)
        rows = pa.Table.from_pylist([written, head], schema=rows.schema)
    made = catalog.engine.merge(SOURCE_CHECKPOINTS.name, rows, merge, metadata=metadata).version
    assert made is not None
    return made
