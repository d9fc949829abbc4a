"""Keeping the report of a recovery, as a row and in the program's own log."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.rows import created_at
from laminar_delta.catalog.said import check_said
from laminar_delta.catalog.tables import RECOVERIES
from laminar_delta.errors import CommitUnknownError, LaminarDeltaError
from laminar_delta.logs import Event, log_event
from laminar_delta.model.ids import new_attempt_id

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.report import RecoveryReport

_LOG = logging.getLogger(__name__)


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
    except LaminarDeltaError as error:
        # What was chosen is decided: a report that cannot be kept, for whatever reason, does not undo it.
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
