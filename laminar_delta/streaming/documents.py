"""What checkpoints say of the batches they are of: Spark's log entries, the query, and where its other batches are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.deliveries import Deliveries
from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, NotFoundError, StorageError
from laminar_delta.interop.sparkdir.source import BATCH, DOCUMENT

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.reading import Reading, Row
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


def batch_said(row: Row) -> Mapping[str, Any]:
    """What a checkpoint's own row says of its batch: needs no state, which may have rotted.

    Nothing for one that was captured, or saved before rows said it: then `document_of` tells.
    """
    kept = next((entry["state"] for entry in row["operators"] if entry["operator"] == BATCH), None)
    said = None if kept is None else json.loads(kept)
    return said if isinstance(said, dict) else {}


def origin_of(reading: Reading, row: Row) -> Row:
    """The row of the checkpoint that a derived one comes from, by however many steps."""
    return _steps(reading, row)[-1]


def is_forked(reading: Reading, row: Row) -> bool:
    """Whether a checkpoint comes from another pipeline, by however many steps."""
    return any(step["derived_from_pipeline"] not in (None, row["pipeline"]) for step in _steps(reading, row))


def _steps(reading: Reading, row: Row) -> list[Row]:
    """The row, and those it comes from, one by one."""
    seen, steps = set(), [row]
    while row["external_id"] is None and row["derived_from_id"] is not None:
        key = row["derived_from_pipeline"], row["derived_from_id"]
        if key in seen:
            break
        seen.add(key)
        where = col("pipeline").eq(key[0]) & col("checkpoint_id").eq(key[1])
        rows = reading.rows(MANIFESTS, where=where)
        if not rows:
            break
        row = rows[0]
        steps.append(row)
    return steps


def query_and_batch(row: Row, document: Mapping[str, Any]) -> tuple[str | None, int]:
    """Which batch of which query a checkpoint is of, by its name elsewhere or by what it keeps."""
    query, _, number = (row["external_id"] or "").rpartition("/")
    if query and number.isdigit():
        return query, int(number)
    told = document.get("batch_id")
    # A batch's epoch is its number and one.
    return document.get("query_id"), int(told) if told is not None else row["epoch"] - 1


@dataclass(slots=True)
class Others:
    """Other batches of the same query in a pipeline, each looked for when it is asked for.

    A query that was taken back has run some batches more than once. Of those before, the last run up to the checkpoint is
    meant; of those after, the first one since.
    """

    catalog: Catalog
    pipeline: str
    query_id: str | None
    candidates: Mapping[int, Sequence[Row]]
    """By batch, the rows that may be of it, the likeliest first: an epoch is a batch's number and one, of whichever query."""
    _found: dict[int, CheckpointState | None] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog, query_id: str | None, around: Row, batch: int) -> Others:
        """Those around a checkpoint; no document is read for that."""
        columns = ["checkpoint_id", "external_id", "derived_from_id", "epoch", "attempt_id", "sinks"]
        own, candidates = around["checkpoint_id"], dict[int, list["Row"]]()
        rows = catalog.reading.rows(MANIFESTS, where=col("pipeline").eq(around["pipeline"]), columns=columns)
        for row in sorted(rows, key=lambda row: abs(row["checkpoint_id"] - own)):
            number, other = row["checkpoint_id"], query_and_batch(row, {})[1]
            if row["derived_from_id"] is None and number != own and (other < batch) == (number < own):
                candidates.setdefault(other, []).append(row)
        return cls(catalog, around["pipeline"], query_id, candidates if query_id is not None else {})

    @property
    def batches(self) -> list[int]:
        """The numbers there may be, ascending."""
        return sorted(self.candidates)

    def has_delivered(self, after: int) -> bool:
        """Whether the catalog has a batch above this one that all its sinks have.

        What a recovery passed over, or waits for its sinks, is a try: some sink may have it, and it is to be completed.
        """
        passed_over = standing(self.catalog.reading, self.pipeline).abandoned
        deliveries = Deliveries(self.catalog.reading, self.pipeline)
        return any(
            row["checkpoint_id"] not in passed_over
            and deliveries.is_delivered(row)
            and self._state_of(row, batch) is not None
            for batch in self.batches
            if batch > after
            for row in self.candidates[batch]
        )

    def state(self, batch: int) -> CheckpointState | None:
        """What the checkpoint of a batch keeps; None when the catalog has no such batch."""
        if batch not in self._found:
            self._found[batch] = self._find(batch)
        return self._found[batch]

    def document(self, batch: int) -> dict[str, Any] | None:
        """The log entries of a batch; see `readable`."""
        found = self.readable(batch)
        return None if found is None else found[1]

    def readable(self, batch: int) -> tuple[CheckpointState, dict[str, Any]] | None:
        """What is kept of a batch and its log entries, of whichever of its checkpoints they can be read; None when of none."""
        for row in self.candidates.get(batch, ()):
            try:
                state = self._state_of(row, batch)
                document = None if state is None else document_of(state)
            except (CorruptionError, StorageError) as damage:
                raise_unless_damage(damage)
                continue
            if state is not None and document is not None:
                return state, document
        return None

    def _find(self, batch: int) -> CheckpointState | None:
        found = (self._state_of(row, batch) for row in self.candidates.get(batch, ()))
        return next((state for state in found if state is not None), None)

    def _state_of(self, row: Row, batch: int) -> CheckpointState | None:
        """What a checkpoint keeps, if it is of that batch of the query."""
        state = self.catalog.pipeline(self.pipeline).state(row["checkpoint_id"])
        told = {} if row["external_id"] is not None else batch_said(state.row) or document_of(state) or {}
        return state if query_and_batch(row, told) == (self.query_id, batch) else None
