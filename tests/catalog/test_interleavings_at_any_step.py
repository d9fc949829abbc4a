"""The races again, without knowing where they are: one side is stopped at every single call it makes of its engine, in turn.

`test_interleavings` and `test_interleavings_of_decisions` have the steps that are known to matter, by name.
"""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.attempt import stage_offsets
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.errors import ConflictError, FencedError, NotFoundError
from tests.support.catalogs import MEMORY_AND_EMBEDDED_IN_SOAK, ready_made
from tests.support.scenes import DERIVING, NEEDING, assert_kept, assert_sound, begin, manifest, needing, save, visible
from tests.support.stepping import STEPS, NeverCame, stopped

Opener = Callable[[], ld.Catalog]

KEEP_ONE = RetentionPolicy(keep_last=1)


@pytest.fixture(params=MEMORY_AND_EMBEDDED_IN_SOAK)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Opener]:
    """Makes a new catalog whenever called."""
    numbers = itertools.count()
    return lambda: ready_made(request.param, tmp_path / str(next(numbers)), request)


def at_every_step(once: Callable[[int], None]) -> None:
    """Calls it with 1, 2, 3 and so on, until what it stops has no more steps."""
    for step in itertools.count(1):
        try:
            once(step)
        except NeverCame as end:
            if end.__cause__ is not None:
                raise
            assert step > 2, "that is too few steps to be true"
            return


def test_takeover_during_a_save(fresh: Callable[[], Opener]) -> None:
    """The save happened before it and is seen, or it never happens and its writer is told."""

    def once(step: int) -> None:
        open_again = fresh()
        old = open_again().writer("orders", owner="old")
        save(old)
        with stopped(lambda: old.save(manifest(2)), old.engine, *STEPS, nth=step) as zombie:
            new = open_again().writer("orders", owner="new")
            assert new.recover().chosen_id == 1
        with pytest.raises(FencedError):
            zombie.result()
        new.save(manifest(new.next_id))
        assert_sound(open_again())

    at_every_step(once)


def test_save_during_a_takeover(fresh: Callable[[], Opener]) -> None:
    """The new writer goes on behind whatever the old one was told is saved."""

    def once(step: int) -> None:
        open_again = fresh()
        old, catalog = open_again().writer("orders", owner="old"), open_again()
        with stopped(lambda: catalog.writer("orders", owner="new"), catalog.engine, *STEPS, nth=step) as takeover:
            try:
                old.save(manifest(1))
                saved = [1]
            except FencedError:
                saved = []
        new = takeover.result()
        assert visible(open_again) == saved
        assert new.recover().chosen_id == (1 if saved else None)
        new.save(manifest(new.next_id))
        assert_sound(open_again())

    at_every_step(once)


def test_takeover_during_a_takeover(fresh: Callable[[], Opener]) -> None:
    """Of two there is one writer in the end, and whoever is not has been told or is told at its next save."""

    def once(step: int) -> None:
        open_again = fresh()
        catalog = open_again()
        with stopped(lambda: catalog.writer("orders", owner="first"), catalog.engine, *STEPS, nth=step) as first:
            second = open_again().writer("orders", owner="second")
        try:
            writers = [first.result(), second]
        except FencedError:
            writers = [second]
        generations = {writer.generation for writer in writers}
        assert len(generations) == len(writers)
        for writer in sorted(writers, key=lambda writer: writer.generation)[:-1]:
            with pytest.raises(FencedError):
                save(writer)
        save(max(writers, key=lambda writer: writer.generation))
        assert_sound(open_again())

    at_every_step(once)


def test_commit_and_takeover_during_a_clean_up(fresh: Callable[[], Opener]) -> None:
    """What was committed stays whole; what never will be goes, if not now then next time."""

    def once(step: int) -> None:
        open_again = fresh()
        catalog, old = open_again(), open_again().writer("orders", owner="old")
        with old.attempting(1) as attempt, old.attempting(2) as never:
            parts = stage_offsets(old.engine, attempt, manifest(1))
            stage_offsets(old.engine, never, manifest(2))
        with stopped(catalog.pipeline("orders").remove_orphans, catalog.engine, *STEPS, nth=step) as cleaner:
            old.commit(attempt, manifest(1), parts)
            open_again().writer("orders", owner="new")
        assert catalog.pipeline("orders").get(1).source_offsets["kafka"].offsets == {"0": "1"}
        assert_sound(open_again())
        removed = (*cleaner.result(), *open_again().pipeline("orders").remove_orphans())
        assert {orphan.attempt_id for orphan in removed} == {never.attempt_id}

    at_every_step(once)


def test_commit_during_a_clean_up_beside_an_unfinished_takeover(fresh: Callable[[], Opener]) -> None:
    """The successor has claimed its generation and not yet fenced; the cleaner does. Before that the old one commits, whole."""

    def once(step: int) -> None:
        open_again = fresh()
        cleaning, claiming, old = open_again(), open_again(), open_again().writer("orders", owner="old")
        with old.attempting(1) as attempt:
            parts = stage_offsets(old.engine, attempt, manifest(1))
        takeover = partial(claiming.writer, "orders", owner="new")
        with (
            stopped(takeover, claiming.engine, "_commit_fence", table=MANIFESTS.name) as new,
            stopped(cleaning.pipeline("orders").remove_orphans, cleaning.engine, *STEPS, nth=step) as cleaner,
        ):
            try:
                old.commit(attempt, manifest(1), parts)
                committed = True
            except FencedError:
                committed = False
        assert visible(open_again) == ([1] if committed else [])
        assert (cleaner.result() == ()) == committed
        assert_sound(open_again())
        save(new.result())

    at_every_step(once)


