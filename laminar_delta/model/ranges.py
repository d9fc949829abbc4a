"""Ids in few words: a chain of checkpoints is long, and its ids follow each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def ranges(numbers: Iterable[int]) -> str:
    """Ascending ids with what follows each other as one: `1-5, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def named(going: Mapping[str, Iterable[int]]) -> str:
    """Checkpoints of several pipelines."""
    return ", ".join(f"{ranges(numbers)} of {name!r}" for name, numbers in going.items())


def needed(needs: Iterable[tuple[str, int]], own: str) -> str:
    """The checkpoints that one of a pipeline needs; those of another pipeline behind its name."""
    found: dict[str, list[int]] = {}
    for pipeline, number in sorted(set(needs)):
        found.setdefault(pipeline, []).append(number)
    return ", ".join(
        ranges(numbers) if pipeline == own else f"{pipeline} {ranges(numbers)}" for pipeline, numbers in found.items()
    )
