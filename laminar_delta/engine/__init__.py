"""Engines by name: how Delta is spoken. Loaded when opened, so that nothing needs what it does not use."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine

ENGINES = {
    "memory": "laminar_delta.engine.memory:MemoryEngine",
    "embedded": "laminar_delta.engine.embedded:EmbeddedEngine",
    "spark": "laminar_delta.engine.spark:SparkEngine",
}
"""Name to where the class lives. A dotted path and not an import, so that the core never imports an engine."""

EMBEDDED = "embedded"
_SCHEMA_NAME = re.compile(r"\w+\.\w+(\.\w+)?")


def engine_for(location: str) -> str:
    """The engine that commits to a new catalog at a location."""
    return "spark" if _SCHEMA_NAME.fullmatch(location) else EMBEDDED


def open_engine(name: str, location: str, **options: Any) -> Engine:
    """Opens an engine on a location.

    Args:
        name: A key of `ENGINES`.
        location: A directory, an object-store URI, or for `spark` a schema name such as `main.checkpoints`.
        **options: What the engine's constructor takes.

    Raises:
        InvalidInputError: There is no engine of that name.
        NotInstalledError: The engine's extra is not installed.
    """
    if name not in ENGINES:
        raise InvalidInputError(
            f"there is no engine {name!r}",
            expected=sorted(ENGINES),
            found=name,
            next_step=f"Choose one of: {', '.join(sorted(ENGINES))}.",
        )
    module, _, attribute = ENGINES[name].partition(":")
    kind: type[Engine] = getattr(import_module(module), attribute)
    known = [found.name for found in signature(kind).parameters.values() if found.kind is found.KEYWORD_ONLY]
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise InvalidInputError(
            f"the {name} engine has no option {unknown[0]!r}",
            expected=known,
            found=unknown,
            next_step=f"It takes: {', '.join(known)}.",
        )
    engine: Engine = kind(location, **options)  # type: ignore[call-arg]  # each has a constructor of its own
    return engine


__all__ = ["EMBEDDED", "ENGINES", "engine_for", "open_engine"]
