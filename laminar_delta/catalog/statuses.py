"""Sink statuses: appended changes, and the current status derived from them.

Changes never replace one another, so two who report at once never lose one another's. Committed is final; before that the
highest generation and ordinal counts, never the clock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.clock import now
from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.reading import owned_by
from laminar_delta.catalog.tables import SINK_STATUSES
from laminar_delta.errors import CorruptionError, NotFoundError
from laminar_delta.logs import Event, log_event
from laminar_delta.model.status import SinkCommitKind, SinkCommitStatus

if TYPE_CHECKING:
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.predicate import Predicate

_LOG = logging.getLogger(__name__)


def current_statuses(reading: Reading, row: Row) -> dict[str, SinkCommitStatus]:
    """The status of each exactly-once sink of a checkpoint: as saved, unless changed since."""
    changes = intact_changes(reading, owned_by(row, SINK_STATUSES)) if row["sinks"] else []
    return combined_statuses(row, changes)


def intact_changes(reading: Reading, where: Predicate | None = None) -> list[Row]:
    """The status changes for which `where` holds."""
    return reading.rows_despite_rot(
        SINK_STATUSES,
        where=where,
        # A change that is missed leaves a sink Pending, which makes recovery fall back: never the other way round.
        exact=False,
        intact=is_intact_change,
    )


def is_intact_change(change: Row) -> bool:
    """Whether a status change is as it was written."""
    return digest_of(change) == str(change["digest"])


def combined_statuses(row: Row, changes: Iterable[Row]) -> dict[str, SinkCommitStatus]:
    """The status of each exactly-once sink of a checkpoint, from its manifest row and all changes since."""
    statuses = {sink["name"]: _status(sink) for sink in row["sinks"] if sink["status"] is not None}
    delivered = {sink: status for sink, status in statuses.items() if status.is_committed}
    return {**statuses, **derived_statuses(changes), **delivered}


def derived_statuses(changes: Iterable[Row]) -> dict[str, SinkCommitStatus]:
    """The current status per sink: Committed wins for good, else the highest generation and ordinal; never the clock."""
    best: dict[str, Row] = {}
    for change in changes:
        known = best.get(change["sink"])
        if known is None or _rank(change) > _rank(known):
            best[change["sink"]] = change
    return {sink: _status(change) for sink, change in best.items()}


def append_statuses(
    engine: Engine, held: Generation, row: Row, statuses: Mapping[str, SinkCommitStatus], *, ordinal: int
) -> None:
    """Appends status changes of one checkpoint in one commit.

    Args:
        engine: Where.
        held: Who says so.
        row: The checkpoint's manifest row.
        statuses: What each sink is now.
        ordinal: Which change of this generation it is.

    Raises:
        NotFoundError: The checkpoint was saved without such a sink.
    """
    epochs = {sink["name"]: sink["epoch"] for sink in row["sinks"]}
    unknown = sorted(set(statuses) - set(epochs))
    if unknown:
        raise NotFoundError(
            f"checkpoint {row['checkpoint_id']} of pipeline {held.pipeline!r} has no sink {unknown[0]!r}",
            expected=unknown[0],
            found=sorted(epochs),
            next_step="Name the sink when the checkpoint is saved.",
        )
    fixed = {
        "pipeline": held.pipeline,
        "checkpoint_id": row["checkpoint_id"],
        "attempt_id": row["attempt_id"],
        "generation": held.number,
        "ordinal": ordinal,
        "changed_at": now(),
        "changed_by": held.owner,
    }
    changes = [
        {**fixed, "sink": name, "epoch": epochs[name], "status": status.kind.value, "error": status.message}
        for name, status in statuses.items()
    ]
    rows = [{**change, "digest": digest_of(change)} for change in changes]
    attempt = Attempt(
        pipeline=held.pipeline,
        checkpoint_id=row["checkpoint_id"],
        attempt_id=row["attempt_id"],
        generation=held.number,
        owner=held.owner,
    )
    engine.append(
        SINK_STATUSES.name,
        pa.Table.from_pylist(rows, schema=SINK_STATUSES.schema),
        metadata=attempt.metadata("status"),
    )
    for name, status in statuses.items():
        log_event(
            _LOG,
            logging.WARNING if status.kind is SinkCommitKind.FAILED else logging.INFO,
            Event.SINK_STATUS,
            "sink %s of checkpoint %d of pipeline %s is %s",
            name,
            row["checkpoint_id"],
            held.pipeline,
            status,
            pipeline=held.pipeline,
            checkpoint_id=row["checkpoint_id"],
            sink=name,
            status=status.kind.value,
            error=status.message,
        )


def _status(entry: Row) -> SinkCommitStatus:
    try:
        return SinkCommitStatus(kind=SinkCommitKind(entry["status"]), message=entry["error"])
    except ValueError as error:
        raise CorruptionError(
            f"there is no sink status {entry['status']!r} with the message {entry['error']!r}",
            expected=[kind.value for kind in SinkCommitKind],
            found=entry["status"],
        ) from error


def _rank(change: Row) -> tuple[bool, int, int]:
    return change["status"] == SinkCommitKind.COMMITTED.value, change["generation"], change["ordinal"]


def digest_of(change: Row) -> str:
    """The digest a status change carries: a byte that rots in it must not deliver or fail anything."""
    return row_digest(change, without=["digest"])
