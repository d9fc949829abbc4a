"""Batches of state blobs as rows of `state_batches`: appended, never overwritten, read back by key, gone with their epoch.

Flushes of an epoch are numbered without a gap: each is committed under a fence of the pipeline's batches, so of two who
flush at once one reads what the other wrote and takes the next number. The row itself is what refers to a batch; it is
visible as long as its epoch is: from the flush on, until every checkpoint of the epoch is retired.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.tables import MANIFESTS, STATE_BATCHES
from laminar_delta.codec import BatchEntry, decode_batch, parse_header
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence
from laminar_delta.errors import ConflictError, CorruptionError, FencedError, NotFoundError
from laminar_delta.model.ids import check_ordering_number, new_attempt_id, validate_pipeline_name

if TYPE_CHECKING:
    from laminar_delta.catalog.pipeline import Pipeline
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.predicate import Predicate

_TRIES = 100
"""Races lost in a row before giving up: each means that another batch was written."""
_HEAD = ["epoch", "ordinal", "attempt_id", "entries", "raw_length"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class BatchHead:
    """What a listing shows of a batch."""

    epoch: int
    ordinal: int
    """The how-manieth flush of its epoch, from 1."""
    attempt_id: str
    entries: int
    raw_length: int
    """Bytes before compression."""


class BatchAppender:
    """Appends batches of one pipeline. Needs no generation: a batch takes nothing away from another."""

    def __init__(self, engine: Engine, pipeline: str, *, owner: str) -> None:
        self._engine = engine
        self._pipeline = validate_pipeline_name(pipeline)
        self._owner = owner
        self._standing = 0

    def append(self, epoch: int, payload: bytes, attempt_id: str | None = None) -> BatchHead:
        """Writes an LCB1 batch.

        Args:
            epoch: Of which epoch.
            payload: The batch.
            attempt_id: Of a flush whose outcome is unknown, to try again: it is written once, however often it is tried.

        Raises:
            ConflictError: Others kept writing in between.
        """
        number = check_ordering_number("epoch", epoch)
        header = parse_header(payload)
        attempt = attempt_id or new_attempt_id()
        for _ in range(_TRIES):
            rows = Reading(self._engine).rows(
                STATE_BATCHES, where=col("pipeline").eq(self._pipeline) & col("epoch").eq(number), columns=_HEAD
            )
            landed = next((row for row in rows if row["attempt_id"] == attempt), None)
            if landed is not None:
                return BatchHead(**landed)
            head = BatchHead(
                epoch=number,
                ordinal=max((row["ordinal"] for row in rows), default=0) + 1,
                attempt_id=attempt,
                entries=header.entry_count,
                raw_length=header.raw_length,
            )
            try:
                self._commit(head, payload)
            except FencedError as fenced:
                self._standing = _standing(fenced, self._application_id)
                continue
            self._standing += 1
            return head
        raise ConflictError(f"pipeline {self._pipeline!r}: lost {_TRIES} races for the next batch in a row")

    @property
    def _application_id(self) -> str:
        return f"laminar-batches:{self._pipeline}"

    def _commit(self, head: BatchHead, payload: bytes) -> None:
        row = {
            "pipeline": self._pipeline,
            "epoch": head.epoch,
            "ordinal": head.ordinal,
            "attempt_id": head.attempt_id,
            "entries": head.entries,
            "raw_length": head.raw_length,
            "payload": payload,
        }
        self._engine.append(
            STATE_BATCHES.name,
            pa.Table.from_pylist([row], schema=STATE_BATCHES.schema),
            fences=[Fence(self._application_id, self._standing + 1)],
            metadata={
                "operation": "flush",
                "pipeline": self._pipeline,
                "epoch": head.epoch,
                "attempt": head.attempt_id,
                "owner": self._owner,
            },
            key={"pipeline": self._pipeline, "attempt_id": head.attempt_id},
        )


@dataclass(frozen=True, slots=True)
class StateBatches:
    """The batches of one pipeline, as readers see them: those of retired checkpoints are gone."""

    pipeline: Pipeline

    def heads(self) -> list[BatchHead]:
        """The visible batches, by epoch and flush."""
        gone = self._retired_epochs()
        rows = self.pipeline.reading.rows(STATE_BATCHES, where=self._own, columns=_HEAD)
        return sorted(BatchHead(**row) for row in rows if row["epoch"] not in gone)

    def entries(self, epoch: int) -> list[BatchEntry]:
        """Everything flushed for an epoch, in order. Raises `CorruptionError` for a batch that is not what was written."""
        return [entry for row in self._rows(epoch) for entry in _decoded(row)]

    def read(self, epoch: int, key: str) -> bytes:
        """The blob of a key: the one added last, when there are several. Raises `NotFoundError`."""
        for row in reversed(self._rows(epoch)):
            for entry in reversed(_decoded(row)):
                if entry.key == key:
                    return entry.data
        raise NotFoundError(
            f"pipeline {self.pipeline.name!r} has no blob {key!r} in the batches of epoch {epoch}",
            expected=(epoch, key),
        )

    @property
    def _own(self) -> Predicate:
        return col("pipeline").eq(self.pipeline.name)

    def _rows(self, epoch: int) -> list[Row]:
        if epoch in self._retired_epochs():
            raise NotFoundError(
                f"epoch {epoch} of pipeline {self.pipeline.name!r} is retired, and its batches with it",
                expected=epoch,
                next_step="Restore its checkpoint, as long as maintenance has not removed its rows.",
            )
        rows = self.pipeline.reading.rows(STATE_BATCHES, where=self._own & col("epoch").eq(epoch))
        return sorted(rows, key=lambda row: (row["ordinal"], row["attempt_id"]))

    def _retired_epochs(self) -> set[int]:
        """Epochs that have checkpoints, all of them retired."""
        retired = standing(self.pipeline.reading, self.pipeline.name).retired
        return epochs_of_only(self.pipeline.reading, self.pipeline.name, retired)


def epochs_of_only(reading: Reading, pipeline: str, checkpoint_ids: Set[int]) -> set[int]:
    """The epochs of some checkpoints that no other checkpoint has."""
    if not checkpoint_ids:
        return set()
    rows = reading.rows(MANIFESTS, where=col("pipeline").eq(pipeline), columns=["checkpoint_id", "epoch"])
    others = {row["epoch"] for row in rows if row["checkpoint_id"] not in checkpoint_ids}
    return {row["epoch"] for row in rows} - others


def _decoded(row: Row) -> list[BatchEntry]:
    entries = decode_batch(row["payload"])
    if len(entries) != row["entries"]:
        raise CorruptionError(
            f"batch {row['ordinal']} of epoch {row['epoch']} has {len(entries)} entries, {row['entries']} were written",
            expected=row["entries"],
            found=len(entries),
        )
    return entries


def _standing(fenced: FencedError, application_id: str) -> int:
    found = fenced.found
    assert isinstance(found, dict)
    return int(found[application_id])
