"""An attempt at a checkpoint: children staged under its id, invisible until a manifest row lists them.

An attempt is a small token: it is pickled to another process, which stages under it and gives its parts back the same way.
Each staged append is a part with an id of its own; the commit says which parts it accepts, so a part that arrives late, or
twice, stays invisible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.digest import rows_digest
from laminar_delta.catalog.rows import SaveContext, offsets_table
from laminar_delta.catalog.tables import PAYLOADS, SOURCE_OFFSETS
from laminar_delta.errors import InvalidInputError
from laminar_delta.model.ids import new_attempt_id

if TYPE_CHECKING:
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.catalog.reading import Row
    from laminar_delta.engine.answer import HistoryEntry
    from laminar_delta.engine.base import Engine, Metadata
    from laminar_delta.engine.request import Ahead
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at saving one checkpoint."""

    pipeline: str
    checkpoint_id: int
    attempt_id: str
    generation: int
    owner: str

    @classmethod
    def new(cls, held: Generation, checkpoint_id: int) -> Attempt:
        """A fresh try by the holder of a generation."""
        return cls(
            pipeline=held.pipeline,
            checkpoint_id=checkpoint_id,
            attempt_id=new_attempt_id(),
            generation=held.number,
            owner=held.owner,
        )

    def metadata(self, operation: str, reason: str | None = None) -> dict[str, object]:
        """What a commit for this attempt says about itself in the log."""
        return {"operation": operation, **self._member(), "reason": reason}

    def _member(self) -> dict[str, object]:
        return {
            "pipeline": self.pipeline,
            "checkpoint": self.checkpoint_id,
            "attempt": self.attempt_id,
            "generation": self.generation,
            "owner": self.owner,
        }


def shared_metadata(operation: str, attempts: Sequence[Attempt]) -> dict[str, object]:
    """What a commit for several attempts says about itself: each is a member."""
    if len(attempts) == 1:
        return attempts[0].metadata(operation)
    return {"operation": operation, "members": [attempt._member() for attempt in attempts]}


def members(metadata: Metadata) -> list[Metadata]:
    """What a commit says about each of the attempts it was for; the whole, where it was for one or for none."""
    found = metadata.get("members")
    if not isinstance(found, list):
        return [metadata]
    return [{**metadata, **member} for member in found if isinstance(member, dict)]


def births(entry: HistoryEntry) -> list[Metadata]:
    """What a commit to `manifests` says about each checkpoint it made. Only such a commit names an attempt there."""
    return [said for said in members(entry.metadata) if "attempt" in said and "checkpoint" in said]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one append staged for one attempt: what its manifest needs to know to accept it."""

    table: str
    part_id: str
    version: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class PartAhead:
    """A part that is written but not committed yet."""

    part_id: str
    said: dict[str, tuple[int, str]]
    """By attempt: how many rows, and their digest."""
    ahead: Ahead | None = None


def stage_ahead(engine: Engine, table: str, rows: pa.Table) -> PartAhead | None:
    """Writes child rows that `stage` is going to commit together with others; None where they must be staged themselves."""
    part, own = _as_part(rows)
    ahead = engine.write_ahead(table, own)
    return None if ahead is None else replace(part, ahead=ahead)


def stage(
    engine: Engine, attempts: Sequence[Attempt], table: str, rows: pa.Table, before: Sequence[PartAhead] = ()
) -> dict[str, list[Part]]:
    """Appends child rows of attempts in one commit, with parts written ahead; the parts of each that has rows among them.

    Of rows there may be none where there are parts.
    """
    last, own = _as_part(rows)
    parts = [*before, last] if last.said else list(before)
    staged = [attempt for attempt in attempts if any(attempt.attempt_id in part.said for part in parts)]
    made = engine.append(
        table,
        own,
        metadata=shared_metadata("stage", staged),
        key={"attempt_id": next(iter(parts[-1].said)), "part_id": parts[-1].part_id},
        ahead=[part.ahead for part in before if part.ahead is not None],
    )
    assert made.version is not None
    found: dict[str, list[Part]] = {}
    for part in parts:
        for attempt_id, (count, digest) in part.said.items():
            whole = Part(table=table, part_id=part.part_id, version=made.version, rows=count, digest=digest)
            found.setdefault(attempt_id, []).append(whole)
    return found


def _as_part(rows: pa.Table) -> tuple[PartAhead, pa.Table]:
    """Rows under a fresh part id, and what is to be said of them."""
    part_id = new_attempt_id()
    column = rows.column_names.index("part_id")
    own = rows.set_column(column, "part_id", pa.array([part_id] * rows.num_rows, pa.string()))
    plain = own.drop_columns([name for name in PAYLOADS if name in own.column_names]).to_pylist()
    by_attempt: dict[str, list[Row]] = {}
    for row in plain:
        by_attempt.setdefault(row["attempt_id"], []).append(row)
    said = {attempt_id: (len(found), rows_digest(found)) for attempt_id, found in by_attempt.items()}
    return PartAhead(part_id, said), own


def stage_offsets(engine: Engine, attempt: Attempt, manifest: CheckpointManifest) -> list[Part]:
    """Stages the sources and reference tables of a manifest; nothing when it has none."""
    return stage_all_offsets(engine, [(attempt, manifest)])[0]


def stage_all_offsets(engine: Engine, saves: Sequence[tuple[Attempt, CheckpointManifest]]) -> list[list[Part]]:
    """The same for several manifests in one commit; the answer in their order."""
    tables = []
    for attempt, manifest in saves:
        if manifest.checkpoint_id != attempt.checkpoint_id:
            raise InvalidInputError(
                f"the manifest is of checkpoint {manifest.checkpoint_id}, the attempt of {attempt.checkpoint_id}",
                expected=attempt.checkpoint_id,
                found=manifest.checkpoint_id,
            )
        context = SaveContext(pipeline=attempt.pipeline, attempt_id=attempt.attempt_id, generation=attempt.generation)
        tables.append(offsets_table(manifest, context))
    rows = pa.concat_tables(tables) if tables else None
    if rows is None or not rows.num_rows:
        return [[] for _ in saves]
    parts = stage(engine, [attempt for attempt, _ in saves], SOURCE_OFFSETS.name, rows)
    return [parts.get(attempt.attempt_id, []) for attempt, _ in saves]


def children_of(parts: Iterable[Part]) -> list[dict[str, object]]:
    """The `children` column of a manifest row: per table the parts, their rows, and a version that holds them all."""
    by_table: dict[str, list[Part]] = {}
    for part in parts:
        by_table.setdefault(part.table, []).append(part)
    return [
        {
            "table": table,
            "version": max(part.version for part in found),
            "parts": [part.part_id for part in found if part.rows],
            "rows": sum(part.rows for part in found),
            "digest": _together(part.digest for part in found if part.rows),
        }
        for table, found in sorted(by_table.items())
    ]


def children_digest(rows: Iterable[Row]) -> str:
    """The digest of child rows as read back: per part, then over the parts."""
    by_part: dict[str, list[Row]] = {}
    for row in rows:
        by_part.setdefault(row["part_id"], []).append({k: v for k, v in row.items() if k not in PAYLOADS})
    return _together([rows_digest(found) for found in by_part.values()])


def _together(digests: Iterable[str]) -> str:
    return rows_digest({"digest": digest} for digest in digests)
