"""The commands, put together. A call imports the family of its command only, and that what it needs when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from laminar_delta._version import __version__
from laminar_delta.cli.call import own_process
from laminar_delta.cli.exits import BROKEN_PIPE
from laminar_delta.cli.registry import COMMANDS, GROUPS, build
from laminar_delta.cli.usage import UsageError, give_up, refuse, refuse_what_is_not_utf8

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

QUESTIONS: Mapping[str, str] = {
    "Is my pipeline safe?": "ls, then validate orders, recover orders",
    "Where was it at 03:12?": "latest orders --at 03:12",
    "Why did recovery choose 41?": "recover orders --chose 41",
    "What would pruning remove?": "prune orders --keep-last 10",
    "Who did that?": "history orders, or audit orders",
    "How do I go back?": "rewind orders 38 --reason why",
}
"""What people come with, and what to type; `docs/cli.md` says more under the same headings."""

_NAME = "laminar-delta"
_WHOLE = 200
"""Of the sentence that says what a command does, as much as there is: it goes on below where the terminal is narrow."""
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
        words = sys.argv[1:] if args is None else list(args)
        try:
            refuse_what_is_not_utf8(words)
            # However it was started: what errors and help name is what can be typed.
            code = super().main(words, **{**extra, "prog_name": _NAME, "standalone_mode": False})
            sys.stdout.flush()
        except UsageError as error:
            code = refuse(error, words)
        except SystemExit as ended:
            # Both libraries answer a broken pipe with 1, which says of a command that it found something.
            if not isinstance(ended.__context__, BrokenPipeError):
                raise
            code = _nobody_reads()
        except BrokenPipeError:
            code = _nobody_reads()
        except OSError as error:
            code = give_up(error, words)
        sys.exit(code or 0)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # typer's own click
        """See `TyperGroup`."""
        with formatter.section("Questions"):
            formatter.write_dl(list(QUESTIONS.items()))
        groups = {found.name.partition(" ")[0]: found.group for found in COMMANDS.values()}
        for group in GROUPS:
            rows = [
                (name, found.get_short_help_str(_WHOLE))
                for name in self.list_commands(ctx)
                if groups[name] == group and (found := self.get_command(ctx, name)) is not None
            ]
            with formatter.section(group):
                formatter.write_dl(rows)


def _nobody_reads() -> int:
    """The end of a call whose reader has seen enough, such as `head`: no error, and not to be taken for success."""
    # What is still to be written goes nowhere, or the interpreter would complain about it at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


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


def run(words: Sequence[str]) -> None:
    """Answers one call, in a process that is for nothing else.

    Args:
        words: What was typed behind the name of the script.
    """
    own_process()
    own = [family for family, commands in FAMILIES.items() if words and words[0] in commands]
    application(own or FAMILIES)()
