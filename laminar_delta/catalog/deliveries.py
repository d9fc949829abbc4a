"""Which checkpoints their sinks have: from what was told of them, and from what somebody took out of the table since.

A word that is missing leaves a sink Pending, and recovery then goes back behind what was delivered. So before a checkpoint is
called undelivered, its changes are looked for in the versions before the commits that may have taken them away: there they are
for the healing window.

After it nothing tells any more. A checkpoint of which nothing is known then may have been delivered all the same: nobody
goes on from it, but it is no beginning either, and retention leaves it alone until somebody says what became of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laminar_delta.catalog.losses import taken_rows
from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.statuses import combined_statuses, intact_changes
from laminar_delta.catalog.tables import MANIFESTS, SINK_STATUSES
from laminar_delta.catalog.traces import began_ms
from laminar_delta.engine.predicate import col
from laminar_delta.errors import StorageError
from laminar_delta.model.report import HealedRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.standing import Standing
    from laminar_delta.engine.predicate import Predicate
    from laminar_delta.model.status import SinkCommitStatus

DOUBT = "its sinks may have it: what they told may have been taken out, and no version that can be read has it"
"""What is wrong with a checkpoint that may be delivered."""

_EVER = 2**63
"""Later than any time."""
_GROWTH = 16
"""By how much more is read each time that what was read does not do."""


@dataclass(slots=True)
class Deliveries:
    """What was told of the sinks of a pipeline's checkpoints, read as it is asked for, and once.

    The newest checkpoint is delivered as a rule: then only its own changes are read. Whoever goes on to others gets more of
    them with each look, so that a long row of undelivered checkpoints is not a scan each.
    """

    reading: Reading
    pipeline: str
    unread: list[str] = field(default_factory=list)
    """Where changes may have been taken out and nobody can look any more, in words."""
    _changes: dict[object, list[Row]] = field(default_factory=dict)
    _ranges: list[tuple[int, int]] = field(default_factory=list)
    _reach: int = 0
    _taken: dict[object, list[tuple[int, Row]]] | None = None
    _unread_until_ms: int = 0
    _since_ms: int = 0

    def statuses(self, row: Row) -> dict[str, SinkCommitStatus]:
        """The status of each exactly-once sink of a checkpoint."""
        return combined_statuses(row, [*self._told(row), *(change for _, change in self._missing(row))])

    def is_delivered(self, row: Row) -> bool:
        """Whether all sinks are known to have a checkpoint."""
        return all_committed(self.statuses(row))

    def may_have_lost(self, row: Row) -> bool:
        """Whether changes of a checkpoint that is not known to be delivered may be in what somebody took out unread."""
        return not self.is_delivered(row) and began_ms(row) < self._unread_until_ms

    def is_untold(self, row: Row) -> bool:
        """Whether nothing was ever told of a checkpoint with sinks that is older than the log: a loss would not show."""
        if self.is_delivered(row) or self._told(row) or self._taken_out().get(row["attempt_id"]):
            return False
        return began_ms(row) < self._since_ms

    def healed(self, row: Row) -> list[HealedRows]:
        """Where changes of a checkpoint were found that are not in the table any more; nothing where all are."""
        missing = self._missing(row)
        return [
            HealedRows(
                checkpoint_id=row["checkpoint_id"],
                table=SINK_STATUSES.name,
                version=version,
                reason=f"{sum(found == version for found, _ in missing)} status changes were taken out",
            )
            for version in sorted({version for version, _ in missing}, reverse=True)
        ]

    def _missing(self, row: Row) -> list[tuple[int, Row]]:
        """The changes that only an earlier version has; not looked for where a checkpoint is delivered without them."""
        told = self._told(row)
        if all_committed(combined_statuses(row, told)):
            return []
        known = {change["digest"] for change in told}
        missing: list[tuple[int, Row]] = []
        for version, change in self._taken_out().get(row["attempt_id"], ()):
            if change["digest"] not in known:
                known.add(change["digest"])
                missing.append((version, change))
        return missing

    def _told(self, row: Row) -> list[Row]:
        number = row["checkpoint_id"]
        if row["sinks"] and not any(low <= number <= high for low, high in self._ranges):
            low, high = number - self._reach, number + self._reach
            self._reach = max(1, self._reach * _GROWTH)
            near = col("checkpoint_id").ge(max(0, low)) & col("checkpoint_id").le(min(high, 2**63 - 1))
            for change in intact_changes(self.reading, self._own & near):
                if not any(before <= change["checkpoint_id"] <= after for before, after in self._ranges):
                    self._changes.setdefault(change["attempt_id"], []).append(change)
            self._ranges.append((low, high))
        return self._changes.get(row["attempt_id"], [])

    def _taken_out(self) -> Mapping[object, list[tuple[int, Row]]]:
        if self._taken is None:
            self._taken = {}
            try:
                entries = self.reading.history(SINK_STATUSES).entries
            except StorageError as error:
                # The rows could be read, of the version before: see `Reading.as_far_as_whole`.
                raise_unless_damage(error)
                self.unread.append(f"status changes that were taken out cannot be looked for: {error.message}")
                self._unread_until_ms = _EVER
                return self._taken
            if not entries:
                self._since_ms = _EVER
            elif entries[-1].version > 0:
                self._since_ms = entries[-1].timestamp_ms
            found = taken_rows(self.reading, SINK_STATUSES, entries, lambda before: intact_changes(before, self._own))
            self.unread.extend(found.unread)
            self._unread_until_ms = found.unread_until_ms
            for version, change in found.rows:
                self._taken.setdefault(change["attempt_id"], []).append((version, change))
        return self._taken

    @property
    def _own(self) -> Predicate:
        return col("pipeline").eq(self.pipeline)


def all_committed(statuses: Mapping[str, SinkCommitStatus]) -> bool:
    """Whether no sink needs anything any more."""
    return all(status.is_committed for status in statuses.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """How far the sinks of a pipeline are."""

    newest: int | None = None
    """The newest checkpoint that all its sinks have: where recovery goes back to if nothing is damaged."""
    maybe: frozenset[int] = frozenset()
    """Those above it that they may have, for all that is known."""


def delivered_up_to(reading: Reading, pipeline: str, seen: Standing) -> Delivered:
    """How far the sinks of a pipeline are, among what readers see and recovery did not pass over."""
    columns = ["pipeline", "checkpoint_id", "attempt_id", "sinks"]
    rows = reading.rows(MANIFESTS, where=col("pipeline").eq(pipeline), columns=columns)
    deliveries = Deliveries(reading, pipeline)
    lost: set[int] = set()
    untold: set[int] = set()
    for row in sorted(rows, key=lambda row: row["checkpoint_id"], reverse=True):
        number = int(row["checkpoint_id"])
        if number in seen.retired | seen.abandoned:
            continue
        if deliveries.is_delivered(row):
            # Those above it that nothing was told of are what a sink that is down for long looks like.
            return Delivered(newest=number, maybe=frozenset(lost))
        if deliveries.may_have_lost(row):
            lost.add(number)
        elif deliveries.is_untold(row):
            untold.add(number)
    return Delivered(maybe=frozenset(lost | untold))
