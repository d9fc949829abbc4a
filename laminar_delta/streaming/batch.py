"""A micro-batch as the user's function sees it, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_delta.catalog.builder import CheckpointBuilder
    from laminar_delta.catalog.state.checkpoint_state import CheckpointState
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a function gets beside the records of a batch."""

    id: int
    """Spark's number of it, from 0."""
    checkpoint: CheckpointBuilder
    """The checkpoint to be: `checkpoint.state("totals", …)` or `checkpoint.state_frame(frame)` keeps state with it."""
    spark: SparkSession
    previous: CheckpointManifest | None
    """The checkpoint before, which all sinks have; None for the first, and for the first after a reset that starts empty."""
    state: CheckpointState | None
    """The state of the checkpoint before: `state.read("totals")`, `state.frame(spark)`; None like `previous`."""

    @property
    def epoch(self) -> int:
        """Of the checkpoint to be."""
        return self.id + 1


class Delivery(str, Enum):
    """What was done about a batch."""

    FRESH = "fresh"
    """Nothing of it had been saved or written before: the function was run, the sinks have it now."""
    REPLAYED_DELIVERED = "replayed-delivered"
    """An earlier run had saved and delivered it, and died before Spark noted that: nothing was done."""
    REPLAYED_WRITTEN = "replayed-written"
    """An earlier run had saved or written some of it: the function was run again, and the sinks that lacked it have it now."""

    def __str__(self) -> str:
        return self.value


class Written(str, Enum):
    """What was done about a batch in one sink."""

    WRITTEN = "written"
    FOUND = "found"
    """It had it from an earlier run."""
    NOTHING = "nothing"
    """It was given nothing."""
    FAILED = "failed"
    """It failed to take it in an earlier run, and the checkpoint was accepted all the same (`failed_sinks`)."""

    def __str__(self) -> str:
        return self.value


class BatchStep(str, Enum):
    """The steps of a batch that are not the coordinator's: together with `Step` the points at which a process can die."""

    RESUME = "resume"
    """Takes over, asks the sinks about earlier tries, and finds where the pipeline stands. The first batch of a run only."""
    FUNCTION = "function"
    """Runs the user's function."""
    DELIVER = "deliver"
    """All of a batch, from Spark's call to the answer; after it Spark notes the batch in its commit log."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of a batch."""

    batch_id: int
    epoch: int
    checkpoint_id: int
    delivery: Delivery
    query_id: str
    lineage: int
    sinks: Mapping[str, Written] = field(default_factory=dict)
    duration_ms: int = 0

    def __str__(self) -> str:
        sinks = ", ".join(f"{name} {what}" for name, what in self.sinks.items())
        return f"batch {self.batch_id}: {self.delivery}, checkpoint {self.checkpoint_id}" + (
            f" ({sinks})" if sinks else ""
        )
