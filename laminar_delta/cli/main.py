"""The console script `laminar-delta`. Commands import what they need when they run, so that `--help` is immediate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laminar_delta._version import __version__
from laminar_delta.cli import moving
from laminar_delta.errors import LaminarDeltaError

app = typer.Typer(
    name="laminar-delta",
    help="A transactional checkpoint catalog for data pipelines, kept as Delta tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"laminar-delta {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[  # handled by its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


_Directory = Annotated[Path | None, typer.Option(help="Keep everything in this directory, which must not exist yet.")]


@app.command()
def demo(
    directory: _Directory = None,
    records: Annotated[int, typer.Option(min=30, max=10_000, help="How many numbers the pipeline reads.")] = 40,
) -> None:
    """Run a pipeline that is killed twice, and show that it loses and repeats nothing."""
    from laminar_delta.cli.demo import run_demo

    run_demo(directory, records)


@app.command()
def race(
    directory: _Directory = None,
    rounds: Annotated[int, typer.Option(min=1, max=200, help="How many commits there are to win.")] = 12,
) -> None:
    """Let two processes race for the same commits, and show who won, who was told, and what the table's log says."""
    from laminar_delta.cli.demo_race import run_race

    run_race(directory, rounds)


moving.register(app)


def main() -> None:
    """Runs the command line; errors of ours are one sentence and exit code 1."""
    try:
        app()
    except LaminarDeltaError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(1) from error
