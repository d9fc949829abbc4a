"""Rescaling: every vnode has one owner before and one after, and is read exactly once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_delta.catalog.state.vnodes import partition_of, rescale, vnode_ranges
from laminar_delta.errors import InvalidInputError


@given(vnodes=st.integers(1, 400), old=st.integers(1, 40), new=st.integers(1, 40))
def test_every_vnode_is_read_once_from_where_it_was(vnodes: int, old: int, new: int) -> None:
    if vnodes < max(old, new):
        with pytest.raises(InvalidInputError):
            rescale(vnodes, old, new)
        return
    before = {vnode: number for number, own in enumerate(vnode_ranges(vnodes, old)) for vnode in own}
    assert sorted(before) == list(range(vnodes))
    assert all(partition_of(vnode, vnodes, old) == number for vnode, number in before.items())
    read = [
        (vnode, number) for sources in rescale(vnodes, old, new) for number, own in sources.items() for vnode in own
    ]
    assert sorted(read) == sorted(before.items())
    sizes = [len(own) for own in vnode_ranges(vnodes, new)]
    assert max(sizes) - min(sizes) <= 1


def test_a_vnode_that_is_none_is_refused() -> None:
    for vnode in (-1, 8):
        with pytest.raises(InvalidInputError):
            partition_of(vnode, 8, 2)


@pytest.mark.parametrize("given", [(1, 4, 0), (1, 4, 9), (1, 4, 2.0), ("1", 4, 2), (True, 4, 2)])
def test_what_cannot_be_divided_has_no_partition(given: Any) -> None:
    with pytest.raises(InvalidInputError):
        partition_of(*given)


@pytest.mark.parametrize("given", [(256, 2.0, 3), (256, 2, "3"), (None, 2, 3), (0, 0, 0)])
def test_what_is_no_count_is_not_rescaled(given: Any) -> None:
    with pytest.raises(InvalidInputError):
        rescale(*given)
