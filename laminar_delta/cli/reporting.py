"""What the commands print of reports, for people."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from laminar_delta.interop import INSPECTED, KINDS

if TYPE_CHECKING:
    from rich.console import Console

    from laminar_delta.interop import CheckpointSummary, ExportReport, ImportReport, Inspection, Skipped

MOST_ROWS = 20
"""Of a long list, how many are shown."""


def print_inspection(console: Console, report: Inspection) -> None:
    """What a place holds."""
    console.print(f"{escape(report.location)}: {INSPECTED[report.kind]}, {len(report.checkpoints)} found")
    if report.checkpoints:
        console.print(_checkpoints(report.checkpoints))
    if report.pointer is not None:
        console.print(f"Its own pointer says {escape(report.pointer)}.")
    if report.chosen is not None:
        passed = ", ".join(one.name for one in report.skipped[:MOST_ROWS])
        console.print(
            f"Recovery would use {escape(report.chosen)}" + (f", passing over {escape(passed)}." if passed else ".")
        )
    for name, value in (report.details or {}).items():
        console.print(f"{escape(name)}: {escape(_shown(value))}")
    _print_notes(console, report.notes)
    if report.intact:
        console.print("[green]Intact.[/green]")
    else:
        damaged = sum(1 for one in report.checkpoints if not one.usable)
        console.print(f"[red]{damaged} of {len(report.checkpoints)} cannot be used.[/red]")


def print_import(console: Console, report: ImportReport) -> None:
    """What an import did."""
    done = "would be imported" if report.dry_run else "imported"
    console.print(
        f"{KINDS[report.kind]} at {escape(report.location)}: [green]{len(report.imported)} {done}[/green] into pipeline "
        f"{escape(repr(report.pipeline))}, {report.already_there} were there already, {len(report.skipped)} skipped."
    )
    if report.imported:
        console.print(
            f"Ids {report.imported[0]} to {report.imported[-1]}, {report.state_bytes} bytes of state"
            + (f", {report.batches} batches." if report.batches else ".")
        )
    if report.updated:
        console.print(f"Sink statuses went on in {len(report.updated)} checkpoints.")
    _print_skipped(console, "Skipped", report.skipped)
    _print_notes(console, report.notes)


def print_export(console: Console, report: ExportReport) -> None:
    """What an export wrote."""
    done = "would be written" if report.dry_run else "written"
    console.print(
        f"[green]{len(report.exported)} checkpoints {done}[/green] to {escape(report.location)} in layout {report.layout}: "
        f"{report.files_written} files, {report.files_unchanged} were there already."
    )
    if report.latest is not None:
        console.print(f"The latest pointer is at {escape(report.latest)}.")
    _print_skipped(console, "Left out", report.skipped)
    _print_notes(console, report.notes)


def _checkpoints(found: Sequence[CheckpointSummary]) -> Table:
    hidden = len(found) - MOST_ROWS
    table = Table(
        title="Checkpoints" if hidden <= 0 else f"The newest {MOST_ROWS} checkpoints ({hidden} older ones not shown)"
    )
    for column in ("checkpoint", "epoch", "created", "state", "problems"):
        table.add_column(column, justify="right" if column in ("epoch", "state") else "left", overflow="fold")
    for one in found[-MOST_ROWS:]:
        problems = escape("; ".join(one.problems))
        table.add_row(
            escape(one.name),
            "" if one.epoch is None else str(one.epoch),
            _moment(one.timestamp_ms),
            str(one.state_bytes),
            problems if one.usable else f"[red]{problems}[/red]",
        )
    return table


def _moment(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return ""
    try:
        moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _print_skipped(console: Console, title: str, skipped: Sequence[Skipped]) -> None:
    if not skipped:
        return
    table = Table(title=title)
    table.add_column("checkpoint")
    table.add_column("reason", overflow="fold")
    for one in skipped[:MOST_ROWS]:
        table.add_row(escape(one.name), escape(one.reason))
    if len(skipped) > MOST_ROWS:
        table.add_row("...", f"and {len(skipped) - MOST_ROWS} more; --json shows them all")
    console.print(table)


def _print_notes(console: Console, notes: Sequence[str]) -> None:
    for note in notes[:MOST_ROWS]:
        console.print(f"Note: {escape(note)}")
    if len(notes) > MOST_ROWS:
        console.print(f"... and {len(notes) - MOST_ROWS} more notes; --json shows them all.")


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_shown(item)}" for name, item in value.items()) or "none"
    return str(value)
