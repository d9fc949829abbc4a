"""State as callers give it: whose it is and what it comes from, checked before anything of it is begun.

What identifies a state goes into hashes as text, so it has to be the plain text that a reader will find in the row: an enum's
member, or another kind of `str`, would be another one there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.names import check_name, check_text
from laminar_delta.catalog.state.applying import AppliedDelta
from laminar_delta.codec import check_source, is_read_once, is_used_up
from laminar_delta.errors import InvalidInputError, SessionStateError
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
        InvalidInputError: They are not by operator and partition, one comes from something that has no bytes, or two from
            one file or iterator.
        SessionStateError: One comes from a file or an iterator that is used up.
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
    check_apart(found.items())
    _check_readable(found)
    return found


def given_source(source: Any) -> Any:
    """Where a state comes from. Raises `InvalidInputError` for what can be the state of nothing, such as text."""
    check_source(_data(source))
    return source


def check_apart(states: Iterable[tuple[Key, StateSource | AppliedDelta]]) -> None:
    """Raises `InvalidInputError` when one file or iterator is to be several states: all but the first would be empty."""
    found: dict[int, Key] = {}
    for key, source in states:
        data = _data(source)
        if not is_read_once(data):
            continue
        if id(data) in found:
            first = found[id(data)]
            raise InvalidInputError(
                f"partition {first[1]} of operator {first[0]!r} and partition {key[1]} of operator {key[0]!r} have the same "
                "source, which can be read only once",
                expected="a source for each",
                found=type(data).__name__,
            )
        found[id(data)] = key


def _check_readable(states: Mapping[Key, StateSource | AppliedDelta]) -> None:
    used_up = sorted(key for key, source in states.items() if is_used_up(_data(source)))
    if used_up:
        raise SessionStateError(
            f"the state of operator {used_up[0][0]!r} partition {used_up[0][1]} can be read only once, and was read before: "
            "by a save that failed, or for another checkpoint",
            expected="states given as bytes, or not read from yet",
            found=used_up,
            next_step="Give the state anew, or put the file back to where it was.",
        )


def _data(source: Any) -> Any:
    return source.data if isinstance(source, AppliedDelta) else source


def _no_states(found: object) -> InvalidInputError:
    kind = f"a {type(found).__name__}"
    return InvalidInputError(
        f"states are given by operator and partition, not by {kind}",
        expected="a mapping from (operator, partition)",
        found=kind,
        next_step='Give each as `{("operator", 0): data}`.',
    )
