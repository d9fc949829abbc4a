"""Timing calls, and printing them against a baseline."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

WARM_UP = 3
"""Calls before any is counted; they get negative numbers."""


@dataclass(frozen=True)
class Measured:
    name: str
    milliseconds: list[float]

    @property
    def p50(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def p95(self) -> float:
        return sorted(self.milliseconds)[int(len(self.milliseconds) * 0.95)]


def measure(name: str, call: Callable[[int], object], times: int) -> Measured:
    """Calls `call` with 0, 1, 2, … after a few calls to warm up, and keeps how long each took."""
    for number in range(WARM_UP):
        call(number - WARM_UP)
    taken = []
    for number in range(times):
        start = time.perf_counter()
        call(number)
        taken.append((time.perf_counter() - start) * 1000)
    return Measured(name, taken)


def show(title: str, baseline: Measured, others: list[Measured]) -> None:
    table = Table(title=title)
    for column in ("", "p50 ms", "p95 ms", f"ratio to {baseline.name}"):
        table.add_column(column, justify="left" if not column else "right")
    for found in [baseline, *others]:
        table.add_row(found.name, f"{found.p50:.1f}", f"{found.p95:.1f}", f"{found.p50 / baseline.p50:.1f}")
    Console(width=110).print(table)
