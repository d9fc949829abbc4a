"""Bytes where they lie: neighbours are handed on as one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_delta.codec import Span, flat_view, runs
from laminar_delta.errors import InvalidInputError

WHOLE = memoryview(bytes(range(100)))
OTHER = memoryview(bytes(range(100)))

spans = st.builds(
    lambda whole, start, length: Span(whole, start, start + length),
    st.sampled_from([WHOLE, OTHER]),
    st.integers(0, 60),
    st.integers(0, 40),
)


@given(st.lists(spans))
def test_runs_are_the_same_bytes(given: list[Span]) -> None:
    assert b"".join(runs(given)) == b"".join(span.data for span in given)


def test_neighbours_of_the_same_bytes_are_one_and_others_are_not() -> None:
    given = [Span(WHOLE, 0, 3), Span(WHOLE, 3, 5), Span(OTHER, 5, 9), Span(OTHER, 10, 12), Span(OTHER, 9, 10)]
    assert [bytes(run) for run in runs(given)] == [bytes(range(5)), bytes(range(5, 9)), bytes((10, 11)), bytes((9,))]
    assert runs([]) == []


def test_references_are_no_bytes() -> None:
    """They are addresses, which say nothing once the process has ended."""
    for array in (np.array([b"one", b"two"], dtype=object), np.array([], dtype=object)):
        with pytest.raises(InvalidInputError, match="bytes are needed"):
            flat_view(array)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(InvalidInputError, match="bytes are needed"):
        flat_view(np.array(["2024-01-01"], dtype="datetime64[s]"))  # type: ignore[arg-type]  # the mistake under test
    named = np.array([(1, 2)], dtype=[("O", "i8"), ("a", "i8")])
    assert bytes(flat_view(named)) == named.tobytes()  # type: ignore[arg-type]  # buffers have no common type before 3.12
