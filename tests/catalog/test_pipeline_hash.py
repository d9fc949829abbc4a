"""The hash of a pipeline: the same for the same configuration, whoever computes it and whenever."""

import itertools

import pytest

import laminar_delta as ld
from laminar_delta.errors import InvalidInputError

QUERIES = {"totals": "SELECT sum(x) FROM orders", "é": "SELECT 1"}
EMPTY = 5885060162989475698
WHOLE = 64194851529522140


def test_it_is_what_it_was_in_the_first_release() -> None:
    """Pinned: checkpoints that are saved carry it."""
    assert ld.pipeline_hash() == EMPTY
    assert ld.pipeline_hash(sources=["orders", "rates"], sinks=["lake"], queries=QUERIES) == WHOLE


def test_the_order_in_which_parts_are_given_does_not_matter() -> None:
    found = {
        ld.pipeline_hash(sources=sources, sinks=sinks, queries=dict(queries))
        for sources in itertools.permutations(["a", "b", "c"])
        for sinks in (["x", "y"], {"y": 0, "x": 1}.keys())
        for queries in (list(QUERIES.items()), list(QUERIES.items())[::-1])
    }
    assert len(found) == 1


def test_what_is_another_pipeline_has_another_hash() -> None:
    found = [
        ld.pipeline_hash(),
        ld.pipeline_hash(sources=["a"]),
        ld.pipeline_hash(sinks=["a"]),
        ld.pipeline_hash(sources=["a", "a"]),
        ld.pipeline_hash(sources=["a,b"]),
        ld.pipeline_hash(sources=["a", "b"]),
        ld.pipeline_hash(sources=['a","b']),
        ld.pipeline_hash(queries={"a": "b"}),
        ld.pipeline_hash(queries={"a": "b "}),
        ld.pipeline_hash(queries={"b": "a"}),
    ]
    assert len(set(found)) == len(found)
    assert all(0 <= value < 2**64 for value in found)


@pytest.mark.parametrize(
    "given", [{"sources": "orders"}, {"sinks": [1]}, {"sinks": {"a": "b"}}, {"queries": ["a"]}, {"queries": {"a": 1}}]
)
def test_what_is_no_name_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        ld.pipeline_hash(**given)  # type: ignore[arg-type]


def test_recovery_reports_that_a_pipeline_changed() -> None:
    catalog = ld.open_catalog("memory", engine="memory")
    saved = ld.pipeline_hash(sources=["orders"], sinks=["lake"])
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.describe(pipeline_hash=saved)
    orders = catalog.pipeline("orders")
    assert orders.recover(pipeline_hash=saved, dry_run=True).notes == ()
    (note,) = orders.recover(pipeline_hash=ld.pipeline_hash(sources=["orders"]), dry_run=True).notes
    assert "the pipeline changed" in note
