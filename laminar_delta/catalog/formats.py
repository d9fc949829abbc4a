"""Format versions of catalogs: what one has, what this code writes, and how the one becomes the other.

The version is a property of every table. There is one so far. A format that comes after it brings an entry in `STEPS`, which
takes a catalog from the version before; `upgrade` runs those that are missing, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.tables import FORMAT_PROPERTY, FORMAT_VERSION, MANIFESTS
from laminar_delta.errors import FormatError
from laminar_delta.masking import masked

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine

Step = Callable[["Engine"], None]
STEPS: Mapping[int, Step] = {}
"""By the version it leads to, what takes a catalog there from the version before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePlan:
    """What stands between a catalog and this code."""

    location: str
    found: int
    wanted: int
    steps: tuple[int, ...]
    """The versions it would go through; none when it is there already."""


def format_of(engine: Engine) -> int:
    """The format version a catalog's tables say they have; 0 where they say nothing."""
    text = engine.properties(MANIFESTS.name).get(FORMAT_PROPERTY, "0")
    try:
        return int(text)
    except ValueError as error:
        raise FormatError(
            f"the catalog at {masked(engine.location)!r} says its format is {text!r}",
            expected="a whole number",
            found=text,
            next_step=f"Set {FORMAT_PROPERTY} of its tables to what it was.",
        ) from error


def check_format(engine: Engine) -> None:
    """Raises `FormatError` unless a catalog has exactly the format this code reads and writes."""
    found = format_of(engine)
    if found != FORMAT_VERSION:
        raise FormatError(
            f"the catalog at {masked(engine.location)!r} has format {found}, this version reads {FORMAT_VERSION}",
            expected=FORMAT_VERSION,
            found=found,
            next_step="Use a laminar_delta that knows this format."
            if found > FORMAT_VERSION
            else "Run `laminar-delta upgrade`, or use the laminar_delta that made it.",
        )


def plan_upgrade(engine: Engine) -> UpgradePlan:
    """What an upgrade would do.

    Raises:
        FormatError: The catalog is newer than this code, or older than anything it can start from.
    """
    found = format_of(engine)
    steps = tuple(range(found + 1, FORMAT_VERSION + 1))
    missing = [step for step in steps if step not in STEPS]
    if found > FORMAT_VERSION or missing:
        raise FormatError(
            f"the catalog at {masked(engine.location)!r} has format {found}: no way leads from there to {FORMAT_VERSION}",
            expected=FORMAT_VERSION,
            found=found,
            next_step="Install a newer laminar_delta: formats never go back."
            if found > FORMAT_VERSION
            else "There never was such a format: bring the table's properties back from a backup.",
        )
    return UpgradePlan(location=engine.location, found=found, wanted=FORMAT_VERSION, steps=steps)


def upgrade(engine: Engine) -> UpgradePlan:
    """Takes a catalog to the format of this code, step by step; nothing happens to one that has it."""
    plan = plan_upgrade(engine)
    for step in plan.steps:
        STEPS[step](engine)
    return plan
