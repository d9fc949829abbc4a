"""How a catalog, a pipeline, a manifest and the reports look in a notebook: plain tables, without any further library."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from laminar_delta.catalog.catalog import Catalog
from laminar_delta.catalog.diff import CheckpointDiff
from laminar_delta.catalog.pipeline import Pipeline
from laminar_delta.catalog.retention import RetentionPlan
from laminar_delta.model.findings import ValidationResult
from laminar_delta.model.manifest import CheckpointManifest
from laminar_delta.model.ranges import needed
from laminar_delta.model.report import RecoveryReport
from laminar_delta.report.markup import cell, text

SHOWN = 20
"""Rows that are shown of a long list; the last line says how many there are."""

_TABLE = '<table style="border-collapse:collapse;text-align:start">'


def shown(value: object) -> str:
    """The HTML of one of the objects below."""
    for kind, draw in _DRAWN.items():
        if isinstance(value, kind):
            return str(draw(value))
    return f"<pre>{text(value)}</pre>"


def _catalog(catalog: Catalog) -> str:
    rows = catalog.sql(
        "SELECT c.pipeline, c.checkpoint_id, c.epoch, c.created_at, c.is_pinned "
        "FROM latest_checkpoints AS c ORDER BY c.pipeline"
    ).to_pylist()
    table = _table(
        ("pipeline", "latest", "epoch", "saved (UTC)", "pinned"),
        [(r["pipeline"], r["checkpoint_id"], r["epoch"], _time(r["created_at"]), r["is_pinned"]) for r in rows],
    )
    past = "" if catalog.versions is None else ", as it was"
    return _titled(f"Catalog {catalog.engine.location}{past}", table)


def _pipeline(pipeline: Pipeline) -> str:
    rows = [
        (
            head.checkpoint_id,
            head.epoch,
            _time(head.timestamp_ms),
            head.generation,
            needed(head.needs, pipeline.name),
        )
        for head in reversed(pipeline.list())
    ]
    return _titled(
        f"Pipeline {pipeline.name}", _table(("checkpoint", "epoch", "saved (UTC)", "generation", "needs"), rows)
    )


def _manifest(manifest: CheckpointManifest) -> str:
    rows: list[tuple[object, ...]] = [("saved (UTC)", "", _time(manifest.timestamp_ms))]
    for kind, connectors in (("source", manifest.source_offsets), ("table", manifest.table_offsets)):
        for name, connector in connectors.items():
            rows.append((kind, name, ", ".join(f"{key}={value}" for key, value in connector.offsets.items())))
    rows.extend(("watermark", name, value) for name, value in manifest.source_watermarks.items())
    if manifest.watermark is not None:
        rows.append(("watermark", "", manifest.watermark))
    rows.extend(("sink", name, str(manifest.sink_commit_statuses.get(name, ""))) for name in manifest.sink_epochs)
    rows.extend(("operator", name, "") for name in manifest.operator_states)
    title = f"Checkpoint {manifest.checkpoint_id}, epoch {manifest.epoch}"
    return _titled(title, _table(("what", "name", "value"), rows))


def _recovery(report: RecoveryReport) -> str:
    if report.chosen_id is None:
        title = "nothing was there" if report.is_fresh_start else "nothing was valid"
    else:
        title = f"checkpoint {report.chosen_id} was chosen"
    rows: list[tuple[object, ...]] = [(skip.checkpoint_id, "skipped", skip.reason) for skip in report.skipped]
    rows.extend((heal.checkpoint_id, "healed", f"{heal.table}: {heal.reason}") for heal in report.healed)
    rows.extend(("", "note", note) for note in report.notes)
    told = f"Recovery of {report.pipeline}: {title}, of {report.examined}, in {report.elapsed_ms} ms"
    return _titled(told, _table(("checkpoint", "", "why"), rows) if rows else "")


def _validation(result: ValidationResult) -> str:
    rows = [(str(finding.severity), finding.code, finding.message) for finding in result.findings]
    title = f"Checkpoint {result.checkpoint_id} is {'intact' if result.valid else 'damaged'}"
    if result.passed_over is not None:
        title += f", but {result.passed_over}, so recovery passes over it"
    return _titled(title, _table(("severity", "code", "finding"), rows) if rows else "")


def _plan(plan: RetentionPlan) -> str:
    rows = [(number, "retired", "") for number in plan.retire]
    rows.extend((kept.checkpoint_id, "kept", kept.reason) for kept in plan.keep)
    return _titled("Retention", _table(("checkpoint", "is", "why"), sorted(rows)))


def _diff(diff: CheckpointDiff) -> str:
    rows = [(c.kind, c.name, c.detail, c.before, c.after, c.difference) for c in diff.changes]
    title = f"{diff.pipeline} {diff.before} → {diff.other_pipeline} {diff.after}"
    return _titled(title, _table(("kind", "name", "detail", "before", "after", "difference"), rows))


_DRAWN: dict[type, Any] = {
    Catalog: _catalog,
    Pipeline: _pipeline,
    CheckpointManifest: _manifest,
    RecoveryReport: _recovery,
    ValidationResult: _validation,
    RetentionPlan: _plan,
    CheckpointDiff: _diff,
}


def _titled(title: str, body: str) -> str:
    return f"<div><strong><bdi>{text(title)}</bdi></strong>{body}</div>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col">{text(column)}</th>' for column in columns)
    lines = "".join(f"<tr>{''.join(cell(value) for value in row)}</tr>" for row in rows[:SHOWN])
    rest = f'<tr><td colspan="{len(columns)}">{SHOWN} of {len(rows)}</td></tr>' if len(rows) > SHOWN else ""
    return f"{_TABLE}<thead><tr>{head}</tr></thead><tbody>{lines}{rest}</tbody></table>"


def _time(value: dt.datetime | int | None) -> str:
    if value is None:
        return ""
    try:
        moment = dt.datetime.fromtimestamp(value / 1000, dt.timezone.utc) if isinstance(value, int) else value
    except (OverflowError, ValueError, OSError):
        return f"{value} ms"
    return moment.astimezone(dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
