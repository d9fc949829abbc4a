"""Positions that are not what was written any more are never handed out."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import laminar_delta as ld
from laminar_delta.catalog.sessions import SessionState
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.embedded.tables import LOG_CHECKPOINT_EVERY
from laminar_delta.engine.local.log import entry_path
from laminar_delta.engine.predicate import col
from laminar_delta.engine.settle import OutcomeUnknown, Settled
from laminar_delta.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FencedError,
    LaminarDeltaError,
    StorageError,
)
from tests.sessions.support import Opener, StoreOpener, at, commit_as_statement
from tests.stores.support import overwrite
from tests.support.faults import failing_merges, unanswered_merges, unheard_merges


def test_a_row_changed_by_hand_is_noticed(
    persistent_store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    store = persistent_store
    with store.session() as s:
        s.stage("kafka", 7, b"seven")
        s.write_config_hash(5)
    reads: list[Callable[[], object]] = [store.read_all_checkpoints, store.session, lambda: store.start(5)]
    for where, change in (
        (col("kind").eq("source"), {"position": b"eight"}),
        (col("kind").eq("source"), {"sequence": 8}),
        (col("kind").eq("head"), {"config_hash": 6}),
    ):
        version = catalog.engine.version(SOURCE_CHECKPOINTS.name)
        overwrite(catalog, SOURCE_CHECKPOINTS, col("pipeline").eq(pipeline) & where, change)
        for read in reads:
            with pytest.raises(CorruptionError, match="not as they were written"):
                read()
        catalog.engine.restore(SOURCE_CHECKPOINTS.name, version)
        assert store.read_all_checkpoints() == {"kafka": at(7, b"seven")}


@pytest.mark.parametrize("values", [{"sequence": -1}, {"position": b"x" * 65_537}])
def test_a_row_that_no_source_can_have_is_damage_and_not_the_readers_fault(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str, values: dict[str, object]
) -> None:
    """As a statement of somebody's own commits it: row, checksum and sum fit each other."""
    store.take_generation()
    commit_as_statement(catalog, pipeline, "somebody's", values=values)
    for read in (store.read_all_checkpoints, lambda: store.read_checkpoint("kafka"), store.session):
        with pytest.raises(CorruptionError, match="that no source can have") as told:
            read()
        assert told.value.details["source"] == "kafka"
    catalog.forget_positions(pipeline, reason="damaged")
    again = ld.SourceCheckpointStore(catalog, pipeline)
    again.stage_checkpoint("kafka", 1)
    assert again.read_all_checkpoints() == {"kafka": at(1)}


def test_a_head_row_that_is_gone_is_no_fresh_start(
    persistent_store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str
) -> None:
    store = persistent_store
    store.stage_checkpoint("kafka", 7)
    catalog.engine.delete(SOURCE_CHECKPOINTS.name, col("pipeline").eq(pipeline) & col("kind").eq("head"))
    with pytest.raises(CorruptionError, match="0 head rows"):
        store.read_all_checkpoints()
    with pytest.raises(CorruptionError, match="has lost its rows"):
        open_store().start(5)


def test_rows_that_are_gone_are_no_fresh_start(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str
) -> None:
    version = store.stage_checkpoint("kafka", 7).version
    assert version is not None
    catalog.engine.delete(SOURCE_CHECKPOINTS.name, col("pipeline").eq(pipeline))
    with pytest.raises(CorruptionError, match="has lost its rows") as told:
        open_store().session()
    assert told.value.details["version"] == version
    catalog.engine.restore(SOURCE_CHECKPOINTS.name, version)
    restored = open_store()
    restored.take_generation()
    assert restored.read_all_checkpoints() == {"kafka": at(7)}


def test_a_takeover_that_was_cut_off_before_the_head_row_is_no_loss(
    open_store: StoreOpener, open_again: Opener, pipeline: str
) -> None:
    cut_off = open_again()
    with failing_merges(cut_off.engine, SOURCE_CHECKPOINTS.name), pytest.raises(StorageError):
        ld.SourceCheckpointStore(cut_off, pipeline).take_generation()
    store = open_store()
    assert store.take_generation() == 2
    store.stage_checkpoint("kafka", 1)
    assert store.read_all_checkpoints() == {"kafka": at(1)}


def test_one_flipped_byte_of_a_position_is_noticed(tmp_path: Path) -> None:
    """Parquet has no checksum over what cannot be compressed."""
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    store = ld.SourceCheckpointStore(catalog, "orders")
    position = random.Random(7).randbytes(2000)
    store.stage_checkpoint("kafka", 7, position)
    flipped = 0
    for path in (tmp_path / "catalog" / "source_checkpoints").rglob("*.parquet"):
        content = bytearray(path.read_bytes())
        place = content.find(position[500:600])
        if place >= 0:
            content[place] ^= 1
            path.write_bytes(content)
            flipped += 1
    assert flipped
    with pytest.raises(LaminarDeltaError):
        store.read_checkpoint("kafka")
    with pytest.raises(LaminarDeltaError):
        ld.SourceCheckpointStore(catalog, "orders").start(5)


