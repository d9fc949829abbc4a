"""The named races of saving and taking over, stepped through: one side stops at a call, the other runs, the first goes on."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.attempt import Attempt, stage_offsets
from laminar_delta.catalog.generations import Generation
from laminar_delta.catalog.positions import read_positions
from laminar_delta.catalog.sessions import Session
from laminar_delta.catalog.state.staging import stage_state
from laminar_delta.catalog.tables import (
    MANIFESTS,
    SOURCE_CHECKPOINTS,
    SOURCE_OFFSETS,
    WRITERS,
)
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.memory.table import MemoryTable
from laminar_delta.engine.settle import OutcomeUnknown
from laminar_delta.errors import FencedError
from laminar_delta.model import CheckpointManifest, SourceCheckpoint
from tests.support.catalogs import ENGINES_SPARK_IN_SOAK, ready_made
from tests.support.scenes import assert_sound, manifest, visible
from tests.support.stepping import stopped

Opener = Callable[[], ld.Catalog]


@pytest.fixture(params=ENGINES_SPARK_IN_SOAK)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return ready_made(request.param, tmp_path / "catalog", request)


# -- taking over ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [WRITERS.name, MANIFESTS.name, SOURCE_CHECKPOINTS.name])
def test_start_point_read_before_the_fence(open_again: Opener, table: str) -> None:
    """The old one commits while the new one is taking over: before the fence it succeeds and is seen, behind it it fails."""
    old, catalog = open_again().writer("orders", owner="old"), open_again()
    old.save(manifest(41))
    call = "_commit_fence" if table == MANIFESTS.name else "_merge"
    with stopped(lambda: catalog.writer("orders", owner="new"), catalog.engine, call, table=table) as takeover:
        if table == SOURCE_CHECKPOINTS.name:
            with pytest.raises(FencedError):
                old.save(manifest(42))
        else:
            old.save(manifest(42))
    new = takeover.result()
    assert new.next_id == 43
    assert new.recover().chosen_id == (41 if table == SOURCE_CHECKPOINTS.name else 42)
    new.save(manifest(new.next_id))
    with pytest.raises(FencedError):
        old.save(manifest(44))
    assert_sound(open_again())


@pytest.mark.parametrize("table", [WRITERS.name, MANIFESTS.name, SOURCE_CHECKPOINTS.name])
def test_two_takeovers_at_once(open_again: Opener, table: str) -> None:
    """Each has a generation of its own, and the one that was overtaken while taking over is told."""
    catalog = open_again()
    call = "_commit_fence" if table == MANIFESTS.name else "_merge"
    with stopped(lambda: catalog.writer("orders", owner="first"), catalog.engine, call, table=table) as first:
        second = open_again().writer("orders", owner="second")
    if table == WRITERS.name:
        assert (second.generation, first.result().generation) == (1, 2)
        winner, loser = first.result(), second
    else:
        assert second.generation == 2
        with pytest.raises(FencedError, match="second"):
            first.result()
        winner, loser = second, Writer(catalog.engine, Generation(pipeline="orders", number=1, owner="first"))
    winner.save(manifest(1))
    with pytest.raises(FencedError):
        loser.save(manifest(2))
    assert visible(open_again) == [1]
    assert_sound(open_again())


def test_shared_handle(open_again: Opener) -> None:
    """Between a zombie's look at the fence and its commit others commit through the same engine, without a lock in the way."""
    catalog = open_again()
    engine = catalog.engine
    old, other = catalog.writer("orders", owner="old"), catalog.writer("returns")
    bare = CheckpointManifest.new(1, 1, 1)
    # As on an object store: there conditional puts decide, not the lock. Spark checks and commits in one call.
    gates = {"embedded": (engine, "_check_fences"), "memory": (MemoryTable, "commit"), "spark": (engine, "_append")}
    with (
        patch.object(engine, "_lock", None, create=True),
        stopped(lambda: old.save(bare), *gates[engine.name], after=isinstance(engine, EmbeddedEngine)) as zombie,
    ):
        new = catalog.writer("orders", owner="new")
        other.save(bare)
        catalog.pipeline("orders").list()
    with pytest.raises(FencedError, match="new"):
        zombie.result()
    new.save(bare)
    assert [head.generation for head in open_again().pipeline("orders").list()] == [2]
    assert_sound(open_again())


