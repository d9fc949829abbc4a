"""A call that cannot be understood: said as every other error is, in one sentence or as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from laminar_delta.cli.call import Common, tell, unwritten
from laminar_delta.cli.exits import Exit
from laminar_delta.config import Settings
from laminar_delta.errors import ErrorCode

UsageError: Any = typer.BadParameter.__bases__[0]
"""Of the click that typer works with, which is the package or, in later releases, a copy of its own."""

_NEGATIVE = re.compile(r"-\d+")
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
    message, next_step = _sentence(error, words)
    tell(common, Settings(), Exit.USAGE, error, f"{message}. {next_step}", str(ErrorCode.INVALID_INPUT), next_step)
    return Exit.USAGE


def refuse_what_is_not_utf8(words: Sequence[str]) -> None:
    """Raises a usage error for what no table, log or query could hold."""
    for word in words:
        try:
            word.encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(f"{word!a} is not UTF-8") from None


def give_up(error: OSError, words: Sequence[str]) -> Exit:
    """Prints that help could not be printed; the exit code. What commands print is seen to where they are called."""
    common = Common(as_json="--json" in words, debug="--debug" in words)
    tell(common, Settings(), Exit.STORAGE, error, unwritten(error), str(ErrorCode.STORAGE), "")
    return Exit.STORAGE


def _path(error: Any, words: Sequence[str]) -> str:
    """The command that was called. Of an option without its value click does not say, so as far as words have no dash."""
    if error.ctx is not None and error.ctx.parent is not None:
        return str(error.ctx.command_path)
    first = list(words[: 2 if words[:1] == ["offsets"] else 1])
    return " ".join(["laminar-delta", *(first if hasattr(error, "option_name") and error.ctx is None else [])])


def _sentence(error: Any, words: Sequence[str]) -> tuple[str, str]:
    """What is wrong, and what to do."""
    path = _path(error, words)
    see = f"`{path} --help` tells what can be given."
    option = getattr(error, "option_name", None)
    group = getattr(getattr(error.ctx, "command", None), "commands", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return "no command is given", see
    if group and option in set(_options(group)):
        return f"{option} stands before the command", f"Put it behind: `{path} COMMAND {option}`, see `{path} --help`."
    if option is not None and _NEGATIVE.fullmatch(option):
        return f"{option} is below 0, and no number here is", see
    nearest = getattr(error, "possibilities", None)
    said = _NO_NUMBER.sub("is no whole number", error.message if nearest else error.format_message()).rstrip(".")
    return said[:1].lower() + said[1:], f"Did you mean {' or '.join(sorted(nearest))}? {see}" if nearest else see


def _options(commands: dict[str, Any]) -> Iterator[str]:
    """The options of all commands, also of those below others."""
    for command in commands.values():
        for parameter in command.params:
            yield from parameter.opts
        yield from _options(getattr(command, "commands", {}))
