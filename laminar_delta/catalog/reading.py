"""Reading tables at chosen versions: now, or as the whole catalog was at some time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS, PAYLOADS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import (
    CorruptionError,
    ErrorCode,
    InvalidInputError,
    LaminarDeltaError,
    NotFoundError,
    StorageError,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar_delta.engine.answer import History
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.predicate import Predicate
    from laminar_delta.engine.request import TableSpec

Row = dict[str, Any]

STATE_TABLES = (OPERATOR_SNAPSHOTS.name, OPERATOR_DELTAS.name)
"""Where operator state is; checkpoints derived from one another share it."""

COMPACTION = "OPTIMIZE"
"""Delta's word for a commit that rewrote files without changing rows; all engines use it."""

REMOVAL = "remove"
"""What maintenance calls its deletes in the log: of what was decided to be removed, and nothing else."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An engine and, per table, the version to read; a table without one is read at its newest."""

    engine: Engine
    versions: Mapping[str, int] = field(default_factory=dict)
    stored_at: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """By table and checkpoint, where its rows are read at a version of their own: healing a chain."""
    is_past: bool = False
    """Whether it is a catalog as it was: nothing is written through it, whatever versions it names."""

    def rows(
        self, spec: TableSpec, *, where: Predicate | None = None, columns: Sequence[str] | None = None
    ) -> list[Row]:
        """The rows for which `where` holds, as dictionaries."""
        version = self.versions.get(spec.name)
        with self._of_the_format(spec):
            # Columns by name: a log whose schema has rotted must not pass for a table without some.
            found = self.engine.read(spec.name, columns=columns or spec.schema.names, where=where, version=version)
        return found.to_pylist()

    def batches(
        self, spec: TableSpec, *, columns: Sequence[str], where: Predicate | None = None
    ) -> pa.RecordBatchReader:
        """Like `rows`, batch by batch, as they lie in memory."""
        version = self.versions.get(spec.name)
        with self._of_the_format(spec):
            return self.engine.scan(spec.name, columns=columns, where=where, version=version, streamed=True)

    def stream(self, spec: TableSpec, *, where: Predicate, columns: Sequence[str]) -> Iterator[Row]:
        """Like `rows`, one by one: for rows that together do not fit into memory. Payloads are views, not copied."""
        for batch in self.batches(spec, where=where, columns=columns):
            payloads = [name for name in PAYLOADS if name in columns]
            views = {name: _views(batch.column(name)) for name in payloads}
            for number, row in enumerate(batch.drop_columns(payloads).to_pylist()):
                yield {**row, **{name: found[number] for name, found in views.items()}}

    def rows_despite_rot(
        self,
        spec: TableSpec,
        *,
        where: Predicate | None = None,
        exact: bool,
        intact: Callable[[Row], bool],
    ) -> list[Row]:
        """Like `rows`; where a file has rotted, from before the compaction that wrote it, as far as the log reaches back.

        Args:
            spec: The table.
            where: Which rows.
            exact: Only from a version that certainly has the same rows, or `CorruptionError`. Otherwise rows of later appends
                may be missing, some may come twice, and as a last resort those that are not intact are left out.
            intact: Whether a row is as it was written.
        """
        problem: LaminarDeltaError
        sound: list[Row] | None = None
        try:
            rows = self.rows(spec, where=where)
            sound = [row for row in rows if intact(row)]
            if len(sound) == len(rows):
                return sound
            problem = CorruptionError(
                f"{len(rows) - len(sound)} rows of table {spec.name!r} are not as they were written",
                expected=len(rows),
                found=len(sound),
                next_step="Restore the table's files from a backup.",
                details={"table": spec.name},
            )
        except (StorageError, CorruptionError) as error:
            raise_unless_damage(error)
            problem = error
        for version in self.before_compactions(spec, exact=exact):
            try:
                rows = self.with_version(spec.name, version).rows(spec, where=where)
            except (StorageError, CorruptionError, NotFoundError) as error:
                raise_unless_damage(error)
                continue
            if all(intact(row) for row in rows):
                # Where what came later may be missing, what is sound now is not given up for it.
                return rows if exact or sound is None else [*sound, *rows]
        if sound is not None and not exact:
            return sound
        if sound is not None:
            problem.message += named(self.changed_files(spec, where=where, intact=intact))
        raise problem

    def changed_files(
        self, spec: TableSpec, *, where: Predicate | None = None, intact: Callable[[Row], bool] | None = None
    ) -> list[str]:
        """The files of a table that are damaged, or have rows that are not intact, in words: see `Engine.damaged`."""
        return self.engine.damaged(
            spec.name,
            version=self.versions.get(spec.name),
            where=where,
            columns=[name for name in spec.schema.names if name not in PAYLOADS],
            intact=None if intact is None else lambda row: intact(dict(row)),
        )

    def history(self, spec: TableSpec, *, limit: int | None = None) -> History:
        """What the log tells of a table up to the version that is read, newest first; of the newest `limit` commits there are.

        See `Engine.told_history` for entries that are damaged.
        """
        found = self.engine.told_history(spec.name, limit=limit)
        last = self.versions.get(spec.name)
        return replace(found, entries=[entry for entry in found.entries if last is None or entry.version <= last])

    def as_far_as_whole(self, spec: TableSpec) -> tuple[Reading, str | None]:
        """The same, with a table read as it was before a log entry that is damaged; and what is damaged, in words.

        For tables whose rows only add to what is known, where somebody says then what is known no longer: never for those that
        hold fences or decisions. As it is where nothing is damaged, or no earlier version can be read either.
        """
        reading, damage = self, ""
        while True:
            try:
                # Nobody's rows: what is tried is the log, and no data file is opened.
                reading.rows(spec, where=col("pipeline").eq(""), columns=["pipeline"])
            except (StorageError, CorruptionError) as error:
                raise_unless_damage(error)
                damaged, tried = error.details.get("version"), reading.versions.get(spec.name)
                if error.code is not ErrorCode.LOG_DAMAGED or not isinstance(damaged, int) or damaged == 0:
                    return self, None
                if tried is not None and damaged > tried:
                    return self, None
                damage = damage or error.message
                reading = reading.with_version(spec.name, damaged - 1)
            else:
                return reading, damage or None

    @contextmanager
    def _of_the_format(self, spec: TableSpec) -> Iterator[None]:
        """What is asked of a table here is what its format has, so a table that cannot give it has changed."""
        try:
            yield
        except InvalidInputError as error:
            raise StorageError(
                f"table {spec.name!r} is not as its format says: {error.message}{named(self.changed_files(spec))}",
                code=ErrorCode.LOG_DAMAGED,
                expected=spec.schema.names,
                found=error.expected,
                next_step="Bring the log of the table back from a backup.",
                details={"table": spec.name},
            ) from error

    def before_compactions(self, spec: TableSpec, *, exact: bool) -> Iterator[int]:
        """The versions before compactions, newest first; `exact`: as long as nothing but compactions came after."""
        for entry in self.history(spec).entries:
            if entry.operation == COMPACTION:
                yield entry.version - 1
            elif exact:
                return

    def with_version(self, table: str, version: int) -> Reading:
        """The same, with one table read at another version."""
        return replace(self, versions={**self.versions, table: version})

    def of_checkpoints(self, table: str, numbers: Iterable[int]) -> Iterator[tuple[Reading, list[int]]]:
        """How to read the rows of some checkpoints in a table, those alike together."""
        together: dict[int | None, list[int]] = {}
        for number in sorted(set(numbers)):
            together.setdefault(self.stored_at.get((table, number)), []).append(number)
        for version, found in together.items():
            yield self if version is None else self.with_version(table, version), found


