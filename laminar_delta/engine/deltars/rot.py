"""Which file of a table on this machine's disk is damaged: looked for once rows could not be read or had changed.

Neither DataFusion nor Spark always says which file it was. So the files of that version are looked at one by one. It costs what
reading the table costs, and only when something failed; what was found of a file is remembered as long as it stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from laminar_delta.engine.arrow import canonical, project
from laminar_delta.engine.deltars import looking
from laminar_delta.engine.deltars.faults import reading
from laminar_delta.engine.deltars.looking import MISSING, OTHERWISE, Action, Intact, Looked
from laminar_delta.engine.local.rot import adding_entries, check_log, metadata_file
from laminar_delta.errors import ErrorCode, FormatError, LaminarDeltaError, StorageError

if TYPE_CHECKING:
    from deltalake import Schema

    from laminar_delta.engine.predicate import Predicate

__all__ = ["Intact", "Looked", "damaged", "named"]

_TOLD = 5
"""How many damaged files are named: whoever reads it looks for others anyway."""


def named(
    error: StorageError | FormatError,
    table: Path,
    looked: Looked,
    *,
    version: int | None = None,
    where: Predicate | None = None,
    history: bool = False,
) -> LaminarDeltaError:
    """The same error, with the file that is damaged in its words; as it is where no file can be told.

    Args:
        error: What was raised.
        table: The table's directory.
        looked: What was found before.
        version: Of which version rows were asked for.
        where: Which rows.
        history: It was the history that was asked for, and no rows.
    """
    if error.code is ErrorCode.UNREACHABLE or "path" in error.details:
        return error
    try:
        check_log(table, looked.whole, version=version, history=history)
        files = None if history else _files(table, version)
        found = [] if files is None else files.problems(where, looked) or files.refused(where)
    except StorageError as damage:
        return damage
    except (OSError, pa.ArrowException):
        # Whoever looks for the culprit has nothing worse to tell than what was wrong in the first place.
        return error
    if not found:
        return error
    return type(error)(
        f"{error.message}; damaged: {', '.join(found)}",
        code=error.code,
        expected=error.expected,
        found=error.found,
        next_step="Bring the file back from a backup; recovery goes by what can be read without it.",
        details={**error.details, "damaged": found},
    )


def damaged(
    table: Path,
    looked: Looked,
    *,
    version: int | None,
    where: Predicate | None,
    columns: Sequence[str],
    intact: Intact | None,
) -> list[str]:
    """See `Engine.damaged`."""
    try:
        check_log(table, looked.whole, version=version)
        files = _files(table, version)
        return [] if files is None else files.misnamed(version) or files.problems(where, looked, columns, intact)
    except (LaminarDeltaError, OSError, pa.ArrowException) as error:
        return [error.message if isinstance(error, LaminarDeltaError) else str(error)]


@dataclass(frozen=True, slots=True)
class _Files:
    """The data files of one version."""

    table: Path
    schema: Schema
    partition_by: list[str]
    actions: Sequence[Action]

    def problems(
        self,
        where: Predicate | None,
        looked: Looked,
        columns: Sequence[str] = (),
        intact: Intact | None = None,
    ) -> list[str]:
        """The damaged ones, of those that may have such rows by their partition and statistics."""
        found: list[str] = []
        arrow = canonical(pa.schema(cast("Any", self.schema.to_arrow())))
        for path, action in self._touched(where):
            what = looked.problem(path, action)
            if what is None and intact is not None:
                what = looking.changed(path, action, project(arrow, columns, self.table.name), intact)
            if what is not None:
                found.append(f"data file {path} {what}{self._added_by(path, what)}")
            if len(found) == _TOLD:
                break
        return found

    def misnamed(self, version: int | None) -> list[str]:
        """The file of the log that names the columns, where every data file has others."""
        import pyarrow.parquet as pq

        told = {field.name for field in self.schema.fields} - set(self.partition_by)
        seen = False
        for path, _ in self._touched(None):
            try:
                names = set(pq.read_schema(path).names)
            except (pa.ArrowException, OSError, ValueError):
                continue
            if names == told:
                return []
            seen = True
        file = metadata_file(self.table, version) if seen else None
        return [] if file is None else [f"{file} names other columns than the data files have"]

    def refused(self, where: Predicate | None) -> list[str]:
        """The first that delta-rs does not read, though nothing else is wrong with it."""
        for path, action in self._touched(where):
            what = looking.refused(path, action, self.schema, self.partition_by)
            if what is not None:
                return [f"data file {path} {what}"]
        return []

    def _touched(self, where: Predicate | None) -> list[tuple[Path, Action]]:
        return [
            (self.table / unquote(action["path"]), action)
            for action in self.actions
            if where is None or where.may_hold(looking.bounds_of(action))
        ]

    def _added_by(self, path: Path, what: str) -> str:
        """Where it is written that the file is there and what it holds, if that may be what has rotted."""
        entries = adding_entries(self.table, path.name) if what in (MISSING, OTHERWISE) else []
        return f" (log entry {', '.join(map(str, entries))} adds it)" if entries else ""


def _files(table: Path, version: int | None) -> _Files | None:
    """None where not even the log can be opened."""
    try:
        with reading(table.name, version):
            handle = DeltaTable(str(table), version=version)
            actions = pa.table(handle.get_add_actions(flatten=True)).to_pylist()
            return _Files(table, handle.schema(), handle.metadata().partition_columns, actions)
    except LaminarDeltaError:
        return None
