"""The storage steps: every place where what is on the disk may change, found by looking at the code, so that none is forgotten.

A step is a call of an engine primitive that writes (whatever the contract has that does not only read), and on local files each
function that flushes, removes or locks below the engines. `watched` tells an observer before and after each of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import wraps
from types import ModuleType
from typing import Any
from unittest.mock import patch

from filelock import BaseFileLock

from laminar_delta.engine.base import Engine
from laminar_delta.engine.deltars import upkeep
from laminar_delta.engine.local import durability
from laminar_delta.engine.local.lock import CatalogLock

READS = frozenset({"exists", "schema", "properties", "version", "scan", "history", "sizes", "close", "_query"})
"""What the contract has that changes nothing. Anything else is a step, also what the contract will have one day."""

OPTIONAL = frozenset({"write_ahead", "drop_ahead"})
"""What an engine may leave to the contract, which then does nothing."""

LOOKS = frozenset({"checksum_path", "held", "_locked", "_recall", "_unfinished"})
"""Functions beside the engines that change nothing, or whose parts are steps themselves."""

JVM_STEPS = frozenset({"lock._remember"})
"""Steps that only an engine whose commits are made by a JVM takes."""


class Moment(str, Enum):
    """On which side of a step."""

    BEFORE = "before"
    AFTER = "after"


Observe = Callable[[str, Moment], None]
"""Told of each step: its name and the moment."""


def engine_steps() -> list[str]:
    """The primitives of the engine contract that write."""
    return sorted((Engine.__abstractmethods__ | OPTIONAL) - READS)


def local_steps() -> dict[str, tuple[Any, str]]:
    """What works on local files: the step's name to the owner of the function and its name there."""
    found: dict[str, tuple[Any, str]] = {"lock.release": (BaseFileLock, "release")}
    for prefix, owner in (("durability", durability), ("upkeep", upkeep), ("lock", CatalogLock)):
        found |= {f"{prefix}.{name}": (owner, name) for name in _functions(owner)}
    return found


def all_steps() -> set[str]:
    """The names of all steps."""
    return {*engine_steps(), *local_steps()}


@contextmanager
def watched(engine: type[Engine], observe: Observe) -> Iterator[None]:
    """Within: every step of engines of this class is told to `observe`, before it happens and after it returned."""
    places = {**{name: (engine, name) for name in engine_steps()}, **local_steps()}
    with ExitStack() as stack:
        for step, (owner, name) in places.items():
            stack.enter_context(patch.object(owner, name, _told(step, getattr(owner, name), observe)))
        yield


def _functions(owner: ModuleType | type) -> list[str]:
    home = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    return [
        name
        for name, value in vars(owner).items()
        if inspect.isfunction(value) and value.__module__ == home and not name.startswith("__") and name not in LOOKS
    ]


def _told(step: str, real: Callable[..., Any], observe: Observe) -> Callable[..., Any]:
    @wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        observe(step, Moment.BEFORE)
        answer = real(*args, **kwargs)
        observe(step, Moment.AFTER)
        return answer

    return call
