"""The catalog as it was: nothing of what came later is in it, and nothing is written through it."""

from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import MANIFESTS, RECOVERIES, RETENTION, TABLES
from laminar_delta.errors import InvalidInputError, NotFoundError, SessionStateError
from laminar_delta.model.manifest import now_ms
from tests.support.catalogs import ENGINES, QUICK_ENGINES, ready_made


@pytest.fixture(params=QUICK_ENGINES)
def quick(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    """For what is refused before anything is asked of an engine."""
    return ready_made(request.param, tmp_path / "catalog", request)()


@pytest.fixture(params=ENGINES)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    made = ready_made(request.param, tmp_path / "catalog", request)()
    with made.writer("orders") as writer:
        for _ in range(2):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": str(cp.id)})
    return made


def test_the_audit_of_the_past_ends_then(catalog: ld.Catalog) -> None:
    versions = {spec.name: catalog.engine.version(spec.name) for spec in TABLES}
    before = catalog.audit()
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "3"})
    past = catalog.as_of(versions=versions)
    assert len(catalog.audit()) > len(before)
    assert past.audit() == before
    assert past.audit(limit=3) == before[:3]
    assert past.audit(pipeline="orders") == [entry for entry in before if entry.pipeline == "orders"]
    assert max(entry.checkpoint_id or 0 for entry in past.audit()) == 2


def test_a_time_is_the_catalog_as_it_was_then(open_again: Callable[[], ld.Catalog]) -> None:
    """What was saved and retired since is not in it, what was retired since is, and its state reads as it did."""
    catalog = open_again()
    state = [bytes([number]) * 100_000 for number in (1, 2)]
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
        cp.state("agg", state[0])
    then = _after_all(catalog)
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "2"})
        cp.state("agg", state[1])
    orders = catalog.pipeline("orders")
    assert orders.prune(ld.RetentionPolicy(keep_last=1)).retire == (1,)
    assert [head.checkpoint_id for head in orders.list()] == [2]
    was = catalog.as_of(timestamp_ms=then)
    past = was.pipeline("orders")
    assert was.pipelines() == ["orders"]
    assert [head.checkpoint_id for head in past.list()] == [1]
    latest = past.latest()
    assert latest is not None
    assert (latest.checkpoint_id, latest.source_offsets["kafka"].offsets) == (1, {"0": "1"})
    assert past.state(1).read("agg") == state[0]
    assert past.recover().chosen_id == 1
    with pytest.raises(NotFoundError):
        past.get(2)
    # And what is now is as it was.
    assert orders.state(2).read("agg") == state[1]


def _after_all(catalog: ld.Catalog) -> int:
    """A time at which everything so far is there and nothing else: the engines' clocks have moved on when it returns."""
    then = max(catalog.engine.history(spec.name, limit=1)[0].timestamp_ms for spec in TABLES)
    while now_ms() <= then + 1:
        pass
    return then + 1


def test_nothing_is_written_through_the_past(catalog: ld.Catalog) -> None:
    # Of a table that has nothing to do with what is written.
    past = catalog.as_of(versions={RECOVERIES.name: 0}).pipeline("orders")
    written = [catalog.engine.version(name) for name in (RETENTION.name, RECOVERIES.name)]
    assert not past.recover().stored
    for write in (
        lambda: past.pin(1, reason="audit"),
        lambda: past.unpin(1),
        lambda: past.restore(1),
        lambda: past.prune(ld.RetentionPolicy(keep_last=1)),
        past.remove_orphans,
    ):
        with pytest.raises(SessionStateError, match="as it was"):
            write()
    assert [catalog.engine.version(name) for name in (RETENTION.name, RECOVERIES.name)] == written
    # Also where somebody makes such a catalog without saying which versions it is of.
    with pytest.raises(SessionStateError, match="as it was"):
        ld.Catalog(catalog.engine, {}).pipeline("orders").pin(1, reason="audit")


@pytest.mark.parametrize(
    "asked",
    [
        {"versions": {}},
        {"versions": "manifests"},
        {"versions": {MANIFESTS.name: -1}},
        {"versions": {MANIFESTS.name: 2**70}},
        {"versions": {MANIFESTS.name: "1"}},
        {"versions": {MANIFESTS.name: True}},
        {"versions": {"manifestos": 1}},
        {"timestamp_ms": "2026-01-01"},
        {"timestamp_ms": 1.5},
        {"timestamp_ms": True},
        {},
        {"timestamp_ms": 1, "versions": {MANIFESTS.name: 1}},
    ],
)
def test_a_past_that_cannot_be_is_refused(quick: ld.Catalog, asked: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        quick.as_of(**asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [-1, 2**70, "3", 1.5])
def test_an_audit_of_no_number_is_refused(quick: ld.Catalog, limit: object) -> None:
    with pytest.raises(InvalidInputError):
        quick.audit(limit=limit)  # type: ignore[arg-type]
    assert quick.audit(limit=0) == []
