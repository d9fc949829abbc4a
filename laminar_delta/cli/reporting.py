"""What `inspect`, `import` and `export` print of their reports, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from laminar_delta.cli.texts import size
from laminar_delta.cli.times import moment_of
from laminar_delta.interop import INSPECTED, KINDS

if TYPE_CHECKING:
    from laminar_delta.cli.output import Output
    from laminar_delta.interop import CheckpointSummary, ExportReport, ImportReport, Inspection, Skipped

MOST_ROWS = 20
"""Of a long list, how many are shown."""


def print_inspection(out: Output, report: Inspection) -> None:
    """What a place holds."""
    out.line(f"{report.location}: {INSPECTED[report.kind]}, {len(report.checkpoints)} found")
    if report.checkpoints:
        _print_checkpoints(out, report.checkpoints)
    if report.pointer is not None:
        out.line(f"Its own pointer says {report.pointer}.")
    if report.chosen is not None:
        passed = ", ".join(one.name for one in report.skipped[:MOST_ROWS])
        out.line(f"Recovery would use {report.chosen}" + (f", passing over {passed}." if passed else "."))
    for name, value in (report.details or {}).items():
        out.line(f"{name}: {_shown(value)}")
    _print_notes(out, report.notes)
    if report.intact:
        out.line("Intact.", style="green")
    else:
        damaged = sum(1 for one in report.checkpoints if not one.usable)
        out.line(f"{damaged} of {len(report.checkpoints)} cannot be used.", style="red")


def print_import(out: Output, report: ImportReport) -> None:
    """What an import did."""
    done = "would be imported" if report.dry_run else "imported"
    out.line(
        f"{KINDS[report.kind]} at {report.location}: {len(report.imported)} {done} into pipeline {report.pipeline!r}, "
        f"{report.already_there} were there already, {len(report.skipped)} skipped."
    )
    if report.imported:
        out.line(
            f"Ids {report.imported[0]} to {report.imported[-1]}, {size(report.state_bytes)} of state"
            + (f", {report.batches} batches." if report.batches else ".")
        )
    if report.updated:
        out.line(f"Sink statuses went on in {len(report.updated)} checkpoints.")
    _print_skipped(out, "Skipped", report.skipped)
    _print_notes(out, report.notes)


def print_export(out: Output, report: ExportReport) -> None:
    """What an export wrote."""
    done = "would be written" if report.dry_run else "written"
    out.line(
        f"{len(report.exported)} checkpoints {done} to {report.location} in layout {report.layout}: "
        f"{report.files_written} files, {report.files_unchanged} were there already."
    )
    if report.latest is not None:
        out.line(f"The latest pointer is at {report.latest}.")
    _print_skipped(out, "Left out", report.skipped)
    _print_notes(out, report.notes)


def _print_checkpoints(out: Output, found: Sequence[CheckpointSummary]) -> None:
    hidden = len(found) - MOST_ROWS
    out.table(
        ["checkpoint", "epoch", "saved (UTC)", "state", "problems"],
        (
            [one.name, one.epoch, _saved(one.timestamp_ms), size(one.state_bytes), "; ".join(one.problems)]
            for one in found[-MOST_ROWS:]
        ),
        title="Checkpoints" if hidden <= 0 else f"The newest {MOST_ROWS} checkpoints ({hidden} older ones not shown)",
        right=("epoch", "state"),
    )


def _saved(timestamp_ms: int | None) -> object:
    if timestamp_ms is None:
        return None
    return moment_of(timestamp_ms) or f"{timestamp_ms} ms"


def _print_skipped(out: Output, title: str, skipped: Sequence[Skipped]) -> None:
    if skipped:
        out.table(["checkpoint", "reason"], ([one.name, one.reason] for one in skipped), title=title, most=MOST_ROWS)


def _print_notes(out: Output, notes: Sequence[str]) -> None:
    for note in notes[:MOST_ROWS]:
        out.line(f"Note: {note}")
    if len(notes) > MOST_ROWS:
        out.line(f"… and {len(notes) - MOST_ROWS} more notes; --json shows all.")


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_shown(item)}" for name, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value)) or "none"
    return str(value)
