"""Processes that start in a hundredth of a second: forked from one that has imported everything and done nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

_PRELOADED = [
    "laminar_delta.catalog.opening",
    "laminar_delta.catalog.coordinator",
    "laminar_delta.engine.embedded.engine",
    "laminar_delta.testing.crashes",
]


def run_forked(target: Callable[[str], None], argument: str) -> int:
    """Runs a function in a process of its own; how it ended.

    Starting Python costs more than most of what is run. The server forks before delta-rs was used: what it has running by
    then is the allocators' threads, which are made for it; afterwards no fork would be safe.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    process = context.Process(target=target, args=(argument,))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode
