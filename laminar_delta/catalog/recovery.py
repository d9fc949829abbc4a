"""Recovery: the newest checkpoint that proves valid, and a report of everything that was passed over and why.

Before a damaged checkpoint is given up, its children are read again as of the table version its manifest pinned: time travel
heals what someone deleted or overwrote later. A table that cannot be read is an error, never a fresh start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog import blame
from laminar_delta.catalog.checkpoints import load_manifest
from laminar_delta.catalog.choosing import ABANDONED_REASON, UNDELIVERED_REASON, FailedSinks
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.generations import check_held
from laminar_delta.catalog.healing import as_saved, find_rows
from laminar_delta.catalog.reading import STATE_TABLES
from laminar_delta.catalog.rows import created_at
from laminar_delta.catalog.said import check_said
from laminar_delta.catalog.standing import ABANDONED, RESUMED, Standing, standing
from laminar_delta.catalog.statuses import current_statuses
from laminar_delta.catalog.tables import MANIFESTS, RECOVERIES
from laminar_delta.catalog.validation import HISTORY_GONE, examine
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CommitUnknownError, ConflictError, StorageError
from laminar_delta.logs import Event, log_event
from laminar_delta.model.findings import Finding
from laminar_delta.model.ids import new_attempt_id
from laminar_delta.model.manifest import now_ms
from laminar_delta.model.report import HealedRows, RecoveryReport, SkippedCheckpoint
from laminar_delta.model.status import SinkCommitKind

if TYPE_CHECKING:
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.manifest import CheckpointManifest


_LOG = logging.getLogger(__name__)

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

    def run(self, *, generation: int | None = None, dry_run: bool = False) -> RecoveryReport:
        """Walks from the newest to the first that can be used."""
        started, clock = now_ms(), time.monotonic()
        decided = standing(self.reading, self.pipeline, searched=True)
        if decided.missing:
            self.notes.append(
                f"{len(decided.missing)} decisions were taken out of retention; they stand, as an earlier version has them"
            )
        rows = self._find_rows(decided.retired)
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

    def _note_hash(self, chosen: CheckpointManifest | None) -> None:
        saved = None if chosen is None else chosen.pipeline_hash
        if saved is not None and self.expected_hash is not None and saved != self.expected_hash:
            self.notes.append(f"the pipeline changed: its hash was {saved} when saved and is {self.expected_hash} now")

    def _use(self, row: Row) -> CheckpointManifest | None:
        """The manifest, when the checkpoint can be used; otherwise it is noted as skipped."""
        reading = self.reading
        findings = examine(reading, row)
        if any(finding.is_fatal for finding in findings):
            pinned = as_saved(self.reading, row)
            healed = examine(pinned, row)
            if any(finding.is_fatal for finding in healed):
                # Also what keeps it from being healed: beyond the healing window its history is gone.
                findings.extend(finding for finding in healed if finding.code == HISTORY_GONE)
                reason = "; ".join(str(finding) for finding in findings)
                self._skip(row, f"{reason}{blame.changed_children(self.reading, row)}", findings)
                return None
            self._note_healed(row, findings)
            reading = pinned
        undelivered = _undelivered(self.reading, row, self.failed_sinks)
        if undelivered is not None:
            self._skip(row, f"{undelivered}{blame.missed_status(self.reading, row)}", findings)
            return None
        return load_manifest(reading, row)

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


def _undelivered(reading: Reading, row: Row, failed_sinks: FailedSinks) -> str | None:
    """The exactly-once sinks that do not have a checkpoint's data, as a reason: its offsets are past what they got."""
    refused = {SinkCommitKind.PENDING}
    if failed_sinks is FailedSinks.SKIP:
        refused.add(SinkCommitKind.FAILED)
    statuses = sorted(current_statuses(reading, row).items())
    owed = ", ".join(f"sink {name!r} is {status}" for name, status in statuses if status.kind in refused)
    return f"{UNDELIVERED_REASON}{owed}" if owed else None


def passed_over(reading: Reading, row: Row) -> str | None:
    """Why a recovery passes over a checkpoint that is intact; None when it does not."""
    decided = standing(reading, row["pipeline"])
    if row["checkpoint_id"] in decided.retired:
        return "retired: readers do not see it until it is restored"
    if row["checkpoint_id"] in decided.abandoned:
        return _PASSED_BEFORE
    return _undelivered(reading, row, FailedSinks.SKIP)


