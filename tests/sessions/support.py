"""What the tests of sessions share."""

from collections.abc import Callable
from typing import Any

import laminar_delta as ld
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
