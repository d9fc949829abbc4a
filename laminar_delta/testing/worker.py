"""A process of its own that races on a table and says, line by line, what it was told. Started by `testing.workers`.

    python -m laminar_delta.testing.worker '{"opening": …, "role": "race", "name": "w1", "rounds": 50}'

It opens the engine, prints `ready`, waits for a line on standard input, and then prints one JSON object per write, flushed at
once: what it printed is what an application would have been told before being killed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from laminar_delta.engine import open_engine
from laminar_delta.engine.answer import Commit
from laminar_delta.engine.base import Engine
from laminar_delta.engine.request import Fence
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.testing.conformance.tables import LINES, line
from laminar_delta.testing.workers import say

SHARED_APP = "laminar:shared"


def race(engine: Engine, name: str, turn: int) -> Commit:
    """Offers the next version of a fence that all racers share."""
    attempt = f"{name}-{turn}"
    return engine.append(
        LINES.name, line("shared", turn, attempt), fences=[Fence(SHARED_APP, turn + 1)], key={"attempt": attempt}
    )


def append(engine: Engine, name: str, turn: int) -> Commit:
    """Appends without a fence."""
    return engine.append(LINES.name, line(name, turn, f"{name}-{turn}"), key={"attempt": f"{name}-{turn}"})


def own(engine: Engine, name: str, turn: int) -> Commit:
    """Commits under a fence of its own."""
    attempt = f"{name}-{turn}"
    return engine.append(
        LINES.name, line(name, turn, attempt), fences=[Fence(f"laminar:{name}", turn + 1)], key={"attempt": attempt}
    )


def mixed(engine: Engine, name: str, turn: int) -> Commit:
    """Appends and races by turns."""
    return (race if turn % 2 else append)(engine, name, turn)


ROLES: dict[str, Callable[[Engine, str, int], Commit]] = {"race": race, "append": append, "own": own, "mixed": mixed}


def main(argument: str) -> None:
    """Runs one worker."""
    order = json.loads(argument)
    engine = open_engine(**order["opening"])
    engine.version(LINES.name)
    say({"ready": order["name"]})
    sys.stdin.readline()
    for turn in range(order["rounds"]):
        attempt = f"{order['name']}-{turn}"
        try:
            made = ROLES[order["role"]](engine, order["name"], turn)
        except LaminarDeltaError as error:
            say({"attempt": attempt, "told": type(error).__name__})
        else:
            say({"attempt": attempt, "told": "committed", "version": made.version})
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
