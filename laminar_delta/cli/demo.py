"""The demo: a pipeline is killed with SIGKILL twice, recovers, and ends with no gap and no repeat; told from the catalog."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

import laminar_delta as ld
from laminar_delta.catalog.sinks import Step
from laminar_delta.catalog.tables import RECOVERIES
from laminar_delta.cli.demo_pipeline import PIPELINE, FileSink
from laminar_delta.cli.places import fresh_directory

if TYPE_CHECKING:
    from rich.console import Console

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.cli.output import Output

KILLS = ((Step.SAVE, 3), (Step.COMMIT, 2))
"""Where the pipeline dies, process by process: after a save that no sink delivered, and after a delivery nobody recorded."""
_LAST_COMMITS = 12


def run_demo(out: Output, directory: Path | None, records: int) -> bool:
    """Runs the pipeline with its deaths, and prints what the catalog tells of it; whether nothing was lost or repeated."""
    console = out.console
    with fresh_directory(directory) as place:
        for number, kill in enumerate([*KILLS, None], 1):
            _run_process(console, place, records, number, kill)
        catalog = ld.open_catalog(str(place / "catalog"))
        _print_checkpoints(out, catalog)
        print_recoveries(out, catalog)
        print_audit(out, catalog, PIPELINE)
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


def _print_checkpoints(out: Output, catalog: Catalog) -> None:
    pipeline = catalog.pipeline(PIPELINE)
    rows = []
    for head in pipeline.list():
        manifest = pipeline.get(head.checkpoint_id)
        rows.append(
            [
                head.checkpoint_id,
                head.epoch,
                head.generation,
                manifest.source_offsets["numbers"].offsets["0"],
                pipeline.state(head.checkpoint_id).read("sum").decode(),
                ", ".join(f"{name} {status}" for name, status in manifest.sink_commit_statuses.items()),
            ]
        )
    numbers = ["checkpoint", "epoch", "generation", "offset", "sum"]
    out.table([*numbers, "sink"], rows, title="Checkpoints", right=numbers, most=None)


def print_recoveries(out: Output, catalog: Catalog) -> None:
    """What each process resumed from."""
    rows = [
        [
            row["generation"],
            "nothing: fresh start" if row["chosen_id"] is None else row["chosen_id"],
            row["examined"],
            "; ".join(f"{skipped['checkpoint_id']}: {skipped['reason']}" for skipped in row["skipped"]) or "none",
        ]
        for row in sorted(catalog.reading.rows(RECOVERIES), key=lambda row: row["started_at"])
    ]
    out.table(
        ["generation", "chose", "of", "passed over"], rows, title="Recoveries", right=("generation", "chose", "of")
    )


def print_audit(out: Output, catalog: Catalog, pipeline: str) -> None:
    """What was committed last."""
    rows = [
        [
            f"{dt.datetime.fromtimestamp(entry.timestamp_ms / 1000, dt.timezone.utc):%H:%M:%S.%f}"[:-3],
            entry.table,
            entry.operation,
            entry.checkpoint_id,
            entry.owner,
        ]
        for entry in catalog.audit(pipeline=pipeline)[:_LAST_COMMITS]
    ]
    out.table(
        ["when (UTC)", "table", "operation", "checkpoint", "who"],
        rows,
        title="Audit: the last commits, newest first",
        right=("checkpoint",),
    )


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
