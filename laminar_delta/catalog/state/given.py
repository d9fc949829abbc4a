"""State as callers give it: whose it is and what it comes from, checked before anything of it is begun.

What identifies a state goes into hashes as text, so it has to be the plain text that a reader will find in the row: an enum's
member, or another kind of `str`, would be another one there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.names import check_name, check_text
from laminar_delta.catalog.state.applying import AppliedDelta
from laminar_delta.codec import flat_view
from laminar_delta.errors import InvalidInputError
from laminar_delta.model.ids import check_ordering_number
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import I64_RANGE

if TYPE_CHECKING:
    from laminar_delta.codec import StateSource

Key = tuple[str, int]
"""Operator and partition."""


def given_key(operator: object, partition: Any) -> Key:
    """Whose state is to be saved. Raises `InvalidInputError` for what no operator partition is called."""
    return check_name("an operator", operator), check_ordering_number("partition", partition)


def wanted_key(operator: object, partition: Any) -> Key:
    """Whose state is to be read. Only what no row could have is refused: whatever is there can be asked for."""
    try:
        number = I64_RANGE.take(partition)
    except Mismatch as mismatch:
        raise mismatch.as_input_error("partition") from None
    return check_text("operator", operator), number


def given_states(states: Any) -> dict[Key, StateSource | AppliedDelta]:
    """States by operator and partition, as they are stored; none for None.

    Raises:
        InvalidInputError: They are not by operator and partition, or one comes from something that has no bytes.
    """
    if states is None:
        return {}
    if not isinstance(states, Mapping):
        raise _no_states(states)
    found: dict[Key, StateSource | AppliedDelta] = {}
    for key, source in states.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise _no_states(key)
        found[given_key(*key)] = given_source(source)
    return found


def given_source(source: Any) -> Any:
    """Where a state comes from. Pieces are looked at when they come; text is refused, which would pass as some."""
    data = source.data if isinstance(source, AppliedDelta) else source
    if hasattr(data, "readinto") or hasattr(data, "read"):
        return source
    if isinstance(data, str) or not isinstance(data, Iterable):
        flat_view(data)  # type: ignore[arg-type]  # whatever has bytes may be given; it raises for all else
    return source


def is_bytes(source: Any) -> bool:
    """Whether a state is there as a whole, and can be read again. Files and pieces are at their end then."""
    data: Any = source.data if isinstance(source, AppliedDelta) else source
    try:
        memoryview(data)
    except TypeError:
        return False
    return True


def _no_states(found: object) -> InvalidInputError:
    kind = f"a {type(found).__name__}"
    return InvalidInputError(
        f"states are given by operator and partition, not by {kind}",
        expected="a mapping from (operator, partition)",
        found=kind,
        next_step='Give each as `{("operator", 0): data}`.',
    )
