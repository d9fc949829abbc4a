"""Races with the log itself: an entry that power loss left empty, a clean-up under a slow write, an answer that lies."""

from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError

import laminar_delta as ld
import laminar_delta.engine.embedded.engine as embedded_module
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.errors import ErrorCode, FencedError, StorageError
from laminar_delta.model import CheckpointManifest
from tests.support.harnesses import EmbeddedHarness, after_once
from tests.support.scenes import assert_sound, manifest, visible
from tests.support.stepping import stopped


def test_zero_length_log_entry(tmp_path: Path) -> None:
    """Power is lost while a takeover's fence is written: the zombie is not let through the gap, and nobody reads past it."""
    place = tmp_path / "catalog"
    old = ld.open_catalog(str(place)).writer("orders", owner="old")
    old.save(manifest(1))
    catalog = ld.open_catalog(str(place))
    with stopped(lambda: old.save(manifest(2)), old.engine, "_append", table=MANIFESTS.name) as zombie:
        catalog.writer("orders", owner="new")
        entry = max((place / MANIFESTS.name / "_delta_log").glob("*.json"))
        whole = entry.read_bytes()
        entry.write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        zombie.result()
    assert caught.value.code is ErrorCode.LOG_DAMAGED
    assert entry.name in str(caught.value)
    with pytest.raises(StorageError, match=entry.name):
        catalog.pipeline("orders").list()
    entry.write_bytes(whole)
    assert visible(lambda: catalog) == [1]
    with pytest.raises(FencedError):
        old.save(manifest(3))
    assert_sound(catalog)


@pytest.mark.parametrize("locked", [True, False], ids=["on a disk", "on an object store"])
def test_log_clean_up_under_a_slow_write(tmp_path: Path, locked: bool) -> None:
    """The log is cleaned while a commit is under way: it waits, or the commit is refused, or it is there; never lost."""
    harness = EmbeddedHarness(tmp_path / "catalog")
    writer = ld.open_catalog(str(harness.root)).writer("orders")
    cleaner = ld.open_catalog(str(harness.root), lock_timeout_s=0.2)
    writer.save(manifest(1))
    if not locked:
        writer.engine._lock = cleaner.engine._lock = None  # type: ignore[attr-defined]
    with stopped(lambda: writer.save(CheckpointManifest.new(2, 2, 1)), embedded_module, "write_deltalake") as slow:
        if locked:
            with pytest.raises(StorageError) as caught:
                cleaner.engine.clean_log(MANIFESTS.name)
            assert caught.value.code is ErrorCode.LOCKED
        else:
            other = cleaner.writer("returns")
            for number in range(1, 4):
                other.save(CheckpointManifest.new(number, number, 1))
            harness.age(MANIFESTS.name, days=30)
            cleaner.engine.log_checkpoint(MANIFESTS.name)
            before = len(cleaner.engine.history(MANIFESTS.name))
            cleaner.engine.clean_log(MANIFESTS.name)
            assert len(cleaner.engine.history(MANIFESTS.name)) < before
    saved = True
    try:
        slow.result()
    except StorageError:
        saved = False
    assert saved or not locked
    catalog = ld.open_catalog(str(harness.root))
    assert visible(lambda: catalog) == ([1, 2] if saved else [1])
    writer.save(manifest(3))
    assert visible(lambda: catalog)[-1] == 3
    assert_sound(catalog)


def test_a_commit_that_is_answered_with_a_conflict_although_it_landed(tmp_path: Path) -> None:
    """What delta-rs said on an object store; before the commit is looked for, the table is compacted and its log shortened."""
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    writer = catalog.writer("orders")
    lost = after_once(
        embedded_module, "write_deltalake", lambda: CommitFailedError("Failed to commit transaction: Concurrent.")
    )
    with lost, stopped(lambda: writer.save(CheckpointManifest.new(1, 1, 1)), catalog.engine, "history") as looking:
        other = ld.open_catalog(str(tmp_path / "catalog"))
        other.engine.log_checkpoint(MANIFESTS.name)
        other.engine.clean_log(MANIFESTS.name)
        other.engine.optimize(MANIFESTS.name)
    assert looking.result().replayed
    assert visible(lambda: catalog) == [1]
    assert_sound(catalog)
