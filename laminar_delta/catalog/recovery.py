"""Recovery: the newest checkpoint that proves valid, and a report of everything that was passed over and why.

Before a damaged checkpoint is given up, its children are read again as of the table version its manifest pinned: time travel
heals what someone deleted or overwrote later. A table that cannot be read is an error, never a fresh start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog import blame
from laminar_delta.catalog.beginning import check_beginning, delivered_ids
from laminar_delta.catalog.checkpoints import load_manifest
from laminar_delta.catalog.choosing import ABANDONED_REASON, UNDELIVERED_REASON, FailedSinks, failed_sinks_of
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.deliveries import Deliveries
from laminar_delta.catalog.generations import check_held
from laminar_delta.catalog.healing import as_saved, find_rows
from laminar_delta.catalog.reading import STATE_TABLES
from laminar_delta.catalog.recording import store
from laminar_delta.catalog.standing import ABANDONED, RESUMED, Standing, standing
from laminar_delta.catalog.tables import MANIFESTS, SINK_STATUSES
from laminar_delta.catalog.validation import HISTORY_GONE, examine
from laminar_delta.errors import ConflictError, CorruptionError
from laminar_delta.model.findings import Finding
from laminar_delta.model.manifest import now_ms
from laminar_delta.model.report import HealedRows, RecoveryReport, SkippedCheckpoint
from laminar_delta.model.status import SinkCommitKind

if TYPE_CHECKING:
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.manifest import CheckpointManifest


_PASSED_BEFORE = f"{ABANDONED_REASON}a later recovery passed over it"

_TRIES = 20
"""Choices made anew because the one before was abandoned or retired meanwhile."""


@dataclass(slots=True)
class Walk:
    """A recovery under way."""

    reading: Reading
    pipeline: str
    failed_sinks: FailedSinks = FailedSinks.SKIP
    expected_hash: int | None = None
    skipped: list[SkippedCheckpoint] = field(default_factory=list)
    healed: list[HealedRows] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    deliveries: Deliveries = field(init=False)

    examined: Reading = field(init=False)
    """How checkpoints are examined: as they are now, their sinks as far as the log of `sink_statuses` is whole."""

    def __post_init__(self) -> None:
        self.failed_sinks = failed_sinks_of(self.failed_sinks)
        self.examined = self.reading
        self.deliveries = Deliveries(self.reading, self.pipeline)

    def run(self, *, generation: int | None = None, dry_run: bool = False) -> RecoveryReport:
        """Walks from the newest to the first that can be used."""
        started, clock = now_ms(), time.monotonic()
        decided = standing(self.reading, self.pipeline, searched=True)
        if decided.missing:
            self.notes.append(
                f"{len(decided.missing)} decisions were taken out of retention; they stand, as an earlier version has them"
            )
        rows = self._find_rows(decided.retired)
        if any(row.get("sinks") for row in rows):
            self._look_at_statuses()
        chosen: CheckpointManifest | None = None
        for row in rows:
            if row.get("lost"):
                self._skip(row, row["lost"], [])
                continue
            if row["checkpoint_id"] in decided.abandoned:
                self._skip(row, _PASSED_BEFORE, [])
                continue
            chosen = self._use(row)
            if chosen is not None:
                break
        self.notes.extend(self.deliveries.unread)
        self._note_hash(chosen)
        return RecoveryReport(
            pipeline=self.pipeline,
            chosen_id=None if chosen is None else chosen.checkpoint_id,
            manifest=chosen,
            skipped=tuple(self.skipped),
            examined=len({row["checkpoint_id"] for row in rows} | {skipped.checkpoint_id for skipped in self.skipped}),
            healed=tuple(self.healed),
            notes=tuple(self.notes),
            generation=generation,
            started_at_ms=started,
            elapsed_ms=int((time.monotonic() - clock) * 1000),
            dry_run=dry_run,
        )

    def _find_rows(self, retired: frozenset[int]) -> list[Row]:
        """The rows to walk over, newest first, those of lost checkpoints standing in for themselves."""
        found = find_rows(self.reading, self.pipeline)
        self.notes.extend(found.notes)
        rows = list(found.rows)
        for lost in found.lost:
            if lost.checkpoint_id in retired:
                continue
            if lost.row is None:
                reason = f"manifest is lost: {lost.problem}{blame.lost_row(self.reading)}"
                rows.append({"checkpoint_id": lost.checkpoint_id, "lost": reason})
            elif lost.version is not None:
                self.healed.append(
                    HealedRows(
                        checkpoint_id=lost.checkpoint_id,
                        table=MANIFESTS.name,
                        version=lost.version,
                        reason=lost.problem,
                    )
                )
        visible = [row for row in rows if row["checkpoint_id"] not in retired]
        return sorted(visible, key=lambda row: row["checkpoint_id"], reverse=True)

    def _look_at_statuses(self) -> None:
        """Leaves out what an entry of their log told that is damaged by now: a sink is then as it was before, or Pending."""
        self.examined, damage = self.reading.as_far_as_whole(SINK_STATUSES)
        if damage is not None:
            known = self.examined.versions[SINK_STATUSES.name]
            self.notes.append(
                f"status changes of sinks are known up to version {known} of {SINK_STATUSES.name}: {damage}"
            )
            self.deliveries = Deliveries(self.examined, self.pipeline)

    def _note_hash(self, chosen: CheckpointManifest | None) -> None:
        saved = None if chosen is None else chosen.pipeline_hash
        if saved is not None and self.expected_hash is not None and saved != self.expected_hash:
            self.notes.append(f"the pipeline changed: its hash was {saved} when saved and is {self.expected_hash} now")

    def _use(self, row: Row) -> CheckpointManifest | None:
        """The manifest, when the checkpoint can be used; otherwise it is noted as skipped."""
        reading = self.examined
        findings = examine(reading, row)
        if any(finding.is_fatal for finding in findings):
            pinned = as_saved(reading, row)
            healed = examine(pinned, row)
            if any(finding.is_fatal for finding in healed):
                # Also what keeps it from being healed: beyond the healing window its history is gone.
                findings.extend(finding for finding in healed if finding.code == HISTORY_GONE)
                reason = "; ".join(str(finding) for finding in findings)
                self._skip(row, f"{reason}{blame.changed_children(self.reading, row)}", findings)
                return None
            self._note_healed(row, findings)
            reading = pinned
        undelivered = _undelivered(self.deliveries, row, self.failed_sinks)
        if undelivered is not None:
            self._skip(row, f"{undelivered}{blame.missed_status(self.reading, row)}", findings)
            return None
        self.healed.extend(self.deliveries.healed(row))
        return replace(load_manifest(reading, row), sink_commit_statuses=self.deliveries.statuses(row))

    def _note_healed(self, row: Row, findings: list[Finding]) -> None:
        reason = "; ".join(str(finding) for finding in findings if finding.is_fatal)
        for child in row["children"]:
            self.healed.append(
                HealedRows(
                    checkpoint_id=row["checkpoint_id"], table=child["table"], version=child["version"], reason=reason
                )
            )

    def _skip(self, row: Row, reason: str, findings: list[Finding]) -> None:
        self.skipped.append(
            SkippedCheckpoint(checkpoint_id=row["checkpoint_id"], reason=reason, findings=tuple(findings))
        )


def _undelivered(deliveries: Deliveries, row: Row, failed_sinks: FailedSinks) -> str | None:
    """The exactly-once sinks that do not have a checkpoint's data, as a reason: its offsets are past what they got."""
    refused = {SinkCommitKind.PENDING}
    if failed_sinks is FailedSinks.SKIP:
        refused.add(SinkCommitKind.FAILED)
    statuses = sorted(deliveries.statuses(row).items())
    owed = ", ".join(f"sink {name!r} is {status}" for name, status in statuses if status.kind in refused)
    return f"{UNDELIVERED_REASON}{owed}" if owed else None


