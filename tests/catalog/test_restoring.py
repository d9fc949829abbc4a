"""Restoring brings back what can be read: with what it needs, or not at all."""

import datetime as dt
import random

import pytest

import laminar_delta as ld
from laminar_delta.catalog import clock, decisions, needs
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.removal import remove_retired
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.standing import REMOVED, RETIRED
from laminar_delta.engine.base import Engine
from laminar_delta.errors import ConflictError

A_DAY = dt.timedelta(days=1)
LAST_ONLY = RetentionPolicy(keep_last=1)


def _ids(catalog: ld.Catalog, pipeline: str = "orders") -> list[int]:
    return [head.checkpoint_id for head in catalog.pipeline(pipeline).list()]


def _chain(catalog: ld.Catalog) -> bytes:
    """Checkpoint 2 is stored as what changed since 1, and 3 is whole again. The state of 2."""
    state = bytearray(random.Random(1).randbytes(500_000))
    with catalog.writer("orders") as writer:
        with writer.checkpoint() as cp:
            cp.state("window", bytes(state), inline=False)
        state[5] ^= 1
        with writer.checkpoint() as cp:
            cp.state("window", bytes(state), inline=False)
        with writer.checkpoint() as cp:
            cp.state("window", random.Random(2).randbytes(500_000), inline=False)
    assert [tuple(head.state_needs) for head in catalog.pipeline("orders").list()] == [(), (1,), ()]
    return bytes(state)


def _fork(catalog: ld.Catalog) -> None:
    """Checkpoint 1 of `copy` uses the state of 1 of `orders`; each pipeline has gone on since."""
    with catalog.writer("orders") as writer:
        for seed in range(2):
            with writer.checkpoint() as cp:
                cp.state("window", random.Random(seed).randbytes(100_000), inline=False)
    with catalog.writer("copy") as writer:
        writer.fork("orders", 1, reason="try")
        writer.checkpoint().commit()


def test_what_a_restored_checkpoint_needs_comes_back_with_it(catalog: ld.Catalog) -> None:
    state = _chain(catalog)
    orders = catalog.pipeline("orders")
    assert orders.prune(LAST_ONLY).retire == (1, 2)
    orders.restore(2, reason="look at it")
    assert _ids(catalog) == [1, 2, 3]
    assert remove_retired(catalog.engine, "orders", grace=dt.timedelta(0), owner="ops") == ()
    assert orders.state(2).read("window") == state


def test_what_can_still_be_restored_keeps_what_it_needs(catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    state = _chain(catalog)
    orders = catalog.pipeline("orders")
    now = clock.now()
    with monkeypatch.context() as earlier:
        earlier.setattr(decisions, "now", lambda: now - 2 * A_DAY)
        retired = [Decision(checkpoint_id=1, word=RETIRED)]
        decide(catalog.engine, "orders", lambda _: retired, owner="ops")
    orders.prune(LAST_ONLY)
    assert _ids(catalog) == [3]
    policy = MaintenancePolicy(grace=A_DAY, vacuum=False)
    assert catalog.maintain(policy, dry_run=True).removed == {}
    assert catalog.maintain(policy).removed == {}
    orders.restore(2)
    assert (_ids(catalog), orders.state(2).read("window")) == ([1, 2, 3], state)


def test_what_can_still_be_restored_keeps_the_state_of_another_pipeline(
    catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fork(catalog)
    now = clock.now()
    catalog.pipeline("copy").prune(LAST_ONLY)
    with monkeypatch.context() as earlier:
        earlier.setattr(decisions, "now", lambda: now - 2 * A_DAY)
        catalog.pipeline("orders").prune(LAST_ONLY)
    assert (_ids(catalog), _ids(catalog, "copy")) == ([2], [2])
    assert remove_retired(catalog.engine, "orders", grace=A_DAY, owner="ops") == ()
    catalog.pipeline("copy").restore(1)
    assert (_ids(catalog), _ids(catalog, "copy")) == ([1, 2], [1, 2])
    assert catalog.pipeline("copy").validate(1).valid


def test_a_checkpoint_is_not_restored_without_what_it_needs(catalog: ld.Catalog) -> None:
    _chain(catalog)
    orders = catalog.pipeline("orders")
    orders.prune(LAST_ONLY)
    # As maintenance removed it before it looked at what can be restored.
    removed = [Decision(checkpoint_id=1, word=REMOVED)]
    decide(catalog.engine, "orders", lambda _: removed, owner="ops")
    with pytest.raises(ConflictError, match="needs checkpoint 1 of 'orders', which maintenance removed") as refused:
        orders.restore(2)
    assert (refused.value.expected, refused.value.found) == ("retained", "removed")
    assert (_ids(catalog), orders.standing().last) == ([3], 3)


def test_a_checkpoint_is_not_restored_without_the_state_of_another_pipeline(catalog: ld.Catalog) -> None:
    _fork(catalog)
    catalog.pipeline("copy").prune(LAST_ONLY)
    catalog.pipeline("orders").prune(LAST_ONLY)
    removed = [Decision(checkpoint_id=1, word=REMOVED)]
    decide(catalog.engine, "orders", lambda _: removed, owner="ops")
    with pytest.raises(ConflictError, match="needs checkpoint 1 of 'orders'"):
        catalog.pipeline("copy").restore(1)
    assert _ids(catalog, "copy") == [2]


def test_of_restoring_and_removing_what_it_needs_one_comes_first(
    catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fork(catalog)
    catalog.pipeline("copy").prune(LAST_ONLY)
    catalog.pipeline("orders").prune(LAST_ONLY)
    real = needs.restore_needed

    def after_removal(engine: Engine, pipeline: str, *, owner: str) -> frozenset[int]:
        removed = [Decision(checkpoint_id=1, word=REMOVED)]
        decide(engine, pipeline, lambda _: removed, owner="ops")
        return real(engine, pipeline, owner=owner)

    monkeypatch.setattr(needs, "restore_needed", after_removal)
    with pytest.raises(ConflictError, match="needs checkpoint 1 of 'orders'"):
        catalog.pipeline("copy").restore(1)
    assert (_ids(catalog), _ids(catalog, "copy")) == ([2], [2])