@pytest.fixture
def rotten(tmp_path: Path) -> ld.Catalog:
    """A catalog with an old log entry that cannot be read; a log checkpoint covers it, so everything goes on."""
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    store = ld.SourceCheckpointStore(catalog, "orders")
    for number in range(1, 2 * LOG_CHECKPOINT_EVERY):
        store.stage_checkpoint("kafka", number)
    entry = entry_path(tmp_path / "catalog" / SOURCE_CHECKPOINTS.name, LOG_CHECKPOINT_EVERY // 2)
    entry.write_bytes(b"\0" * 100)
    return catalog


def test_a_session_that_was_taken_over_is_told_so_beside_an_old_log_entry_that_rotted(rotten: ld.Catalog) -> None:
    zombie = ld.SourceCheckpointStore(rotten, "orders").session()
    zombie.stage("kafka", 99)
    ld.SourceCheckpointStore(rotten, "orders").stage_checkpoint("kafka", 50)
    with pytest.raises(FencedError):
        zombie.commit()
    assert zombie.state is SessionState.FENCED


def test_a_session_that_lost_is_told_so_beside_an_old_log_entry_that_rotted(rotten: ld.Catalog) -> None:
    store = ld.SourceCheckpointStore(rotten, "orders")
    other = ld.SourceCheckpointStore(rotten, "orders", generation=store.take_generation())
    lost = other.session()
    lost.stage("files", 1)
    for number in range(100, 103):
        store.stage_checkpoint("kafka", number)
    with pytest.raises(ConflictError, match="came first"):
        lost.commit()
    assert lost.state is SessionState.LOST
    lost.retry()
    assert store.read_all_checkpoints() == {"kafka": at(102), "files": at(1)}
    # What the log tells above the damage is told.
    assert [record.owner for record in store.history(limit=2)] == [store._owner] * 2
    assert len(store.history()) > 4
    store.stage_steps(store.session().token, [{"source": "kafka", "sequence": 1}])
    assert store.remove_steps() == 0


def test_a_session_in_doubt_is_looked_for_beside_an_old_log_entry_that_rotted(rotten: ld.Catalog) -> None:
    store = ld.SourceCheckpointStore(rotten, "orders")
    session = store.session()
    session.stage("kafka", 99)
    with unanswered_merges(rotten.engine, SOURCE_CHECKPOINTS.name) as late, pytest.raises(CommitUnknownError):
        session.commit()
    late[0]()
    ld.SourceCheckpointStore(rotten, "orders").stage_checkpoint("kafka", 50)
    # Nothing of it is left but what the log says above the damage.
    assert session.retry().replayed
    unsent = ld.SourceCheckpointStore(rotten, "orders").session()
    unsent.stage("kafka", 99)
    with unanswered_merges(rotten.engine, SOURCE_CHECKPOINTS.name), pytest.raises(CommitUnknownError):
        unsent.commit()
    ld.SourceCheckpointStore(rotten, "orders").stage_checkpoint("kafka", 51)
    with pytest.raises(FencedError):
        unsent.retry()


def test_damage_where_ones_own_log_entry_may_be_proves_nothing(rotten: ld.Catalog, tmp_path: Path) -> None:
    """Written, cut off by the disk, and covered by a log checkpoint that another process wrote: not told as failed."""
    store = ld.SourceCheckpointStore(rotten, "orders")
    session = store.session()
    session.stage("kafka", 99)
    engine = rotten.engine
    real = engine._merge

    def lose(*given: Any) -> Settled:
        made = real(*given)
        engine.log_checkpoint(SOURCE_CHECKPOINTS.name)
        store_of_another = ld.SourceCheckpointStore(ld.open_catalog(engine.location), "payments")
        store_of_another.stage_checkpoint("kafka", 1)
        entry_path(tmp_path / "catalog" / SOURCE_CHECKPOINTS.name, made.version or 0).write_bytes(b"\0" * 100)
        raise OutcomeUnknown("the line went dead", may_still_land=False)

    with patch.object(engine, "_merge", lose), pytest.raises((CommitUnknownError, StorageError)) as told:
        session.commit()
    assert isinstance(told.value, CommitUnknownError)
    assert session.state is SessionState.IN_DOUBT


def test_in_doubt_and_taken_over_is_not_told_as_not_committed_where_nobody_can_tell(
    store: ld.SourceCheckpointStore, open_again: Opener, pipeline: str
) -> None:
    catalog = open_again()
    before = ld.SourceCheckpointStore(catalog, pipeline)
    session = before.session()
    session.stage("kafka", 1)
    with unheard_merges(catalog.engine, SOURCE_CHECKPOINTS.name), pytest.raises(CommitUnknownError):
        session.commit()
    never = ld.SourceCheckpointStore(catalog, pipeline, generation=before.take_generation()).session()
    never.stage("kafka", 7)
    # It wrote over all the rows there were.
    store.stage_checkpoint("kafka", 2)
    with patch.object(type(catalog.engine), "history", lambda *_, **__: []):
        with pytest.raises(CommitUnknownError, match="tells any more"):
            session.retry()
        # What was never sent is not in doubt.
        with pytest.raises(FencedError):
            never.commit()
    assert session.retry().replayed


def test_in_doubt_and_taken_over_is_fenced_where_the_log_proves_it(
    store: ld.SourceCheckpointStore, open_again: Opener, pipeline: str
) -> None:
    catalog = open_again()
    before = ld.SourceCheckpointStore(catalog, pipeline)
    sessions = [before.session()]
    commit_as_statement(catalog, pipeline, "somebody's")
    sharing = ld.SourceCheckpointStore(catalog, pipeline, generation=before.take_generation())
    sessions.append(sharing.session())
    for session in sessions:
        session.stage("kafka", 9)
        with unanswered_merges(catalog.engine, SOURCE_CHECKPOINTS.name), pytest.raises(CommitUnknownError):
            session.commit()
    store.stage_checkpoint("kafka", 2)
    for session in sessions:
        with pytest.raises(FencedError):
            session.retry()
