"""What happened to a pipeline, in order: saves, deliveries, decisions, recoveries, takeovers.

From the rows themselves and not from the logs, so it reaches back as far as the checkpoints do. `audit` tells of commits.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.tables import MANIFESTS, RECOVERIES, RETENTION, SINK_STATUSES, WRITERS
from laminar_delta.engine.predicate import col

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.request import TableSpec

KINDS = ("saved", "derived", "sink", "decision", "recovery", "takeover", "release")
"""All kinds of happenings."""
SAVED, DERIVED, SINK, DECISION, RECOVERY, TAKEOVER, RELEASE = KINDS

_SAVED_COLUMNS = [
    "checkpoint_id",
    "epoch",
    "created_at",
    "generation",
    "derived_how",
    "derived_from_pipeline",
    "derived_from_id",
    "derived_reason",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that happened."""

    at: dt.datetime | None
    """By the clock of whoever did it; None for a checkpoint whose own time is out of range."""
    kind: str
    """One of `KINDS`."""
    checkpoint_id: int | None
    what: str
    """In words."""
    generation: int | None = None
    owner: str | None = None
    reason: str | None = None


def timeline(reading: Reading, pipeline: str) -> list[Happening]:
    """Everything that happened to a pipeline, oldest first."""
    writers = _rows(reading, WRITERS, pipeline)
    found = [
        *_saves(reading, pipeline, {row["generation"]: row["owner"] for row in writers}),
        *_deliveries(reading, pipeline),
        *_decisions(reading, pipeline),
        *_recoveries(reading, pipeline),
        *_writers(writers),
    ]
    return sorted(found, key=lambda one: (one.at is not None, one.at or dt.datetime.min))


def _saves(reading: Reading, pipeline: str, owners: Mapping[int, str]) -> Iterator[Happening]:
    for row in _rows(reading, MANIFESTS, pipeline):
        if row["derived_how"] is None:
            yield Happening(
                at=row["created_at"],
                kind=SAVED,
                checkpoint_id=row["checkpoint_id"],
                what=f"checkpoint {row['checkpoint_id']} saved, epoch {row['epoch']}",
                generation=row["generation"],
                owner=owners.get(row["generation"]),
            )
        else:
            origin = f"{row['derived_from_id']} of pipeline {row['derived_from_pipeline']!r}"
            yield Happening(
                at=row["created_at"],
                kind=DERIVED,
                checkpoint_id=row["checkpoint_id"],
                what=f"checkpoint {row['checkpoint_id']} made from {origin} by {row['derived_how']}",
                generation=row["generation"],
                owner=owners.get(row["generation"]),
                reason=row["derived_reason"],
            )


def _deliveries(reading: Reading, pipeline: str) -> Iterator[Happening]:
    for row in _rows(reading, SINK_STATUSES, pipeline):
        error = "" if row["error"] is None else f": {row['error']}"
        yield Happening(
            at=row["changed_at"],
            kind=SINK,
            checkpoint_id=row["checkpoint_id"],
            what=f"sink {row['sink']!r} of checkpoint {row['checkpoint_id']} is {row['status']}{error}",
            generation=row["generation"],
            owner=row["changed_by"],
        )


def _decisions(reading: Reading, pipeline: str) -> Iterator[Happening]:
    for row in _rows(reading, RETENTION, pipeline):
        about = "nothing" if row["checkpoint_id"] is None else f"checkpoint {row['checkpoint_id']}"
        yield Happening(
            at=row["decided_at"],
            kind=DECISION,
            checkpoint_id=row["checkpoint_id"],
            what=f"{row['decision']}: {about}",
            generation=row["generation"],
            owner=row["decided_by"],
            reason=row["reason"],
        )


def _recoveries(reading: Reading, pipeline: str) -> Iterator[Happening]:
    for row in _rows(reading, RECOVERIES, pipeline):
        chosen = "found nothing to use" if row["chosen_id"] is None else f"chose checkpoint {row['chosen_id']}"
        passed = "; ".join(f"{skipped['checkpoint_id']}: {skipped['reason']}" for skipped in row["skipped"])
        yield Happening(
            at=row["started_at"],
            kind=RECOVERY,
            checkpoint_id=row["chosen_id"],
            what=f"recovery {chosen} of {row['examined']}",
            generation=row["generation"],
            owner=row["owner"],
            reason=f"passed over {passed}" if passed else None,
        )


def _writers(rows: Iterable[Row]) -> Iterator[Happening]:
    for row in rows:
        common = {"checkpoint_id": None, "generation": row["generation"], "owner": row["owner"]}
        yield Happening(
            at=row["taken_at"],
            kind=TAKEOVER,
            what=f"generation {row['generation']} taken on {row['host']}",
            reason=row["reason"],
            **common,
        )
        if row["released_at"] is not None:
            yield Happening(
                at=row["released_at"], kind=RELEASE, what=f"generation {row['generation']} let go", **common
            )


def _rows(reading: Reading, spec: TableSpec, pipeline: str) -> list[Row]:
    columns = _SAVED_COLUMNS if spec is MANIFESTS else None
    return reading.rows(spec, where=col("pipeline").eq(pipeline), columns=columns)
