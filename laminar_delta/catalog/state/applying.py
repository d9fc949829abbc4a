"""Application deltas: what changed as the application itself says it, and named functions that put it upon the state before.

A delta of this kind is stored as it is given, with the name of its function and the line of checkpoints it stands upon: the
last full state and the deltas since. A reader must know the function by the same name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laminar_delta.catalog.names import check_name
from laminar_delta.codec import StateSource
from laminar_delta.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from laminar_delta.catalog.state.layout import Layout

ApplyFunction = Callable[[bytes, bytes], bytes]
"""Makes the new state from the one before and a delta."""

_functions: dict[str, ApplyFunction] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class AppliedDelta:
    """A change of an operator partition's state, in the application's own terms."""

    data: StateSource
    apply: str
    """The name of the function that applies it."""
    given_at: int | None = field(default=None, repr=False, compare=False)
    """The turn of the writer's `Basis` when it was given: it says what changed since the state of then, and of no other."""

    def __post_init__(self) -> None:
        # It goes into a hash as text: see `given`.
        object.__setattr__(self, "apply", check_name("an apply function", self.apply))


def register_apply(name: str, function: ApplyFunction) -> None:
    """Makes a function known in this process under the name that deltas carry. Again under a name, it replaces."""
    known_as = check_name("an apply function", name)
    given: object = function
    if not callable(given):
        kind = type(given).__name__
        raise InvalidInputError(
            f"{known_as!r} is to apply deltas, and cannot be called", expected="a function", found=kind
        )
    with _lock:
        _functions[known_as] = function


def known() -> dict[str, ApplyFunction]:
    """The functions this process knows, to take along to others."""
    with _lock:
        return dict(_functions)


def take(functions: Mapping[str, ApplyFunction]) -> None:
    """Makes functions known that another process took along."""
    with _lock:
        _functions.update(functions)


def apply_delta(name: str, state: bytes, delta: bytes) -> bytes:
    """The state after a delta.

    Raises:
        NotFoundError: Nobody registered the function here.
        InvalidInputError: What it gives is no state.
    """
    function = _functions.get(name)
    if function is None:
        raise NotFoundError(
            f"the state has a delta to be applied by {name!r}, which is not known here",
            expected=name,
            found=sorted(_functions),
            next_step="Register the function with `register_apply` before reading.",
        )
    made: object = function(state, delta)
    if not isinstance(made, bytes | bytearray | memoryview):
        # Of a number, Python would make that many zeros.
        kind = type(made).__name__
        raise InvalidInputError(
            f"the function {name!r} gave no state but a {kind}",
            expected="bytes",
            found=kind,
            next_step="Register one that returns the new state.",
        )
    return bytes(made)


def applied(members: Sequence[Layout], states: Iterable[Iterator[memoryview]]) -> Iterator[bytes | memoryview]:
    """The state that the members of a line make: the only one's or, of deltas, that which they are applied to one by one."""
    stored = iter(states)
    if len(members) == 1:
        return next(stored)
    state = b"".join(next(stored))
    for delta, given in zip(members[1:], stored, strict=True):
        state = apply_delta(str(delta.apply), state, b"".join(given))
    return iter((state,))