# -- sessions -------------------------------------------------------------------------------------------------------------


def _positions(catalog: ld.Catalog) -> dict[str, int]:
    found = read_positions(catalog.reading, "orders").sources
    return {name: at.sequence for name, at in found.items()}


def test_zombie_session_commit(open_again: Opener) -> None:
    """A session of the old generation is about to commit when a successor takes over: refused, and it is told."""
    old = open_again().writer("orders", owner="old")
    with Session(old.engine, old.held) as first:
        first.stage("kafka", 1)
    late = Session(old.engine, old.held)
    late.stage("kafka", 2)
    with stopped(late.commit, old.engine, "_merge", table=SOURCE_CHECKPOINTS.name) as zombie:
        new = open_again().writer("orders", owner="new")
    with pytest.raises(FencedError):
        zombie.result()
    assert _positions(open_again()) == {"kafka": 1}
    with Session(new.engine, new.held) as session:
        session.stage("kafka", 3)
    assert _positions(open_again()) == {"kafka": 3}


def test_fence_on_one_table_only(open_again: Opener) -> None:
    """A takeover that has fenced manifests and not yet sessions is not complete: it has read nothing it would go on from."""
    old, catalog = open_again().writer("orders", owner="old"), open_again()
    sessions = [Session(old.engine, old.held) for _ in range(2)]
    for number, session in enumerate(sessions, 1):
        session.stage("kafka", number)
    taking_over = partial(catalog.writer, "orders", owner="new")
    with stopped(taking_over, catalog.engine, "_merge", table=SOURCE_CHECKPOINTS.name) as takeover:
        sessions[0].commit()
    new = takeover.result()
    assert _positions(open_again()) == {"kafka": 1}
    assert Session(new.engine, new.held).read("kafka") == SourceCheckpoint(sequence=1, position=None)
    with pytest.raises(FencedError):
        sessions[1].commit()
    assert _positions(open_again()) == {"kafka": 1}


# -- orphans and parts ----------------------------------------------------------------------------------------------------


def test_cleaner_between_commit_and_takeover(open_again: Opener) -> None:
    """The cleaner has fenced for a successor that is not through yet; what the old one has in hand can never commit."""
    catalog, claiming, old = open_again(), open_again(), open_again().writer("orders", owner="old")
    with old.attempting(1) as first, old.attempting(2) as second:
        parts = {at: stage_offsets(old.engine, at, manifest(at.checkpoint_id)) for at in (first, second)}
    takeover = partial(claiming.writer, "orders", owner="new")
    with stopped(takeover, claiming.engine, "_commit_fence", table=MANIFESTS.name) as new:
        with stopped(
            catalog.pipeline("orders").remove_orphans, catalog.engine, "_commit_fence", table=MANIFESTS.name
        ) as cleaner:
            old.commit(first, manifest(1), parts[first])
        with pytest.raises(FencedError):
            old.commit(second, manifest(2), parts[second])
    assert [orphan.attempt_id for orphan in cleaner.result()] == [second.attempt_id]
    assert visible(open_again) == [1]
    # Removed or not, it was given out; who names it says so.
    assert new.result().next_id == 3
    new.result().save(manifest(2))
    assert_sound(open_again())


