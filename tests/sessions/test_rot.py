"""Positions that are not what was written any more are never handed out."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, LaminarDeltaError, StorageError
from tests.sessions.support import Opener, StoreOpener, at
from tests.stores.support import overwrite
from tests.support.faults import failing_merges


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
