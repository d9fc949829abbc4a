"""What a checkpoint may be derived from: one that is visible and whole, and that its sinks have unless that is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.deliveries import Deliveries
from laminar_delta.catalog.healing import as_saved, committed_row
from laminar_delta.catalog.reading import STATE_TABLES
from laminar_delta.catalog.rewriting import Rewriting
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.catalog.validation import examine
from laminar_delta.errors import ConflictError, CorruptionError, NotFoundError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row


def usable_row(reading: Reading, pipeline: str, checkpoint_id: int) -> Row:
    """The row of a checkpoint that is not retired. Raises `NotFoundError`."""
    row = committed_row(reading, pipeline, checkpoint_id)
    if checkpoint_id in standing(reading, pipeline).retired:
        raise NotFoundError(
            f"checkpoint {checkpoint_id} of pipeline {pipeline!r} is retired",
            expected=checkpoint_id,
            next_step="Restore it first.",
        )
    return row


def check_sound(reading: Reading, row: Row) -> Rewriting | None:
    """Refuses to hand on damage: a derived checkpoint would look whole until its state is read.

    Returns:
        Its state as it was saved, when only that is whole.
    """
    fatal = [finding for finding in examine(reading, row) if finding.is_fatal]
    if not fatal:
        return None
    saved = as_saved(reading, row)
    if any(finding.is_fatal for finding in examine(saved, row)):
        raise CorruptionError(
            f"checkpoint {row['checkpoint_id']} of pipeline {row['pipeline']!r} is damaged: "
            + "; ".join(map(str, fatal)),
            found=[str(finding) for finding in fatal],
            next_step="Derive from another checkpoint.",
        )
    return Rewriting(CheckpointState(saved, row))


def check_delivered(reading: Reading, row: Row, *, accept_undelivered: bool) -> None:
    """Refuses what its sinks did not get, or a recovery passed over: `ConflictError`, unless the caller accepts it."""
    if accept_undelivered:
        return
    statuses = sorted(Deliveries(reading, row["pipeline"]).statuses(row).items())
    owed = [f"sink {name!r} is {status}" for name, status in statuses if not status.is_committed]
    if row["checkpoint_id"] in standing(reading, row["pipeline"]).abandoned:
        owed.append("a recovery passed over it")
    if owed:
        raise ConflictError(
            f"checkpoint {row['checkpoint_id']} of pipeline {row['pipeline']!r} was not delivered: {'; '.join(owed)}",
            expected="all sinks Committed",
            found=owed,
            next_step="Choose one that was delivered; `accept_undelivered=True`, or `--accept-undelivered`, gives up what its "
            "sinks did not get.",
        )


def state_of(row: Row) -> tuple[str, int, str] | None:
    """Where the state rows are: always with the checkpoint that brought them, however often it was derived from."""
    if not any(child["table"] in STATE_TABLES for child in row["children"]):
        return None
    if row["state_attempt_id"] is not None:
        return row["state_pipeline"], row["state_checkpoint_id"], row["state_attempt_id"]
    return row["pipeline"], row["checkpoint_id"], row["attempt_id"]