@pytest.mark.parametrize("late_by", ["before it arrives", "after it arrived"])
def test_late_part(open_again: Opener, late_by: str) -> None:
    """A part staged again, as a retried task does, that the commit does not list: it arrives late and stays invisible."""
    catalog, writer = open_again(), open_again().writer("orders")
    with writer.attempting(1) as attempt:
        staged = writer.stage(attempt, manifest(1), {("agg", 0): b"first"})
    again = partial(stage_offsets, catalog.engine, attempt, manifest(1, "999"))
    arrived = late_by == "after it arrived"
    with stopped(again, catalog.engine, "_append", table=SOURCE_OFFSETS.name, after=arrived) as late:
        if arrived:
            stage_state(catalog.engine, attempt, {("agg", 0): b"second", ("agg", 1): b"more"})
        writer.commit(attempt, staged.manifest, staged.parts, state=staged.state)
        assert catalog.pipeline("orders").get(1).source_offsets["kafka"].offsets == {"0": "1"}
    assert late.result()
    if not arrived:
        stage_state(catalog.engine, attempt, {("agg", 0): b"second", ("agg", 1): b"more"})
    orders = open_again().pipeline("orders")
    assert orders.state(1).partitions() == {"agg": [0]}
    assert orders.state(1).read("agg") == b"first"
    assert orders.get(1).source_offsets["kafka"].offsets == {"0": "1"}
    assert orders.recover().chosen_id == 1
    assert_sound(open_again())
    # What came late is of a committed attempt: it is nobody's orphan, and goes with its checkpoint.
    open_again().writer("orders")
    assert orders.remove_orphans() == ()


def test_a_part_of_an_attempt_that_was_given_up(open_again: Opener) -> None:
    """A task stages for an attempt that its writer gives up meanwhile: what comes later goes with the next clean-up."""
    catalog, writer = open_again(), open_again().writer("orders")
    attempt = Attempt.new(writer.held, 1)
    staging = partial(stage_offsets, catalog.engine, attempt, manifest(1))
    with stopped(staging, catalog.engine, "_append", table=SOURCE_OFFSETS.name) as late:
        writer.abort(attempt)
        assert catalog.pipeline("orders").remove_orphans(aborted=writer.aborted) == ()
    assert late.result()
    removed = open_again().pipeline("orders").remove_orphans(aborted=writer.aborted)
    assert [orphan.attempt_id for orphan in removed] == [attempt.attempt_id]
    assert open_again().engine.read(SOURCE_OFFSETS.name).num_rows == 0


# -- answers --------------------------------------------------------------------------------------------------------------


def test_lost_answer(open_again: Opener) -> None:
    """The commit happened, its answer is on the way; meanwhile a successor takes over. Whose save it was is told the truth."""
    catalog = open_again()
    old = catalog.writer("orders", owner="old")
    gate = {"table": MANIFESTS.name, "after": True}
    with stopped(lambda: old.save(manifest(1)), catalog.engine, "_append", **gate) as answered:  # type: ignore[arg-type]
        new = open_again().writer("orders", owner="new")
        assert new.next_id == 2
        assert new.recover().chosen_id == 1
        new.save(manifest(2))
    assert answered.result().checkpoint_id == 1
    assert visible(open_again) == [1, 2]
    assert_sound(open_again())


@pytest.mark.parametrize("landed", [True, False])
def test_lost_answer_and_a_successor_before_it_is_looked_for(open_again: Opener, landed: bool) -> None:
    """The line breaks in the commit; before the writer reads back what became of it, a successor has gone on."""
    catalog = open_again()
    old = catalog.writer("orders", owner="old")
    error = OutcomeUnknown("the line went dead", may_still_land=True)
    real = catalog.engine._append

    def cut(table: str, rows: pa.Table, made: object) -> int:
        if table != MANIFESTS.name:
            return real(table, rows, made)  # type: ignore[arg-type]
        if landed:
            real(table, rows, made)  # type: ignore[arg-type]
        raise error

    with patch.object(catalog.engine, "_append", cut):
        with stopped(lambda: old.save(manifest(1)), catalog.engine, "history") as looking:
            new = open_again().writer("orders", owner="new")
            new.save(manifest(new.next_id))
        if landed:
            assert looking.result().replayed
        else:
            with pytest.raises(FencedError):
                looking.result()
    assert [head.generation for head in open_again().pipeline("orders").list()] == ([1, 2] if landed else [2])
    assert_sound(open_again())
