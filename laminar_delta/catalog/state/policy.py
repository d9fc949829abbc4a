"""How state is cut and stored. One set of numbers, measured; see `benchmarks/state.py`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from laminar_delta.codec import BLOCK_BYTES
from laminar_delta.codec.lz4block import MAX_RAW_BYTES
from laminar_delta.errors import InvalidInputError
from laminar_delta.model.ids import check_ordering_number


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePolicy:
    """How the state of an operator partition is stored."""

    block_bytes: int = BLOCK_BYTES
    """The unit in which changes are found. Smaller ones store less of a scattered change and cost a name each."""
    chunk_bytes: int = 1 << 20
    """Raw bytes compressed together: what a reader has to decompress to get at one block."""
    part_bytes: int = 32 << 20
    """About how many stored bytes one append carries: bounds the memory a save needs, whatever the state's size.
    On an object store half of it: what is being uploaded is held too."""
    longest_chain: int = 16
    """How many checkpoints may together store one state before it is stored anew."""
    most_stale: float = 0.75
    """How many bytes that a state no longer has, in parts of its length, its chain may hold before it is stored anew."""
    most_changed: float = 0.5
    """The part of a state that may have changed for a delta to be worth its chain."""

    inline_bytes: int = 16 << 10
    """State up to this size stays in the manifest row: it costs no commit of its own, and listing checkpoints does not read it.
    The benchmark `state` shows where this stops being faster."""
    inline_together_bytes: int = 256 << 10
    """What may stay in the manifest row of all operators together, but never less than of one. Of more, none stays: the commit
    is due anyway. A save would be faster inline up to some megabytes, but recovery holds the rows of all checkpoints."""

    def __post_init__(self) -> None:
        may_be_none = ("inline_bytes", "inline_together_bytes")
        for name in ("block_bytes", "chunk_bytes", "part_bytes", "longest_chain", *may_be_none):
            value = check_ordering_number(name, getattr(self, name))
            if value < 1 and name not in may_be_none:
                raise InvalidInputError(f"{name} is too small", expected="1 or more", found=value)
            object.__setattr__(self, name, value)
        for name in ("most_stale", "most_changed"):
            part = getattr(self, name)
            if isinstance(part, bool) or not isinstance(part, int | float) or math.isnan(part):
                raise InvalidInputError(
                    f"{name} is no number", expected="a part of the state's length", found=str(part)
                )
        if self.chunk_bytes > MAX_RAW_BYTES:
            raise InvalidInputError(
                "a chunk is compressed as one", expected=f"at most {MAX_RAW_BYTES}", found=self.chunk_bytes
            )
        if self.chunk_bytes < self.block_bytes:
            raise InvalidInputError(
                "a chunk holds whole blocks", expected=f"at least {self.block_bytes}", found=self.chunk_bytes
            )
        if self.most_stale < 0 or not 0 <= self.most_changed <= 1:
            raise InvalidInputError(
                "a chain's bounds are parts of the state's length",
                expected="most_stale >= 0, 0 <= most_changed <= 1",
                found=(self.most_stale, self.most_changed),
            )


DEFAULT_POLICY = StatePolicy()
