"""The named races of recovery and retention: late words of a zombie, pins and prunes, saves that need what is going."""

from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.tables import MANIFESTS, RETENTION, SINK_STATUSES, WRITERS
from laminar_delta.errors import ConflictError, FencedError, NotFoundError
from tests.support.catalogs import ENGINES_SPARK_IN_SOAK, ready_made
from tests.support.scenes import AT_ONCE, NEEDING, assert_kept, begin, needing, save, visible
from tests.support.stepping import stopped

Opener = Callable[[], ld.Catalog]

KEEP_ONE = RetentionPolicy(keep_last=1)


@pytest.fixture(params=ENGINES_SPARK_IN_SOAK)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return ready_made(request.param, tmp_path / "catalog", request)


# -- late words of a zombie -----------------------------------------------------------------------------------------------


def test_late_status_of_an_abandoned_checkpoint(open_again: Opener) -> None:
    """The zombie has looked who holds the pipeline; it is overtaken, and then appends."""
    old = open_again().writer("orders", owner="old")
    old.sink_committed(save(old, sink=True), "warehouse")
    save(old, sink=True)
    with stopped(lambda: old.sink_committed(2, "warehouse"), old.engine, "_append", table=SINK_STATUSES.name) as zombie:
        new = open_again().writer("orders", owner="new")
        assert new.recover().chosen_id == 1
    zombie.result()
    assert open_again().pipeline("orders").get(2).sink_commit_statuses["warehouse"].is_committed
    assert new.recover().chosen_id == 1
    assert open_again().writer("orders").recover().chosen_id == 1


def test_zombies_abandon_against_the_successors_choice(open_again: Opener) -> None:
    """The zombie has looked who holds the pipeline; its successor chooses what the zombie then abandons."""
    old = open_again().writer("orders", owner="old")
    old.sink_committed(save(old, sink=True), "warehouse")
    save(old, sink=True)
    with stopped(old.recover, old.engine, "_append", table=RETENTION.name) as zombie:
        new = open_again().writer("orders", owner="new")
        new.sink_committed(2, "warehouse")
        assert new.recover().chosen_id == 2
    with pytest.raises(FencedError):
        zombie.result()
    assert open_again().writer("orders").recover().chosen_id == 2


def test_zombies_abandon_lands_while_the_successor_chooses(open_again: Opener) -> None:
    """The other way round: the successor has walked; before its choice is recorded the zombie's abandonment arrives."""
    old = open_again().writer("orders", owner="old")
    old.sink_committed(save(old, sink=True), "warehouse")
    save(old, sink=True)
    with stopped(old.recover, old.engine, "_append", table=RETENTION.name) as zombie:
        new = open_again().writer("orders", owner="new")
        new.sink_committed(2, "warehouse")
        with stopped(new.recover, new.engine, "_append", table=RETENTION.name) as successor:
            zombie.finish()
    # The abandonment was made by who held the pipeline when it looked; the successor goes by it and chooses again.
    assert zombie.result().chosen_id == 1
    assert successor.result().chosen_id == 1
    assert open_again().pipeline("orders").recover(dry_run=True).chosen_id == 1
    assert open_again().writer("orders").recover().chosen_id == 1


# -- pins -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [MANIFESTS.name, RETENTION.name])
def test_pin_against_prune(open_again: Opener, table: str) -> None:
    """A prune comes between a pin's look and its decision: the pin is refused, never told and void."""
    writer = open_again().writer("orders")
    for _ in range(3):
        save(writer)
    catalog = open_again()
    call = "_append" if table == RETENTION.name else "scan"
    with stopped(
        lambda: catalog.pipeline("orders").pin(1, reason="audit"), catalog.engine, call, table=table
    ) as pinning:
        assert open_again().pipeline("orders").prune(KEEP_ONE).retire == (1, 2)
    with pytest.raises(ConflictError):
        pinning.result()
    assert visible(open_again) == [3]
    open_again().pipeline("orders").restore(1)
    open_again().pipeline("orders").pin(1, reason="audit")
    assert 1 not in open_again().pipeline("orders").prune(KEEP_ONE).retire


