"""A call that cannot be understood: said as every other error is, in one sentence or as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from laminar_delta.cli.call import Common, tell
from laminar_delta.cli.exits import Exit
from laminar_delta.config import Settings
from laminar_delta.errors import ErrorCode

UsageError: Any = typer.BadParameter.__bases__[0]
"""Of the click that typer works with, which is the package or, in later releases, a copy of its own."""

_NO_NUMBER = re.compile(r"is not a valid (int|integer)( range)?\b")


def refuse(error: Any, words: Sequence[str]) -> Exit:
    """Prints what is wrong with a call; the exit code.

    Args:
        error: What click says.
        words: What was typed. It was not understood as a whole, so it is looked through for what says how to answer.
    """
    if type(error).__name__ == "NoArgsIsHelpError" and "--json" not in words:
        error.show()
        return Exit.USAGE
    common = Common(
        as_json="--json" in words, debug="--debug" in words, storage_option=[word for word in words if "=" in word]
    )
    message, next_step = _sentence(error)
    tell(common, Settings(), Exit.USAGE, error, f"{message}. {next_step}", str(ErrorCode.INVALID_INPUT), next_step)
    return Exit.USAGE


def _sentence(error: Any) -> tuple[str, str]:
    """What is wrong, and what to do."""
    path = "laminar-delta" if error.ctx is None else error.ctx.command_path
    see = f"`{path} --help` tells what can be given."
    option = getattr(error, "option_name", None)
    group = getattr(getattr(error.ctx, "command", None), "commands", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return "no command is given", see
    if group and option in set(_options(group)):
        return f"{option} stands before the command", f"Put it behind: `{path} COMMAND {option}`, see `{path} --help`."
    nearest = getattr(error, "possibilities", None)
    said = _NO_NUMBER.sub("is no whole number", error.message if nearest else error.format_message()).rstrip(".")
    return said[:1].lower() + said[1:], f"Did you mean {' or '.join(sorted(nearest))}? {see}" if nearest else see


def _options(commands: dict[str, Any]) -> Iterator[str]:
    """The options of all commands, also of those below others."""
    for command in commands.values():
        for parameter in command.params:
            yield from parameter.opts
        yield from _options(getattr(command, "commands", {}))