def resume(
    reading: Reading,
    held: Generation,
    *,
    failed_sinks: FailedSinks,
    pipeline_hash: int | None,
    check: Callable[[RecoveryReport], None] | None,
) -> RecoveryReport:
    """A writer's recovery: what it chooses and what it passes over is decided for good, against late words of its forerunner.

    See `Writer.recover`. It goes by what was decided until its own decision: when the forerunner still abandoned the
    checkpoint chosen, the choice is made again.
    """
    for _ in range(_TRIES):
        report = Walk(reading, held.pipeline, failed_sinks, pipeline_hash).run(generation=held.number)
        if check is not None:
            check(report)
        if _decided(reading.engine, held, report):
            return store(reading.engine, report, held.owner)
    raise ConflictError(f"pipeline {held.pipeline!r}: what recovery chose was abandoned {_TRIES} times in a row")


def _decided(engine: Engine, held: Generation, report: RecoveryReport) -> bool:
    """Records the choice and what was passed over; whether the choice still stood."""
    stood = True

    def choose(seen: Standing) -> list[Decision]:
        nonlocal stood
        check_held(engine, held)
        stood = report.chosen_id not in seen.abandoned | seen.retired
        if not stood:
            return []
        reason = f"passed over by recovery under generation {held.number}"
        passed_over = [
            Decision(checkpoint_id=skipped.checkpoint_id, word=ABANDONED, reason=reason)
            for skipped in report.skipped
            if skipped.checkpoint_id not in seen.abandoned
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


def newest_delivered(reading: Reading, pipeline: str, seen: Standing) -> int | None:
    """The newest checkpoint that all its sinks have: where recovery goes back to if nothing is damaged."""
    columns = ["pipeline", "checkpoint_id", "attempt_id", "sinks"]
    rows = reading.rows(MANIFESTS, where=col("pipeline").eq(pipeline), columns=columns)
    for row in sorted(rows, key=lambda row: row["checkpoint_id"], reverse=True):
        if row["checkpoint_id"] in seen.retired | seen.abandoned:
            continue
        if all(status.is_committed for status in current_statuses(reading, row).values()):
            return int(row["checkpoint_id"])
    return None


def store(engine: Engine, report: RecoveryReport, owner: str) -> RecoveryReport:
    """Keeps a report as a row; the answer says that it is kept, or why it is not: recovery needs no right to write."""
    check_said(owner=owner)
    _log(report)
    kept = replace(report, stored=True)
    row = {
        "pipeline": kept.pipeline,
        "recovery_id": new_attempt_id(),
        "chosen_id": kept.chosen_id,
        "examined": kept.examined,
        "skipped": [{"checkpoint_id": s.checkpoint_id, "reason": s.reason} for s in kept.skipped],
        "healed": [
            {"checkpoint_id": h.checkpoint_id, "table": h.table, "version": h.version, "reason": h.reason}
            for h in kept.healed
        ],
        "notes": list(kept.notes),
        "generation": kept.generation,
        "owner": owner,
        "started_at": created_at(kept.started_at_ms),
        "elapsed_ms": kept.elapsed_ms,
        "report": replace(kept, manifest=None).to_json().decode(),
    }
    metadata = {"operation": "recover", "pipeline": kept.pipeline, "checkpoint": kept.chosen_id, "owner": owner}
    try:
        engine.append(RECOVERIES.name, pa.Table.from_pylist([row], schema=RECOVERIES.schema), metadata=metadata)
    except (StorageError, ConflictError, CommitUnknownError) as error:
        # What was chosen is decided: a report that cannot be kept does not undo it.
        became = "may not be stored" if isinstance(error, CommitUnknownError) else "is not stored"
        return replace(report, notes=(*report.notes, f"this report {became}: {error.message}"))
    return kept


def _log(report: RecoveryReport) -> None:
    passed = [{"checkpoint_id": skipped.checkpoint_id, "reason": skipped.reason} for skipped in report.skipped]
    log_event(
        _LOG,
        logging.WARNING if passed or report.healed else logging.INFO,
        Event.RECOVERY_DONE,
        "recovery of pipeline %s chose %s and passed over %d",
        report.pipeline,
        report.chosen_id,
        len(passed),
        pipeline=report.pipeline,
        chosen_id=report.chosen_id,
        examined=report.examined,
        skipped=passed,
        healed=len(report.healed),
        generation=report.generation,
    )
