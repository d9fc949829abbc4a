"""The demo: a pipeline is killed with SIGKILL twice, recovers, and ends with no gap and no repeat; told from the catalog."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

import laminar_delta as ld
from laminar_delta.catalog.sinks import Step
from laminar_delta.catalog.tables import RECOVERIES
from laminar_delta.cli.demo_pipeline import PIPELINE, FileSink
from laminar_delta.cli.places import fresh_directory

if TYPE_CHECKING:
    from rich.console import Console

    from laminar_delta.catalog.catalog import Catalog

KILLS = ((Step.SAVE, 3), (Step.COMMIT, 2))
"""Where the pipeline dies, process by process: after a save that no sink delivered, and after a delivery nobody recorded."""


def run_demo(console: Console, directory: Path | None, records: int) -> bool:
    """Runs the pipeline with its deaths, and prints what the catalog tells of it; whether nothing was lost or repeated."""
    with fresh_directory(directory) as place:
        for number, kill in enumerate([*KILLS, None], 1):
            _run_process(console, place, records, number, kill)
        catalog = ld.open_catalog(str(place / "catalog"))
        _print_checkpoints(console, catalog)
        print_recoveries(console, catalog)
        print_audit(console, catalog, PIPELINE)
        exact = _print_verdict(console, FileSink(place / "output").output(), records)
        if directory is not None:
            console.print(f"Everything is kept in {escape(str(directory))}.")
        return exact


def _run_process(console: Console, place: Path, records: int, number: int, kill: tuple[Step, int] | None) -> None:
    arguments = [str(place), str(records), *([kill[0].value, str(kill[1])] if kill else [])]
    with console.status(f"Process {number} runs ..."):
        code = subprocess.run(
            [sys.executable, "-m", "laminar_delta.cli.demo_pipeline", *arguments], check=False
        ).returncode
    if code == 0:
        console.print(f"Process {number} finished.")
    elif kill is not None and code == -9:
        console.print(f"Process {number} was [red]killed with SIGKILL[/red] right after step '{kill[0].value}'.")
    else:
        raise SystemExit(f"process {number} ended with {code}")


def _print_checkpoints(console: Console, catalog: Catalog) -> None:
    table = Table(title="Checkpoints")
    for column in ("id", "epoch", "generation", "offset", "sum", "sink"):
        table.add_column(column, justify="left" if column == "sink" else "right")
    pipeline = catalog.pipeline(PIPELINE)
    for head in pipeline.list():
        manifest = pipeline.get(head.checkpoint_id)
        table.add_row(
            str(head.checkpoint_id),
            str(head.epoch),
            str(head.generation),
            manifest.source_offsets["numbers"].offsets["0"],
            pipeline.state(head.checkpoint_id).read("sum").decode(),
            ", ".join(f"{name} {status}" for name, status in manifest.sink_commit_statuses.items()),
        )
    console.print(table)


def print_recoveries(console: Console, catalog: Catalog) -> None:
    """What each process resumed from."""
    table = Table(title="Recoveries")
    for column in ("generation", "chose", "of", "passed over"):
        table.add_column(column, justify="left" if column == "passed over" else "right")
    rows = catalog.reading.rows(RECOVERIES)
    for row in sorted(rows, key=lambda row: row["started_at"]):
        passed_over = "; ".join(f"{skipped['checkpoint_id']}: {skipped['reason']}" for skipped in row["skipped"])
        chosen = "nothing: fresh start" if row["chosen_id"] is None else str(row["chosen_id"])
        table.add_row(str(row["generation"]), chosen, str(row["examined"]), passed_over or "none")
    console.print(table)


def print_audit(console: Console, catalog: Catalog, pipeline: str) -> None:
    """What was committed last."""
    table = Table(title="Audit: the last commits, newest first")
    for column in ("time", "table", "version", "operation", "checkpoint", "owner"):
        table.add_column(column, justify="right" if column in ("version", "checkpoint") else "left")
    for entry in catalog.audit(pipeline=pipeline)[:12]:
        moment = dt.datetime.fromtimestamp(entry.timestamp_ms / 1000, dt.timezone.utc)
        table.add_row(
            f"{moment:%H:%M:%S.%f}"[:-3],
            entry.table,
            str(entry.version),
            entry.operation,
            "" if entry.checkpoint_id is None else str(entry.checkpoint_id),
            entry.owner or "",
        )
    console.print(table)


def _print_verdict(console: Console, output: list[str], records: int) -> bool:
    expected, total = [], 0
    for number in range(1, records + 1):
        total += number
        expected.append(f"{number} {total}")
    if output != expected:
        console.print(f"[red]The output differs from the input: {len(output)} lines instead of {len(expected)}.[/red]")
        return False
    console.print(
        f"[green]No gap, no repeat:[/green] {records} numbers in, {len(output)} lines out, each once, "
        f"through {len(KILLS)} kills; the sum is {total}."
    )
    return True
