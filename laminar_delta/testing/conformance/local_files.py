"""Tables as local files: the lock between processes, and logs that a power loss left behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from laminar_delta.engine.local.lock import CatalogLock
from laminar_delta.engine.local.log import entry_path
from laminar_delta.engine.request import Fence, Merge
from laminar_delta.errors import ErrorCode, StorageError
from laminar_delta.testing.conformance.tables import LINES, line

if TYPE_CHECKING:
    from laminar_delta.testing.harness import LocalHarness


class LocalFiles:
    """For engines whose tables are files on a local disk."""

    def test_every_write_waits_for_the_lock(self, harness: LocalHarness) -> None:
        harness.open().create(LINES)
        engine = harness.open_impatient()
        version = engine.version(LINES.name)
        with CatalogLock(harness.root).held():
            for write in (
                lambda: engine.append(LINES.name, line("p", 1)),
                lambda: engine.append(LINES.name, line("p", 1), fences=[Fence("a", 1)]),
                lambda: engine.raise_fence(LINES.name, Fence("a", 1)),
                lambda: engine.merge(LINES.name, line("p", 1), Merge(keys=("id",))),
                lambda: engine.optimize(LINES.name),
                lambda: engine.log_checkpoint(LINES.name),
                lambda: engine.vacuum(LINES.name, dry_run=False),
            ):
                with pytest.raises(StorageError) as caught:
                    write()
                assert caught.value.code is ErrorCode.LOCKED
            assert engine.read(LINES.name).num_rows == 0
        assert engine.version(LINES.name) == version
        engine.append(LINES.name, line("p", 1))

    @pytest.mark.parametrize(
        ("damage", "back"),
        [("empty", 0), ("cut off", 0), ("noise", 0), ("empty", 1), ("empty", 2)],
        ids=["empty", "cut off", "noise", "empty, one newer", "empty, two newer"],
    )
    def test_a_damaged_log_entry_is_reported_and_never_read_past(
        self, harness: LocalHarness, damage: str, back: int
    ) -> None:
        engine = harness.open()
        engine.create(LINES)
        for number in range(1, back + 2):
            engine.append(LINES.name, line("p", number), fences=[Fence("a", 4 + number)])
        path = entry_path(harness.root / LINES.name, engine.version(LINES.name) - back)
        whole = path.read_bytes()
        path.write_bytes({"empty": b"", "cut off": whole[: len(whole) // 2], "noise": os.urandom(100)}[damage])
        other = harness.open()
        for use in (
            lambda: other.read(LINES.name),
            lambda: other.version(LINES.name),
            lambda: other.append(LINES.name, line("p", 2), fences=[Fence("a", 3)]),
            lambda: other.history(LINES.name),
        ):
            with pytest.raises(StorageError) as caught:
                use()
            assert caught.value.code is ErrorCode.LOG_DAMAGED
            assert str(path) in str(caught.value)
        path.write_bytes(whole)
        assert set(harness.open().read(LINES.name).column("id").to_pylist()) == set(range(1, back + 2))

    def test_an_empty_log_entry_below_a_log_checkpoint_is_not_read_past_by_who_goes_back(
        self, harness: LocalHarness
    ) -> None:
        """The newest version does not need it; an earlier one without its rows, or a history with other numbers, would lie."""
        engine = harness.open()
        engine.create(LINES)
        for number in range(1, 5):
            engine.append(LINES.name, line("p", number))
        engine.log_checkpoint(LINES.name)
        engine.append(LINES.name, line("p", 5))
        path = entry_path(harness.root / LINES.name, 2)
        whole = path.read_bytes()
        path.write_bytes(b"")
        other = harness.open()
        assert set(other.read(LINES.name).column("id").to_pylist()) == {1, 2, 3, 4, 5}
        assert other.read(LINES.name, version=1).num_rows == 1
        assert other.read(LINES.name, version=4).num_rows == 4
        assert [entry.version for entry in other.history(LINES.name, limit=3)] == [5, 4, 3]
        for use in (
            lambda: other.read(LINES.name, version=2),
            lambda: other.read(LINES.name, version=3),
            lambda: other.history(LINES.name),
            lambda: other.version_at(LINES.name, 0),
        ):
            with pytest.raises(StorageError) as caught:
                use()
            assert caught.value.code is ErrorCode.LOG_DAMAGED
            assert str(path) in str(caught.value)
        path.write_bytes(whole)
        assert harness.open().read(LINES.name, version=3).num_rows == 3
