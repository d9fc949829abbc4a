"""Maintenance changes neither rows nor fences, and what it takes away is gone with a clear answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence
from laminar_delta.errors import ErrorCode, FencedError, NotFoundError, StorageError
from laminar_delta.testing.conformance.tables import LINES, ids, line

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.testing.harness import EngineHarness

APP = "laminar:orders"


def _ids(engine: Engine) -> list[int]:
    return ids(engine.read(LINES.name, columns=["id"]))


def _assert_fence_stands(engine: Engine, at: int, next_id: int) -> None:
    with pytest.raises(FencedError):
        engine.append(LINES.name, line("zombie", -1, "z"), fences=[Fence(APP, at)], key={"attempt": "z"})
    assert engine.fences(LINES.name, [APP, "nobody"]) == {APP: at}
    engine.append(LINES.name, line("p", next_id), fences=[Fence(APP, at + 1)])


class Upkeep:
    """Compaction, log checkpoint, log clean-up, vacuum, restore."""

    def test_fences_and_rows_survive_every_kind_of_maintenance(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        for number in range(4):
            engine.append(LINES.name, line("p", number), fences=[Fence(APP, number)])
        restored_to = engine.version(LINES.name)
        engine.log_checkpoint(LINES.name)
        _assert_fence_stands(harness.open(), at=3, next_id=4)
        assert engine.optimize(LINES.name, order_by=["pipeline", "id"]) is not None
        assert harness.data_files(LINES.name) == 1
        assert _ids(engine) == [0, 1, 2, 3, 4]
        _assert_fence_stands(harness.open(), at=4, next_id=5)
        engine.restore(LINES.name, restored_to)
        assert _ids(engine) == [0, 1, 2, 3]
        _assert_fence_stands(harness.open(), at=5, next_id=6)
        engine.vacuum(LINES.name, older_than_hours=0, dry_run=False)
        assert _ids(engine) == [0, 1, 2, 3, 6]
        _assert_fence_stands(harness.open(), at=6, next_id=7)
        harness.age(LINES.name, days=40)
        engine.append(LINES.name, line("q", 8))
        engine.log_checkpoint(LINES.name)
        engine.clean_log(LINES.name)
        assert _ids(harness.open()) == [0, 1, 2, 3, 6, 7, 8]
        _assert_fence_stands(harness.open(), at=7, next_id=9)
        with pytest.raises(NotFoundError) as caught:
            engine.read(LINES.name, version=1)
        assert caught.value.code is ErrorCode.VERSION_GONE
        assert engine.history(LINES.name)[-1].version > 1

    def test_compaction_without_an_order_keeps_the_rows(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        for number in range(3):
            engine.append(LINES.name, line("p", number))
        version = engine.optimize(LINES.name, metadata={"operation": "compact"})
        assert version == engine.version(LINES.name)
        assert harness.data_files(LINES.name) == 1
        assert _ids(engine) == [0, 1, 2]
        assert engine.history(LINES.name, limit=1)[0].metadata["operation"] == "compact"

    def test_vacuum_tells_before_it_removes_and_removes_only_what_is_old(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 1))
        engine.append(LINES.name, line("p", 2))
        before = engine.version(LINES.name)
        engine.delete(LINES.name, col("id").eq(1))
        assert engine.vacuum(LINES.name, dry_run=False) == []
        assert engine.read(LINES.name, version=before).num_rows == 2
        named = engine.vacuum(LINES.name, older_than_hours=0, dry_run=True)
        assert named
        assert engine.read(LINES.name, version=before).num_rows == 2
        engine.vacuum(LINES.name, older_than_hours=0, dry_run=False)
        assert _ids(engine) == [2]
        with pytest.raises(StorageError) as caught:
            engine.read(LINES.name, version=before)
        assert caught.value.code is ErrorCode.FILE_MISSING

    def test_restoring_to_a_version_that_is_not_there_changes_nothing(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 1))
        version = engine.version(LINES.name)
        with pytest.raises(NotFoundError):
            engine.restore(LINES.name, 99)
        assert engine.version(LINES.name) == version
