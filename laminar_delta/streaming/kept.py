"""A micro-batch as the catalog keeps it: its log entries, those of the batch before, what its sources noted, its state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laminar_delta.errors import ConflictError

if TYPE_CHECKING:
    from laminar_delta.catalog.state.checkpoint_state import CheckpointState
    from laminar_delta.interop.sparkdir.logs import PlannedBatch
    from laminar_delta.model import CheckpointManifest


@dataclass(slots=True, kw_only=True)
class KeptBatch:
    """Everything kept of one batch, and what of others is needed to go on after it."""

    pipeline: str
    checkpoint_id: int
    query_id: str | None
    batch_id: int
    manifest: CheckpointManifest
    state: CheckpointState
    planned: PlannedBatch
    as_run: tuple[str, ...]
    """The offsets that Spark ran the batch with: those of `planned`, unless a source was moved since."""
    offsets: dict[int, bytes]
    """Entries of the offset log: of the batch before, and its own."""
    commits: dict[int, bytes]
    source_logs: dict[str, bytes] = field(default_factory=dict)
    """By path below the directory."""
    has_later: bool = False
    """Whether the catalog has later batches of the same query that were delivered."""
    is_forked: bool = False
    """Whether it comes from another pipeline, whose query goes on beside."""
    unfinished: dict[str, bytes] = field(default_factory=dict)
    """By path below the directory, the plan of the batch after, where that was saved and not delivered: what the sources noted,
    then the entry of the offset log."""
    is_capture: bool = False
    """Whether it was captured from a directory, and not saved by `foreach_batch`: then a batch after it may have been begun,
    and be in sinks of Spark's own, that nobody here knows of."""
    lacks_state: bool = False
    """Whether the query has state that was not captured with it."""
    notes: list[str] = field(default_factory=list)

    def captured(self, other: KeptBatch) -> KeptBatch:
        """The same batch with the logs and the state that another checkpoint has of it.

        Raises:
            ConflictError: That one ended elsewhere: it is another run of the batch.
        """
        if other.as_run != self.as_run:
            raise ConflictError(
                f"batch {self.batch_id} was captured by pipeline {other.pipeline!r} with other offsets",
                expected=self.as_run,
                found=other.as_run,
                next_step="Capture the directory of the run that this checkpoint is of.",
            )
        offsets, planned = other.offsets, other.planned
        if self.planned.offsets != self.as_run:  # moved since: what this checkpoint says of the batch counts
            offsets, planned = {**offsets, self.batch_id: self.offsets[self.batch_id]}, self.planned
        return replace(
            other,
            pipeline=self.pipeline,
            checkpoint_id=self.checkpoint_id,
            planned=planned,
            offsets=offsets,
            has_later=self.has_later or other.has_later,
            is_forked=self.is_forked,
            unfinished=self.unfinished,
            is_capture=self.is_capture,
        )