# -- coming to need what is going -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", NEEDING)
def test_save_or_derive_against_prune(open_again: Opener, how: str) -> None:
    """It has everything staged, a prune retires what it needs, it commits: what it needs is there again."""
    writer, forked = begin(open_again)
    saver = forked if how == "fork" else writer
    with stopped(needing(how, writer, forked), saver.engine, "_append", table=MANIFESTS.name) as saving:
        assert 1 in open_again().pipeline("orders").prune(KEEP_ONE).retire
    saving.result()
    assert_kept(open_again, how)


@pytest.mark.parametrize("how", NEEDING)
def test_prune_against_save_or_derive(open_again: Opener, how: str) -> None:
    """A prune has planned, something that needs what it retires commits, the prune goes on: what is needed is there again."""
    writer, forked = begin(open_again)
    catalog = open_again()
    with stopped(
        lambda: catalog.pipeline("orders").prune(KEEP_ONE), catalog.engine, "_append", table=RETENTION.name
    ) as pruning:
        needing(how, writer, forked)()
    assert 1 not in pruning.result().retire
    assert_kept(open_again, how)


@pytest.mark.parametrize("how", NEEDING)
def test_save_or_derive_against_removal(open_again: Opener, how: str) -> None:
    """What it needs is pruned and removed for good while it stages: it is told, and leaves nothing that looks usable."""
    writer, forked = begin(open_again)
    saver, name = (forked, "returns") if how == "fork" else (writer, "orders")
    with stopped(needing(how, writer, forked), saver.engine, "_append", table=MANIFESTS.name) as saving:
        open_again().pipeline("orders").prune(KEEP_ONE)
        assert 1 in open_again().maintain(AT_ONCE).removed["orders"]
    with pytest.raises(ConflictError, match="removed"):
        saving.result()
    assert visible(open_again, name) == ([] if how == "fork" else [3])
    assert open_again().pipeline(name).recover(dry_run=True).chosen_id == (None if how == "fork" else 3)
    # The next save goes on.
    assert save(saver) in visible(open_again, name)


@pytest.mark.parametrize("how", NEEDING)
def test_removal_against_save_or_derive(open_again: Opener, how: str) -> None:
    """Maintenance has planned its removal; something that needs what it removes commits. One of the two is told."""
    writer, forked = begin(open_again)
    open_again().pipeline("orders").prune(KEEP_ONE)
    catalog = open_again()
    with stopped(lambda: catalog.maintain(AT_ONCE), catalog.engine, "_append", table=RETENTION.name) as removing:
        open_again().pipeline("orders").restore(1)
        needing(how, writer, forked)()
    assert 1 not in removing.result().removed.get("orders", ())
    assert_kept(open_again, how)


def test_restore_against_removal(open_again: Opener) -> None:
    """Removed while it was about to be restored: refused, and not restored into a hole."""
    begin(open_again)
    catalog = open_again()
    catalog.pipeline("orders").prune(KEEP_ONE)
    with stopped(
        lambda: catalog.pipeline("orders").restore(1), catalog.engine, "_append", table=RETENTION.name
    ) as restoring:
        assert open_again().maintain(AT_ONCE).removed == {"orders": (1, 2)}
    with pytest.raises(NotFoundError):
        restoring.result()
    assert visible(open_again) == [3]


def test_takeover_between_a_recoverys_look_and_its_choice(open_again: Opener) -> None:
    """A recovery that was overtaken while it chose says so, and leaves nothing behind."""
    old = open_again().writer("orders", owner="old")
    old.sink_committed(save(old, sink=True), "warehouse")
    save(old, sink=True)
    with stopped(old.recover, old.engine, "scan", table=WRITERS.name) as overtaken:
        open_again().writer("orders", owner="new")
    with pytest.raises(FencedError, match="new"):
        overtaken.result()
    assert open_again().engine.read(RETENTION.name).num_rows == 0
