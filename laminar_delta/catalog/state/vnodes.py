"""Vnodes and partitions: which partitions of a saved state a rescaled pipeline has to read.

Keys belong to a fixed number of vnodes, and vnodes to partitions in contiguous, nearly equal ranges. When the number of
partitions changes, a new partition's keys lie in the old partitions whose ranges overlap its own; nothing else has to be read.
"""

from __future__ import annotations

from laminar_delta.errors import InvalidInputError
from laminar_delta.model.ids import check_ordering_number


def vnode_ranges(vnode_count: int, partitions: int) -> list[range]:
    """The vnodes of each partition: contiguous, in order, differing by one at most."""
    _check_divides(vnode_count, partitions)
    return [
        range(number * vnode_count // partitions, (number + 1) * vnode_count // partitions)
        for number in range(partitions)
    ]


def _check_divides(vnode_count: int, partitions: int) -> None:
    check_ordering_number("vnode_count", vnode_count)
    check_ordering_number("partitions", partitions)
    if partitions < 1 or vnode_count < partitions:
        raise InvalidInputError(
            f"{vnode_count} vnodes cannot be divided among {partitions} partitions",
            expected="at least one vnode for each partition",
            found=(vnode_count, partitions),
        )


def partition_of(vnode: int, vnode_count: int, partitions: int) -> int:
    """The partition that has a vnode."""
    _check_divides(vnode_count, partitions)
    if not 0 <= check_ordering_number("vnode", vnode) < vnode_count:
        raise InvalidInputError(f"there is no vnode {vnode}", expected=f"0 to {vnode_count - 1}", found=vnode)
    # The inverse of the ranges: the largest partition whose range begins at or before the vnode.
    return ((vnode + 1) * partitions - 1) // vnode_count


def rescale(vnode_count: int, old: int, new: int) -> list[dict[int, range]]:
    """For each new partition the old ones to read, and of each the vnodes whose keys are now its own."""
    old_ranges = vnode_ranges(vnode_count, old)
    plan: list[dict[int, range]] = []
    for mine in vnode_ranges(vnode_count, new):
        shared = {
            number: range(max(mine.start, theirs.start), min(mine.stop, theirs.stop))
            for number, theirs in enumerate(old_ranges)
        }
        plan.append({number: vnodes for number, vnodes in shared.items() if vnodes})
    return plan
