"""Reading tables at chosen versions: now, or as the whole catalog was at some time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.predicate import Predicate
    from laminar_delta.engine.request import TableSpec

Row = dict[str, Any]


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

    def with_version(self, table: str, version: int) -> Reading:
        """The same, with one table read at another version."""
        return Reading(self.engine, {**self.versions, table: version})
