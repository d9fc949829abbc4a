"""Bytes where they lie: neighbours are handed on as one."""

from hypothesis import given
from hypothesis import strategies as st

from laminar_delta.codec import Span, runs

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
