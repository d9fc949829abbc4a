"""What checkpoints say of the batches they are of: Spark's log entries, the query, and where its other batches are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, NotFoundError
from laminar_delta.interop.sparkdir.source import DOCUMENT

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.reading import Row
    from laminar_delta.catalog.state.checkpoint_state import CheckpointState


def document_of(state: CheckpointState) -> dict[str, Any] | None:
    """What a checkpoint keeps of its batch's log entries; None for one that is of no batch."""
    try:
        text = state.read(DOCUMENT)
    except NotFoundError:
        return None
    try:
        said = json.loads(text)
        if not isinstance(said, dict) or not isinstance(said["offsets"], str):
            raise TypeError("it has no entry of the offset log")
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"what is kept of the batch's log entries cannot be read: {error}") from error
    return said


def origin_of(catalog: Catalog, row: Row) -> Row:
    """The row of the checkpoint that a derived one comes from, by however many steps."""
    seen = set()
    while row["external_id"] is None and row["derived_from_id"] is not None:
        key = row["derived_from_pipeline"], row["derived_from_id"]
        if key in seen:
            break
        seen.add(key)
        where = col("pipeline").eq(key[0]) & col("checkpoint_id").eq(key[1])
        rows = catalog.reading.rows(MANIFESTS, where=where)
        if not rows:
            break
        row = rows[0]
    return row


def query_and_batch(row: Row, document: Mapping[str, Any]) -> tuple[str | None, int]:
    """Which batch of which query a checkpoint is of, by its name elsewhere or by what it keeps."""
    query, _, number = (row["external_id"] or "").rpartition("/")
    if query and number.isdigit():
        return query, int(number)
    told = document.get("batch_id")
    # A batch's epoch is its number and one.
    return document.get("query_id"), int(told) if told is not None else row["epoch"] - 1


def batches_of(catalog: Catalog, query_id: str | None, around: Row, batch: int) -> dict[int, tuple[str, int]]:
    """The other batches of a query in a pipeline, each with the pipeline and id of its checkpoint.

    A query that was taken back has run some batches more than once. Of those before, the last run up to the checkpoint is
    meant; of those after, the first one since.
    """
    if query_id is None:
        return {}
    columns = ["checkpoint_id", "external_id", "derived_from_id", "operators", "epoch"]
    found: dict[int, int] = {}
    for row in catalog.reading.rows(MANIFESTS, where=col("pipeline").eq(around["pipeline"]), columns=columns):
        number = row["checkpoint_id"]
        if row["derived_from_id"] is not None or number == around["checkpoint_id"]:
            continue
        query, other = query_and_batch(row, {} if row["external_id"] is not None else _told(catalog, around, row))
        is_before = other < batch
        if query != query_id or is_before != (number < around["checkpoint_id"]):
            continue
        known = found.get(other)
        if known is None or (number > known if is_before else number < known):
            found[other] = number
    return {other: (around["pipeline"], number) for other, number in found.items()}


def _told(catalog: Catalog, around: Row, row: Row) -> Mapping[str, Any]:
    """What a row without a name of its own for the batch keeps of it."""
    if not any(entry["operator"] == DOCUMENT for entry in row["operators"]):
        return {}
    return document_of(catalog.pipeline(around["pipeline"]).state(row["checkpoint_id"])) or {}


@dataclass(slots=True)
class Others:
    """Other batches of the same query, read when they are asked for."""

    catalog: Catalog
    where: Mapping[int, tuple[str, int]]

    def state(self, batch: int) -> CheckpointState | None:
        """What the checkpoint of a batch keeps; None when the catalog has no such batch."""
        if batch not in self.where:
            return None
        pipeline, number = self.where[batch]
        return self.catalog.pipeline(pipeline).state(number)

    def document(self, batch: int) -> dict[str, Any] | None:
        """The same for its log entries."""
        state = self.state(batch)
        return None if state is None else document_of(state)
