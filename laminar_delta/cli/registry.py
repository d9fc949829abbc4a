"""Commands by name: what they are called, what they print as JSON, and the options that all of them have.

A command is a function that takes a `Call` and its own options. Registering it adds the common ones, and handling of errors.
The registry is what tests and documentation go by, so that no command can escape them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, TypeVar, get_type_hints

import typer

from laminar_delta.cli import options
from laminar_delta.cli.call import Call, Common, answering

F = TypeVar("F", bound=Callable[..., None])

LOOK, SAFETY, KEEP, MOVE, BRING, SET_UP = (
    "Look",
    "Is it safe",
    "Keep and let go",
    "Go back, move on",
    "In and out",
    "Set up and run",
)
GROUPS = (LOOK, SAFETY, KEEP, MOVE, BRING, SET_UP)
"""The headings of `--help`, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One registered command."""

    name: str
    """As it is typed, such as `offsets get`."""
    group: str
    fields: Mapping[str, str]
    """What `--json` prints: path to meaning. `[]` stands for each element, `*` for any key."""
    run: Callable[..., None]
    common: tuple[str, ...]
    """Which of the common options it has."""

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return (inspect.getdoc(self.run) or "").split("\n\n", 1)[0].replace("\n", " ")


COMMANDS: dict[str, Command] = {}
"""All commands, in the order of registration."""

_ALWAYS = ("config", "as_json", "log_level", "log_format", "debug")
_CATALOG = ("catalog", "engine", "storage_option")


def command(
    name: str, *, group: str, fields: Mapping[str, str], catalog: bool = True, asks: bool = False
) -> Callable[[F], F]:
    """Registers a function as a command.

    Args:
        name: As it is typed.
        group: Its heading.
        fields: See `Command.fields`.
        catalog: Whether it works on a catalog.
        asks: Whether it asks before it does what cannot be taken back, so that it has `--yes`.
    """

    def register(function: F) -> F:
        common = (*(_CATALOG if catalog else ()), *(("yes",) if asks else ()), *_ALWAYS)
        COMMANDS[name] = Command(name=name, group=group, fields=fields, run=_wrapped(function, common), common=common)
        return function

    return register


def _wrapped(function: Callable[..., None], common: tuple[str, ...]) -> Callable[..., None]:
    """The function as typer calls it: with the common options beside its own."""

    def run(**values: Any) -> None:
        shared = Common(**{name: values.pop(name) for name in common})
        with answering(shared) as call:
            function(call, **values)

    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())
    if hints.get(own[0].name) is not Call:
        raise TypeError(f"{function.__name__} does not take a Call first")
    defaults = {field.name: field.default for field in fields(Common)}
    parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in own[1:]] + [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=options.COMMON[name])
        for name in common
    ]
    run.__doc__ = function.__doc__
    run.__name__ = function.__name__
    run.__module__ = function.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer goes by
    return run


def in_order(families: Sequence[ModuleType]) -> list[Command]:
    """The commands of some modules, in the order of those."""
    order = [family.__name__ for family in families]
    own = [found for found in COMMANDS.values() if found.run.__module__ in order]
    return sorted(own, key=lambda found: order.index(found.run.__module__))


def build(app: typer.Typer, families: Sequence[ModuleType]) -> None:
    """Adds the commands of some modules to an application, in their order; those of two words below a group of the first."""
    groups: dict[str, typer.Typer] = {}
    for found in in_order(families):
        first, _, second = found.name.partition(" ")
        if not second:
            app.command(first, rich_help_panel=found.group)(found.run)
            continue
        if first not in groups:
            groups[first] = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
            app.add_typer(groups[first], name=first, help=GROUP_HELP[first], rich_help_panel=found.group)
        groups[first].command(second)(found.run)


GROUP_HELP = {"offsets": "Where the sources are: look, move them, take that back."}
"""What the commands of two words have in common."""