def passed_over(reading: Reading, row: Row) -> str | None:
    """Why a recovery passes over a checkpoint that is intact; None when it does not."""
    decided = standing(reading, row["pipeline"])
    if row["checkpoint_id"] in decided.retired:
        return "retired: readers do not see it until it is restored"
    if row["checkpoint_id"] in decided.abandoned:
        return _PASSED_BEFORE
    return _undelivered(Deliveries(reading, row["pipeline"]), row, FailedSinks.SKIP)


def resume(
    reading: Reading,
    held: Generation,
    *,
    failed_sinks: FailedSinks,
    pipeline_hash: int | None,
    start_over: bool,
) -> RecoveryReport:
    """A writer's recovery: what it chooses and what it passes over is decided for good, against late words of its forerunner.

    See `Writer.recover`. It goes by what was decided until its own decision: when the forerunner still abandoned the
    checkpoint chosen, the choice is made again.
    """
    for _ in range(_TRIES):
        report = Walk(reading, held.pipeline, failed_sinks, pipeline_hash).run(generation=held.number)
        given_up: set[int] = set()
        if start_over and report.chosen_id is None:
            # Else the next recovery would refuse to begin anew once more, until the first save.
            given_up = delivered_ids(reading, held.pipeline)
        elif not start_over:
            try:
                check_beginning(reading, report)
            except CorruptionError:
                # Whoever was taken over has nothing to repair.
                check_held(reading.engine, held)
                raise
        if _decided(reading.engine, held, report, given_up):
            return store(reading.engine, report, held.owner)
    raise ConflictError(f"pipeline {held.pipeline!r}: what recovery chose was abandoned {_TRIES} times in a row")


def _decided(engine: Engine, held: Generation, report: RecoveryReport, given_up: set[int]) -> bool:
    """Records the choice and what was passed over, or given up beside it; whether the choice still stood."""
    stood = True

    def choose(seen: Standing) -> list[Decision]:
        nonlocal stood
        check_held(engine, held)
        stood = report.chosen_id not in seen.abandoned | seen.retired
        if not stood:
            return []
        reason = f"passed over by recovery under generation {held.number}"
        numbers = [skipped.checkpoint_id for skipped in report.skipped]
        numbers += sorted(given_up.difference(numbers))
        passed_over = [
            Decision(checkpoint_id=number, word=ABANDONED, reason=reason)
            for number in numbers
            if number not in seen.abandoned
        ]
        # Also when nothing was passed over: from here on the forerunner's abandonments are void.
        resumed = [] if seen.resumed_by >= held.number else [Decision(checkpoint_id=report.chosen_id, word=RESUMED)]
        return [*resumed, *passed_over]

    decide(engine, held.pipeline, choose, owner=held.owner, generation=held.number)
    return stood


def to_store_upon(report: RecoveryReport) -> int | None:
    """The checkpoint that the next state may be stored upon: the one chosen, unless only earlier versions have its state.

    Those are gone one day, and with them whatever was stored upon them.
    """
    healed = {rows.checkpoint_id for rows in report.healed if rows.table in STATE_TABLES}
    return None if report.chosen_id in healed else report.chosen_id