def test_clean_up_during_a_save(fresh: Callable[[], Opener]) -> None:
    """What is being staged by the newest generation is nobody's orphan."""

    def once(step: int) -> None:
        open_again = fresh()
        writer = open_again().writer("orders")
        with stopped(lambda: writer.save(manifest(1)), writer.engine, *STEPS, nth=step) as saving:
            assert open_again().pipeline("orders").remove_orphans() == ()
        assert saving.result().checkpoint_id == 1
        assert_sound(open_again())

    at_every_step(once)


def test_takeover_during_a_status(fresh: Callable[[], Opener]) -> None:
    """What the successor passed over stays passed over, whether the zombie's word still landed or it was told."""

    def once(step: int) -> None:
        open_again = fresh()
        old = open_again().writer("orders", owner="old")
        old.sink_committed(save(old, sink=True), "warehouse")
        save(old, sink=True)
        with stopped(lambda: old.sink_committed(2, "warehouse"), old.engine, *STEPS, nth=step) as zombie:
            new = open_again().writer("orders", owner="new")
            assert new.recover().chosen_id == 1
        told = False
        try:
            zombie.result()
        except FencedError:
            told = True
        assert new.recover().chosen_id == 1
        orders = open_again().pipeline("orders")
        assert orders.recover(dry_run=True).chosen_id == 1
        assert orders.get(2).sink_commit_statuses["warehouse"].is_committed != told

    at_every_step(once)


def test_takeover_and_choice_during_a_recovery(fresh: Callable[[], Opener]) -> None:
    """What the successor chose is never abandoned under it; the overtaken one is told."""

    def once(step: int) -> None:
        open_again = fresh()
        old = open_again().writer("orders", owner="old")
        old.sink_committed(save(old, sink=True), "warehouse")
        save(old, sink=True)
        with stopped(old.recover, old.engine, *STEPS, nth=step) as zombie:
            new = open_again().writer("orders", owner="new")
            # The successor asks the sink, which has it, and goes on from there.
            new.sink_committed(2, "warehouse")
            chosen = new.recover().chosen_id
        try:
            # Its decision was made before it was overtaken: then the successor has gone by it.
            assert (zombie.result().chosen_id, chosen) == (1, 1)
        except FencedError:
            assert chosen == 2
        assert new.recover().chosen_id == chosen
        assert open_again().pipeline("orders").recover(dry_run=True).chosen_id == chosen
        assert open_again().writer("orders").recover().chosen_id == chosen

    at_every_step(once)


def test_pin_during_a_prune(fresh: Callable[[], Opener]) -> None:
    """It is refused because the prune was first, or it keeps its checkpoint."""

    def once(step: int) -> None:
        open_again = fresh()
        begin(open_again)
        catalog = open_again()
        with stopped(lambda: catalog.pipeline("orders").prune(KEEP_ONE), catalog.engine, *STEPS, nth=step) as pruning:
            try:
                open_again().pipeline("orders").pin(1, reason="audit")
                pinned = True
            except ConflictError:
                pinned = False
        assert (1 in pruning.result().retire) != pinned
        assert (1 in visible(open_again)) == pinned

    at_every_step(once)


def test_prune_during_a_pin(fresh: Callable[[], Opener]) -> None:
    """The same from the other side."""

    def once(step: int) -> None:
        open_again = fresh()
        begin(open_again)
        catalog = open_again()
        with stopped(
            lambda: catalog.pipeline("orders").pin(1, reason="audit"), catalog.engine, *STEPS, nth=step
        ) as pinning:
            retired = open_again().pipeline("orders").prune(KEEP_ONE).retire
        try:
            pinning.result()
            pinned = True
        except ConflictError:
            pinned = False
        assert (1 in retired) != pinned
        assert (1 in visible(open_again)) == pinned

    at_every_step(once)


@pytest.mark.parametrize("how", NEEDING)
def test_prune_during_a_save_or_derive(fresh: Callable[[], Opener], how: str) -> None:
    """What was answered with success is whole, and so is what it needs."""

    def once(step: int) -> None:
        open_again = fresh()
        writers = begin(open_again)
        engine = writers[how == "fork"].engine
        with stopped(needing(how, *writers), engine, *STEPS, nth=step) as saving:
            open_again().pipeline("orders").prune(KEEP_ONE)
        try:
            saving.result()
        except NotFoundError:
            # Retired before it was looked for: refused, and nothing came of it.
            assert how in DERIVING
            assert (visible(open_again), visible(open_again, "returns")) == ([3], [])
        else:
            assert_kept(open_again, how)

    at_every_step(once)


@pytest.mark.parametrize("how", NEEDING)
def test_save_or_derive_during_a_prune(fresh: Callable[[], Opener], how: str) -> None:
    """The same from the other side."""

    def once(step: int) -> None:
        open_again = fresh()
        writers = begin(open_again)
        catalog = open_again()
        with stopped(lambda: catalog.pipeline("orders").prune(KEEP_ONE), catalog.engine, *STEPS, nth=step) as pruning:
            try:
                needing(how, *writers)()
                saved = True
            except NotFoundError:
                saved = False
        if saved:
            # Also where the prune had retired it already: who came to need it has restored it.
            assert_kept(open_again, how)
        else:
            assert how in DERIVING
            assert 1 in pruning.result().retire

    at_every_step(once)
