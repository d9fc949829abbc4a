"""What a state is stored upon: whether a delta is worth it, and upon what an application's own delta stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.state.applying import AppliedDelta
from laminar_delta.codec import block_name, flat_view
from laminar_delta.errors import ConflictError, InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.layout import Layout, Origin
    from laminar_delta.catalog.state.policy import StatePolicy
    from laminar_delta.catalog.state.staging import Layouts, States
    from laminar_delta.codec import StateSource


def origins(upon: Layout | None, attempt: Attempt, key: Key, policy: StatePolicy) -> tuple[Origin, ...]:
    """What an application delta stands upon: the state before, and what that stands upon."""
    operator, partition = key
    if upon is None or upon.origin is None:
        raise InvalidInputError(
            f"there is no state of operator {operator!r} partition {partition} to put a delta upon",
            expected="a checkpoint before, saved or recovered by this writer",
            found=None,
            next_step="Save the whole state first.",
        )
    if upon.origin.checkpoint_id >= attempt.checkpoint_id:
        raise ConflictError(
            f"checkpoint {upon.origin.checkpoint_id} was committed first: no delta of checkpoint {attempt.checkpoint_id} "
            f"can be put upon its state of operator {operator!r} partition {partition}",
            expected=f"a checkpoint below {attempt.checkpoint_id}",
            found=upon.origin.checkpoint_id,
            next_step="Save the whole state, under the next id.",
        )
    if len(upon.upon) >= policy.longest_chain:
        raise InvalidInputError(
            f"{len(upon.upon)} deltas stand upon the last full state of operator {operator!r} partition {partition}",
            expected=f"at most {policy.longest_chain}",
            found=len(upon.upon),
            next_step="Save the whole state this time.",
        )
    return (*upon.upon, upon.origin)


def check_upon(upon: Layouts, attempt: Attempt, states: States, policy: StatePolicy) -> None:
    """Raises what staging would raise for an application delta among the states that nothing is there for to stand upon."""
    for key, source in states.items():
        if isinstance(source, AppliedDelta):
            origins(upon.get(key), attempt, key, policy)


def is_stored_upon(upon: Layout, policy: StatePolicy) -> bool:
    """Whether a state that comes in pieces is begun as a delta upon a layout: nobody can look at it beforehand.

    As much is expected to have changed as the last time. What turns out otherwise is stored anew when its end is known: see
    `again`.
    """
    expected = upon.stores[-1].raw_bytes if len(upon.stores) > 1 else 0
    grown = upon.stored_bytes + expected
    return upon.may_grow(policy) and upon.blocks > 0 and is_bounded(grown, upon.length, policy)


def is_worth_a_delta(upon: Layout, source: StateSource, policy: StatePolicy) -> bool:
    """Whether a delta upon a layout is to be stored. Looked at beforehand where that costs no more than hashing."""
    if not isinstance(source, (bytes, bytearray, memoryview)):
        return is_stored_upon(upon, policy)
    if not upon.may_grow(policy) or upon.blocks == 0:
        return False
    view = flat_view(source)
    changed, whole = _distinct(view, set(upon.names_from(0, upon.blocks)), policy.block_bytes)
    # The second also for a state that shrank: what the one before stored would be more than all of it.
    is_little = changed <= whole * policy.most_changed
    return is_little and is_bounded(upon.stored_bytes + changed, len(view), policy)


def _distinct(view: memoryview, known: set[bytes], size: int) -> tuple[int, int]:
    """How many bytes a delta would store, and how many a snapshot: of blocks that are equal, one."""
    seen: set[bytes] = set()
    changed = whole = 0
    for at in range(0, len(view), size):
        block = view[at : at + size]
        name = block_name(block)
        if name in seen:
            continue
        seen.add(name)
        whole += len(block)
        changed += 0 if name in known else len(block)
    return changed, whole


def is_bounded(stored: int, length: int, policy: StatePolicy) -> bool:
    """Whether a chain that stores so much of a state of this length may go on."""
    return stored <= length * (1 + policy.most_stale)
