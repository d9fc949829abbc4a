"""The harnesses of the built-in engines: how each is opened, looked into without it, and hurt from below."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableMerger

import laminar_delta.engine.embedded.engine as embedded_module
from laminar_delta.engine.base import Engine
from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.memory import MemoryEngine
from laminar_delta.engine.memory.table import MemoryTable
from laminar_delta.engine.settle import OutcomeUnknown
from laminar_delta.errors import StorageError
from laminar_delta.testing.harness import EngineHarness, LocalHarness

DAY_S = 86_400


class MemoryHarness(EngineHarness):
    def __init__(self) -> None:
        self._store: dict[str, MemoryTable] = {}
        self._ahead_ms = 0

    def open(self) -> Engine:
        return MemoryEngine(store=self._store, clock_ms=lambda: time.time_ns() // 1_000_000 + self._ahead_ms)

    def raw_rows(self, table: str) -> list[dict[str, Any]]:
        found = self._store[table]
        return [row for number in found.newest.fragments for row in found.fragments[number].to_pylist()]

    @contextmanager
    def lose_next_answer(self, engine: Engine) -> Iterator[None]:
        with after_once(MemoryTable, "commit", lambda: OutcomeUnknown("the line went dead", may_still_land=True)):
            yield

    @contextmanager
    def break_reading(self, engine: Engine) -> Iterator[None]:
        with patch.object(engine, "history", side_effect=StorageError("the log cannot be read")):
            yield

    def age(self, table: str, days: int) -> None:
        self._ahead_ms += days * DAY_S * 1000

    def data_files(self, table: str) -> int:
        return len(self._store[table].newest.fragments)

    def destroy(self, table: str) -> None:
        del self._store[table]


class DeltaFiles(LocalHarness):
    """What embedded and Spark share: their tables are Delta files below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def raw_rows(self, table: str) -> list[dict[str, Any]]:
        """Live files as the log lists them, read by pyarrow, partition values taken from the log."""
        handle = DeltaTable(str(self.root / table))
        names = [field.name for field in handle.schema().fields]
        actions = pa.table(handle.get_add_actions(flatten=True)).to_pylist()
        rows: list[dict[str, Any]] = []
        for action, uri in zip(actions, sorted_uris(handle, actions), strict=True):
            fixed = {
                name.removeprefix("partition."): value
                for name, value in action.items()
                if name.startswith("partition.")
            }
            found = pq.ParquetFile(uri).read().to_pylist()
            rows.extend({**row, **fixed} for row in found)
        return [{name: row[name] for name in names} for row in rows]

    def age(self, table: str, days: int) -> None:
        # Spark keeps a checksum beside every file it wrote, and does not read what was changed since.
        for checksum in list((self.root / table).rglob(".*.json.crc")):
            checksum.unlink()
        for path in (self.root / table).rglob("*"):
            moment = path.stat().st_mtime - days * DAY_S
            if path.suffix == ".json" and path.parent.name == "_delta_log":
                _age_commit_info(path, days)
            os.utime(path, (moment, moment))

    def data_files(self, table: str) -> int:
        return len(DeltaTable(str(self.root / table)).file_uris())

    def destroy(self, table: str) -> None:
        shutil.rmtree(self.root / table)


class EmbeddedHarness(DeltaFiles):
    engine_class: type[EmbeddedEngine] = EmbeddedEngine

    def open(self) -> Engine:
        return self.engine_class(self.root)

    def open_impatient(self) -> Engine:
        return self.engine_class(self.root, lock_timeout_s=0.2)

    def opening(self) -> Mapping[str, Any]:
        return {"name": "embedded", "location": str(self.root)}

    @contextmanager
    def lose_next_answer(self, engine: Engine) -> Iterator[None]:
        def error() -> Exception:
            # What delta-rs said in a real run on an object store, although its row was there.
            return CommitFailedError("Failed to commit transaction: Concurrent transaction failed.")

        with (
            after_once(embedded_module, "write_deltalake", error),
            after_once(DeltaTable, "create_write_transaction", error),
            after_once(TableMerger, "execute", error),
        ):
            yield

    @contextmanager
    def break_reading(self, engine: Engine) -> Iterator[None]:
        with patch.object(DeltaTable, "history", side_effect=OSError("the log cannot be read")):
            yield


def after_once(
    owner: Any, name: str, error: Callable[[], Exception], when: Callable[[Any], bool] = lambda _: True
) -> AbstractContextManager[Any]:
    """Lets the real call happen, then raises: once, at the first call for whose first argument `when` holds."""
    real = getattr(owner, name)
    spent = False

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal spent
        result = real(*args, **kwargs)
        if not spent and when(args[0] if args else None):
            spent = True
            raise error()
        return result

    return patch.object(owner, name, call)


def sorted_uris(handle: DeltaTable, actions: list[dict[str, Any]]) -> list[str]:
    """The files of the actions, in their order."""
    root = Path(handle.table_uri.removeprefix("file://"))
    return [str(Path(unquote(str(root))) / unquote(action["path"])) for action in actions]


def _age_commit_info(path: Path, days: int) -> None:
    """delta-rs tells a commit's time from its own record, Spark from the file's."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for action in lines:
        if "commitInfo" in action and "timestamp" in action["commitInfo"]:
            action["commitInfo"]["timestamp"] -= days * DAY_S * 1000
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
