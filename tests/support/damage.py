"""Damage as it happens to real tables: rows deleted or overwritten by a careless statement, files that rot or go missing."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

import laminar_delta as ld
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.tables import MANIFESTS, TABLES
from laminar_delta.engine.base import Engine
from laminar_delta.engine.memory import MemoryEngine
from laminar_delta.engine.predicate import Predicate
from laminar_delta.engine.request import TableSpec
from laminar_delta.testing.scenarios import age_log


def overwrite(engine: Engine, spec: TableSpec, where: Predicate, change: Mapping[str, Any]) -> None:
    """What a careless UPDATE does: the rows go, others take their place."""
    rows = engine.read(spec.name, where=where).to_pylist()
    engine.delete(spec.name, where)
    engine.append(spec.name, pa.Table.from_pylist([{**row, **change} for row in rows], schema=spec.schema))


@dataclass(frozen=True)
class DataFile:
    """A file with rows of checkpoints, in use or kept for time travel; on the memory engine, a fragment."""

    engine: Engine
    table: str
    name: str

    def touches(self, pipeline: str, checkpoint_id: int) -> bool:
        """Whether who reads that checkpoint may open this file: what its statistics do not rule out."""
        if isinstance(self.engine, MemoryEngine):
            return True
        placed = re.search(r"pipeline=([^/]*)/checkpoint_id=(\d+)", self.name)
        if placed is not None:
            return (unquote(unquote(placed[1])), int(placed[2])) == (pipeline, checkpoint_id)
        rows = pq.ParquetFile(self._path).read(columns=["pipeline", "checkpoint_id"]).to_pylist()
        names, numbers = [row["pipeline"] for row in rows], [row["checkpoint_id"] for row in rows]
        return bool(min(names) <= pipeline <= max(names) and min(numbers) <= checkpoint_id <= max(numbers))

    @property
    def can_rot(self) -> bool:
        """Whether it has bytes to flip."""
        return not isinstance(self.engine, MemoryEngine)

    @contextmanager
    def missing(self) -> Iterator[None]:
        """Within: the file is not there."""
        if isinstance(self.engine, MemoryEngine):
            fragments = self.engine._tables[self.table].fragments
            kept = fragments.pop(int(self.name))
            try:
                yield
            finally:
                fragments[int(self.name)] = kept
            return
        aside = self._path.with_name(f"{self._path.name}.aside")
        self._path.rename(aside)
        try:
            yield
        finally:
            aside.rename(self._path)

    @contextmanager
    def rotten(self, place: float) -> Iterator[None]:
        """Within: one byte is another, at that fraction of the file."""
        whole = self._path.read_bytes()
        damaged = bytearray(whole)
        damaged[int(place * (len(whole) - 1))] ^= 0x41
        self._path.write_bytes(damaged)
        try:
            yield
        finally:
            self._path.write_bytes(whole)

    @property
    def _path(self) -> Path:
        return Path(self.engine.location) / self.name


def data_files(engine: Engine, table: str) -> list[DataFile]:
    """All there are, of every version, in a fixed order: the oldest first."""
    if isinstance(engine, MemoryEngine):
        return [DataFile(engine, table, str(number)) for number in sorted(engine._tables[table].fragments)]
    root = Path(engine.location)
    paths = [path for path in (root / table).rglob("*.parquet") if "_delta_log" not in path.parts]
    paths.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    return [DataFile(engine, table, str(path.relative_to(root))) for path in paths]


def clean_logs(catalog: ld.Catalog) -> None:
    """A month goes by, and maintenance cleans the logs."""
    for spec in TABLES:
        if isinstance(catalog.engine, MemoryEngine):
            # Its log has no files to age: what cleaning leaves of it.
            table = catalog.engine._tables[spec.name]
            for version in sorted(table.versions)[:-1]:
                del table.versions[version]
        else:
            age_log(Path(catalog.engine.location) / spec.name)
    catalog.maintain(MaintenancePolicy(vacuum=False))
    assert catalog.engine.history(MANIFESTS.name)[-1].version > 0