def _views(column: pa.Array[Any]) -> list[memoryview | None]:
    """The values of a binary column where they lie: Arrow itself hands out copies only."""
    _, offsets, data = column.buffers()
    if offsets is None or data is None:
        return [None] * len(column)
    bounds = memoryview(offsets).cast("B").cast("i")[column.offset : column.offset + len(column) + 1]
    whole = memoryview(data).cast("B")
    views: list[memoryview | None] = [whole[start:end] for start, end in pairwise(bounds)]
    if column.null_count:
        views = [view if valid else None for view, valid in zip(views, column.is_valid().to_pylist(), strict=True)]
    return views


def named(files: Sequence[str]) -> str:
    """Damaged files, as the end of a sentence about what they did; nothing without any."""
    return f"; damaged: {', '.join(files)}" if files else ""


def owned_by(row: Row, spec: TableSpec) -> Predicate:
    """Where a checkpoint's rows of a child table are: under its own attempt; state under that of whose it uses."""
    prefix = "state_" if spec.name in STATE_TABLES and row.get("state_attempt_id") is not None else ""
    return (
        col("pipeline").eq(row[f"{prefix}pipeline"])
        & col("checkpoint_id").eq(row[f"{prefix}checkpoint_id"])
        & col("attempt_id").eq(row[f"{prefix}attempt_id"])
    )


def raise_unless_damage(error: LaminarDeltaError) -> None:
    """Raises an error that tells nothing about the data: storage that does not answer now may have it whole later."""
    if error.code is ErrorCode.UNREACHABLE:
        raise error
