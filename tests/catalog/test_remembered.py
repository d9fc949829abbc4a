"""Decisions that are remembered: what a save reads does not grow with them, and no answer is older than the tables."""

import shutil
from collections.abc import Callable

import pytest

import laminar_delta as ld
from laminar_delta.catalog import remembered
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.remembered import memory_of
from laminar_delta.catalog.standing import RETIRED, standing
from laminar_delta.catalog.tables import MANIFESTS, RETENTION
from laminar_delta.engine.predicate import col
from tests.support.counting import rows_read

MANY = 300
"""Decisions in the table, far more than one save makes."""


def _retire(catalog: ld.Catalog, ids: range, pipeline: str = "orders") -> None:
    chosen = [Decision(checkpoint_id=number, word=RETIRED, reason="pruned") for number in ids]
    decide(catalog.engine, pipeline, lambda _: chosen, owner="keeper")


def _manifest(number: int) -> ld.CheckpointManifest:
    return ld.CheckpointManifest(version=1, checkpoint_id=number, epoch=number, timestamp_ms=1)


def test_a_save_reads_only_the_decisions_that_came_since(catalog: ld.Catalog) -> None:
    _retire(catalog, range(1, MANY + 1))
    store = ld.DeltaCheckpointStore(catalog, "orders", max_retained=1)
    for number in range(1001, 1004):
        store.save(_manifest(number))
    with rows_read(catalog.engine, RETENTION.name) as found:
        store.save(_manifest(1004))
        assert store.load_latest() == _manifest(1004)
        assert catalog.pipeline("orders").latest() == _manifest(1004)
    # The one that it made itself.
    assert sum(found) <= 1


def test_a_process_reads_all_decisions_once(open_again: Callable[[], ld.Catalog]) -> None:
    _retire(open_again(), range(1, MANY + 1))
    catalog = open_again()
    with rows_read(catalog.engine, RETENTION.name) as found, catalog.writer("orders") as writer:
        with writer.checkpoint(checkpoint_id=1001) as cp:
            cp.state("window", b"x" * 100_000)
        catalog.pipeline("orders").prune(ld.RetentionPolicy(keep_last=1))
        assert writer.recover().chosen_id == 1001
    assert MANY <= sum(found) <= MANY + 5


def test_what_another_process_decides_is_seen_at_once(open_again: Callable[[], ld.Catalog]) -> None:
    ours, theirs = open_again(), open_again()
    with ours.writer("orders") as writer:
        for _ in range(4):
            writer.checkpoint().commit()
    orders, also_orders = ours.pipeline("orders"), theirs.pipeline("orders")
    for keep, left in ((3, [2, 3, 4]), (2, [3, 4])):
        assert [head.checkpoint_id for head in orders.list()][-len(left) :] == left
        also_orders.prune(ld.RetentionPolicy(keep_last=keep))
        assert [head.checkpoint_id for head in orders.list()] == left
    orders.restore(1)
    assert also_orders.standing() == orders.standing()
    also_orders.pin(1, reason="audit")
    assert orders.standing().pinned == {1}
    assert orders.standing().last == 4


def test_what_is_remembered_is_what_is_read_anew(open_again: Callable[[], ld.Catalog]) -> None:
    catalog = open_again()
    orders = catalog.pipeline("orders")
    with catalog.writer("orders") as writer:
        for _ in range(5):
            writer.checkpoint().commit()
    steps: list[Callable[[], object]] = [
        lambda: orders.pin(1, reason="audit"),
        lambda: orders.prune(ld.RetentionPolicy(keep_last=2)),
        lambda: orders.restore(2),
        lambda: orders.unpin(1),
        lambda: orders.prune(ld.RetentionPolicy(keep_last=1)),
        lambda: catalog.engine.optimize(RETENTION.name),
        lambda: _retire(catalog, range(7, 9), "payments"),
        lambda: orders.restore(1),
    ]
    for step in steps:
        step()
        assert orders.standing() == open_again().pipeline("orders").standing()


def test_decisions_taken_out_stand_all_the_same_and_are_written_again(open_again: Callable[[], ld.Catalog]) -> None:
    catalog = open_again()
    _retire(catalog, range(1, 6))
    reading = catalog.reading
    assert standing(reading, "orders", searched=True).missing == ()
    catalog.engine.delete(RETENTION.name, col("ordinal").gt(2))
    seen = standing(reading, "orders", searched=True)
    assert (set(seen.retired), [row["ordinal"] for row in seen.missing]) == ({1, 2, 3, 4, 5}, [3, 4, 5])
    _retire(catalog, range(6, 7))
    assert catalog.engine.read(RETENTION.name).num_rows == 6
    for asked in (reading, open_again().reading):
        seen = standing(asked, "orders", searched=True)
        assert (set(seen.retired), seen.missing, seen.last) == (set(range(1, 7)), (), 6)


def test_a_table_that_goes_back_is_read_anew(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        for _ in range(3):
            writer.checkpoint().commit()
    orders = catalog.pipeline("orders")
    orders.prune(ld.RetentionPolicy(keep_last=1))
    version = catalog.engine.version(RETENTION.name)
    orders.restore(2)
    assert orders.standing().retired == {1}
    catalog.engine.restore(RETENTION.name, version)
    # The decision that is gone stands: an earlier version has it.
    assert standing(catalog.reading, "orders", searched=True).retired == {1}
    catalog.engine.restore(MANIFESTS.name, catalog.engine.version(MANIFESTS.name) - 1)
    assert [head.checkpoint_id for head in orders.list()] == [2]


def test_a_catalog_made_anew_at_the_same_place_has_none_of_the_decisions(catalog: ld.Catalog) -> None:
    place = catalog.engine.location
    engine = catalog.engine
    _retire(catalog, range(1, 4))
    assert standing(catalog.reading, "orders").retired == {1, 2, 3}
    made_anew: ld.Catalog
    if engine.name == "memory":
        vars(engine)["_tables"].clear()
        made_anew = ld.open_catalog(place, engine="memory", store=vars(engine)["_tables"])
    else:
        shutil.rmtree(place)
        made_anew = ld.open_catalog(place, engine=engine.name)
    # As many commits as there were before.
    _retire(made_anew, range(7, 8))
    assert made_anew.engine.version(RETENTION.name) == 1
    assert standing(catalog.reading, "orders").retired == {7}


def test_a_catalog_as_it_was_is_not_answered_from_memory(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        for _ in range(3):
            writer.checkpoint().commit()
    version = catalog.engine.version(RETENTION.name)
    orders = catalog.pipeline("orders")
    orders.prune(ld.RetentionPolicy(keep_last=1))
    assert orders.standing().retired == {1, 2}
    assert not catalog.as_of(versions={RETENTION.name: version}).pipeline("orders").standing().retired


def test_what_is_kept_is_bounded(catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST_DECISIONS", 10)
    for name in ("a", "b", "c"):
        _retire(catalog, range(1, 5), name)
        assert standing(catalog.reading, name).last == 4
    memory = memory_of(catalog.engine)
    assert [memory.recall(name) is not None for name in ("a", "b", "c")] == [False, True, True]
    # Never less than the pipeline that is asked for, however many it has.
    _retire(catalog, range(1, 40), "d")
    assert standing(catalog.reading, "d").last == 39
    assert [memory.recall(name) is not None for name in ("a", "b", "c", "d")] == [False, False, False, True]
