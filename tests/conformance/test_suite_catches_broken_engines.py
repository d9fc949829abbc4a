"""The suite is worth what it catches: engines broken in known ways must fail it, each in the test that is there for it."""

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.embedded.tables import commit_properties
from laminar_delta.engine.request import Fence, Merge, Stamp, TableSpec
from laminar_delta.engine.settle import Settled
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.testing.conformance import LocalConformance
from tests.support.harnesses import EmbeddedHarness


class FenceOff(EmbeddedEngine):
    """Commits without looking at the fence."""

    def _check_fences(self, handle: DeltaTable, fences: Sequence[Fence]) -> None:
        pass


class SharedHandle(EmbeddedEngine):
    """Checks on a handle that all threads share and refresh, and commits on it later, outside the lock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shared: dict[str, DeltaTable] = {}
        self._sharing = threading.Lock()

    def _append(self, table: str, rows: pa.Table, made: Stamp) -> int:
        from deltalake import write_deltalake

        with self._sharing:
            handle = self._shared.setdefault(table, self._open(table))
            handle.update_incremental()
            self._check_fences(handle, made.fences)
        time.sleep(0.03)  # wide enough for others to come between: the point of the exercise
        with self._sharing, self._committing(table):
            handle.update_incremental()
            write_deltalake(handle, rows, mode="append", commit_properties=commit_properties(made))
            return int(handle.version())


class LockOff(EmbeddedEngine):
    """Writes without waiting for its turn."""

    def _turn(self) -> AbstractContextManager[None]:
        return nullcontext()


class RoundedStatistics(EmbeddedEngine):
    """Keeps numbers as decimals, whose statistics delta-rs rounds to floats."""

    def create(self, spec: TableSpec) -> bool:
        fields = [pa.field(f.name, pa.decimal128(20, 0) if f.type == pa.int64() else f.type) for f in spec.schema]
        return super().create(
            TableSpec(
                name=spec.name,
                schema=pa.schema(fields),
                partition_by=spec.partition_by,
                properties=spec.properties,
            )
        )


class GuardAside(EmbeddedEngine):
    """Judges a merge's guard on a handle of its own, before its turn."""

    def _merge(self, table: str, rows: pa.Table, merge: Merge, made: Stamp) -> Settled:
        if merge.guard is not None and not self._holds(table, self._open(table), merge.guard):
            return Settled(None, inserted=0, updated=0, deleted=0)
        return super()._merge(table, rows, replace(merge, guard=None), made)


class SwallowedError(EmbeddedEngine):
    """Says a write worked whatever happened to it."""

    def _append(self, table: str, rows: pa.Table, made: Stamp) -> int:
        try:
            return super()._append(table, rows, made)
        except LaminarDeltaError:
            return 1


class NotDurableLog(EmbeddedEngine):
    """Opens a table without looking whether its newest log entry is whole."""

    def _open(self, table: str, version: int | None = None) -> DeltaTable:
        return DeltaTable(self._uri(table), version=version)


BROKEN = {
    FenceOff: {
        "test_a_lower_or_equal_version_is_refused_and_leaves_nothing",
        "test_of_rivals_offering_one_version_exactly_one_wins",
    },
    SharedHandle: {"test_threads_sharing_an_engine_never_let_a_fenced_writer_through"},
    LockOff: {"test_every_write_waits_for_the_lock"},
    RoundedStatistics: {"test_neighbouring_large_numbers_in_separate_files_are_told_apart"},
    GuardAside: {"test_of_rivals_guarded_by_one_row_exactly_one_wins"},
    SwallowedError: {"test_a_write_that_fails_is_an_error"},
    NotDurableLog: {"test_a_damaged_log_entry_is_reported_and_never_read_past"},
}


def _run(test: str, engine_class: type[EmbeddedEngine], root: Path) -> None:
    class Harness(EmbeddedHarness):
        pass

    Harness.engine_class = engine_class
    suite = LocalConformance()
    suite.rounds = 20
    arguments: dict[str, Any] = {"damage": "empty", "back": 0} if "damaged" in test else {}
    getattr(suite, test)(Harness(root), **arguments)


@pytest.mark.parametrize(
    ("engine_class", "test"),
    [
        pytest.param(kind, test, id=f"{kind.__name__}-{test}")
        for kind, tests in BROKEN.items()
        for test in sorted(tests)
    ],
)
def test_a_broken_engine_fails(engine_class: type[EmbeddedEngine], test: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, LaminarDeltaError, pytest.fail.Exception)):
        _run(test, engine_class, tmp_path / "broken")
    _run(test, EmbeddedEngine, tmp_path / "sound")
