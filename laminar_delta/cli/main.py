"""The console script `laminar-delta`. Commands import what they need when they run, so that `--help` is immediate."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from laminar_delta._version import __version__
from laminar_delta.cli import asking, deriving, keeping, looking, moving, safety, setting_up
from laminar_delta.cli.call import own_process
from laminar_delta.cli.registry import COMMANDS, GROUPS, build

if TYPE_CHECKING:
    from types import ModuleType

FAMILIES: tuple[ModuleType, ...] = (looking, asking, safety, keeping, deriving, moving, setting_up)
"""The modules whose commands there are: importing them registers those."""


class _Grouped(TyperGroup):
    """Help with the commands under headings. Plain text: drawing boxes would take as long as everything else together."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # typer's own click
        """See `TyperGroup`."""
        groups = {found.name.partition(" ")[0]: found.group for found in COMMANDS.values()}
        limit = formatter.width - 6 - max(map(len, groups))
        for group in GROUPS:
            rows = [
                (name, found.get_short_help_str(limit))
                for name in self.list_commands(ctx)
                if groups[name] == group and (found := self.get_command(ctx, name)) is not None
            ]
            with formatter.section(group):
                formatter.write_dl(rows)


app = typer.Typer(
    name="laminar-delta",
    cls=_Grouped,
    help="A transactional checkpoint catalog for data pipelines, kept as Delta tables. The catalog is named by --catalog, by "
    "LAMINAR_DELTA_CATALOG, or in laminar-delta.toml. Every command has --json; docs/cli.md has its fields and the exit codes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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


build(app, FAMILIES)


def main() -> None:
    """Runs the command line, in a process of its own. Tests call `app`."""
    own_process()
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal has no letters for is shown all the same, and is no error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()
