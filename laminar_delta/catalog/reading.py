"""Reading tables at chosen versions: now, or as the whole catalog was at some time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laminar_delta.errors import CorruptionError, NotFoundError, StorageError

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.predicate import Predicate
    from laminar_delta.engine.request import TableSpec

Row = dict[str, Any]

_COMPACTION = "OPTIMIZE"
"""Delta's word for a commit that rewrote files without changing rows; all engines use it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An engine and, per table, the version to read; a table without one is read at its newest."""

    engine: Engine
    versions: Mapping[str, int] = field(default_factory=dict)

    def rows(
        self, spec: TableSpec, *, where: Predicate | None = None, columns: Sequence[str] | None = None
    ) -> list[Row]:
        """The rows for which `where` holds, as dictionaries."""
        version = self.versions.get(spec.name)
        return self.engine.read(spec.name, columns=columns, where=where, version=version).to_pylist()

    def rows_despite_rot(
        self, spec: TableSpec, *, where: Predicate | None = None, columns: Sequence[str] | None = None, exact: bool
    ) -> list[Row]:
        """Like `rows`; where a file has rotted, from before the compaction that wrote it, as far as the log reaches back.

        Args:
            spec: The table.
            where: Which rows.
            columns: Which columns.
            exact: Only from a version that certainly has the same rows. Otherwise rows of later appends may be missing.
        """
        try:
            return self.rows(spec, where=where, columns=columns)
        except (StorageError, CorruptionError):
            for version in self._before_compactions(spec, exact=exact):
                try:
                    return self.with_version(spec.name, version).rows(spec, where=where, columns=columns)
                except (StorageError, CorruptionError, NotFoundError):
                    continue
            raise

    def _before_compactions(self, spec: TableSpec, *, exact: bool) -> Iterator[int]:
        newest = self.versions.get(spec.name)
        for entry in self.engine.history(spec.name):
            if newest is not None and entry.version > newest:
                continue
            if entry.operation == _COMPACTION:
                yield entry.version - 1
            elif exact:
                return

    def with_version(self, table: str, version: int) -> Reading:
        """The same, with one table read at another version."""
        return Reading(self.engine, {**self.versions, table: version})
