"""The console script `laminar-delta`. A call imports the family of its command only, and that what it needs when it runs."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from laminar_delta._version import __version__
from laminar_delta.cli.call import own_process
from laminar_delta.cli.registry import COMMANDS, GROUPS, build
from laminar_delta.cli.usage import UsageError, refuse

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "looking": ("ls", "show", "latest", "diff"),
    "happening": ("history", "audit"),
    "safety": ("validate", "recover"),
    "asking": ("sql", "usage", "metrics"),
    "keeping": ("prune", "restore", "pin", "unpin"),
    "cleaning": ("orphans", "maintain"),
    "deriving": ("offsets", "rewind", "fork"),
    "moving": ("inspect", "import", "export", "report"),
    "setting_up": ("init", "doctor", "upgrade", "demo", "race"),
}
"""The modules that register commands when they are imported, and the first words of those. A test compares."""

_NAME = "laminar-delta"
_HELP = (
    "A transactional checkpoint catalog for data pipelines, kept as Delta tables. The catalog is named by --catalog, by "
    "LAMINAR_DELTA_CATALOG, or in laminar-delta.toml, here or in conf. Every command has --json; docs/cli.md has its fields "
    "and the exit codes."
)


class _Grouped(TyperGroup):
    """Help with the commands under headings, and errors in one sentence.

    Plain text: drawing boxes would take as long as everything else together.
    """

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> Any:
        """See `TyperGroup`."""
        try:
            # However it was started: what errors and help name is what can be typed.
            code = super().main(args, **{**extra, "prog_name": _NAME, "standalone_mode": False})
        except UsageError as error:
            code = refuse(error, sys.argv[1:] if args is None else args)
        sys.exit(code or 0)

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


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"laminar-delta {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[  # handled by its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def application(families: Iterable[str] = tuple(FAMILIES)) -> typer.Typer:
    """The command line with the commands of some families."""
    app = typer.Typer(
        name=_NAME,
        cls=_Grouped,
        help=_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_common)
    build(app, [import_module(f"laminar_delta.cli.{name}") for name in families])
    return app


def main() -> None:
    """Runs the command line, in a process of its own. Tests call `application`."""
    own_process()
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal has no letters for is shown all the same, and is no error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    own = [family for family, words in FAMILIES.items() if sys.argv[1:] and sys.argv[1] in words]
    application(own or FAMILIES)()


if __name__ == "__main__":
    main()
