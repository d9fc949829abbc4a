"""Finding checkpoints: which there are, which are visible, and what one consists of.

A checkpoint exists when `manifests` has its row. It is visible unless it was retired and not restored since. Children are
reached only through that row: by pipeline, checkpoint and attempt, and only the parts it lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.attempt import children_digest
from laminar_delta.catalog.reading import owned_by
from laminar_delta.catalog.rows import manifest_from_rows
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.statuses import current_statuses
from laminar_delta.catalog.tables import BY_NAME, MANIFESTS, PAYLOADS, SOURCE_OFFSETS
from laminar_delta.engine.kernels import call
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, NotFoundError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.predicate import Predicate
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHead:
    """What a listing shows of a checkpoint."""

    pipeline: str
    checkpoint_id: int
    epoch: int
    timestamp_ms: int
    attempt_id: str
    generation: int
    parent_id: int | None = None
    """The checkpoint its deltas are against."""
    state_checkpoint_id: int | None = None
    """For a derived checkpoint: the one whose state it uses, of `state_pipeline`."""
    state_pipeline: str | None = None
    state_needs: Sequence[int] = ()
    """The checkpoints before that store some of its state."""
    derived_over_id: int | None = None
    """For a derived checkpoint: the newest before it, which undoing goes back to."""

    @property
    def needs(self) -> list[tuple[str, int]]:
        """Checkpoints, by pipeline and id, whose rows must stay as long as this one does."""
        needed = [] if self.parent_id is None else [(self.pipeline, self.parent_id)]
        needed.extend((self.pipeline, number) for number in self.state_needs or ())
        if self.state_pipeline is not None and self.state_checkpoint_id is not None:
            needed.append((self.state_pipeline, self.state_checkpoint_id))
        return needed


_HEAD_COLUMNS = [field.name for field in fields(CheckpointHead)]


def heads(reading: Reading, pipeline: str) -> list[CheckpointHead]:
    """The visible checkpoints of a pipeline, ascending by id."""
    found = all_heads(reading, col("pipeline").eq(pipeline))
    gone = standing(reading, pipeline).retired
    return [head for head in found if head.checkpoint_id not in gone]


def all_heads(reading: Reading, where: Predicate | None) -> list[CheckpointHead]:
    """All checkpoints that have a row, retired or not, ascending by pipeline and id."""
    rows = reading.rows(MANIFESTS, where=where, columns=_HEAD_COLUMNS)
    return sorted(map(head_of, rows), key=lambda head: (head.pipeline, head.checkpoint_id))


def head_of(row: Row) -> CheckpointHead:
    """What a listing shows of a manifest row."""
    return CheckpointHead(**{name: row[name] for name in _HEAD_COLUMNS})


def inline_bytes(reading: Reading, where: Predicate | None = None) -> dict[tuple[str, int], int]:
    """By pipeline and checkpoint, the bytes of state that travel in its manifest row; a manifest's size leaves them out.

    To know how long it is, it is read: ask only for those that are needed.
    """
    found: dict[tuple[str, int], int] = {}
    # Batch by batch, and lengths only: together it can be a lot.
    for batch in reading.batches(MANIFESTS, where=where, columns=["pipeline", "checkpoint_id", "operators"]):
        operators = batch.column("operators")
        keys: list[Any] = list(
            zip(*(batch.column(name).to_pylist() for name in ("pipeline", "checkpoint_id")), strict=True)
        )
        whose: list[int] = call("list_parent_indices", operators).to_pylist()
        lengths = call("binary_length", call("list_flatten", operators).field("state")).to_pylist()
        for row, length in zip(whose, lengths, strict=True):
            found[keys[row]] = found.get(keys[row], 0) + (length or 0)
    return found


def see_list(pipeline: str) -> str:
    """Where the checkpoints there are can be seen, for whoever calls from a program or from a terminal."""
    return f"See `pipeline.list()`, or `laminar-delta ls {pipeline}`, for those there are"


def manifest_row(reading: Reading, pipeline: str, checkpoint_id: int) -> Row:
    """The row of a checkpoint, retired or not. Raises `NotFoundError` without one."""
    where = col("pipeline").eq(pipeline) & col("checkpoint_id").eq(checkpoint_id)
    rows = reading.rows(MANIFESTS, where=where)
    if not rows:
        raise NotFoundError(
            f"pipeline {pipeline!r} has no checkpoint {checkpoint_id}",
            expected=checkpoint_id,
            next_step=f"{see_list(pipeline)}; it may never have been committed, or have been removed.",
        )
    return rows[0]


def load_manifest(reading: Reading, row: Row) -> CheckpointManifest:
    """The manifest of a row, with its children's offsets and the current statuses of its sinks.

    Raises:
        CorruptionError: Its offsets are not the ones that were saved.
    """
    manifest = manifest_from_rows(row, saved_children(reading, row, SOURCE_OFFSETS.name))
    return replace(manifest, sink_commit_statuses=current_statuses(reading, row))


def child_rows(
    reading: Reading,
    row: Row,
    table: str,
    *,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
) -> list[Row]:
    """The rows of a child table that belong to a checkpoint: of its attempt, and of the parts its manifest accepted."""
    parts = [part for child in row["children"] if child["table"] == table for part in child["parts"]]
    if not parts:
        return []
    own = owned_by(row, BY_NAME[table]) & col("part_id").is_in(parts)
    return reading.rows(BY_NAME[table], where=own if where is None else own & where, columns=columns)


def saved_children(reading: Reading, row: Row, table: str) -> list[Row]:
    """All rows of a child table that a checkpoint was saved with, without payloads.

    Raises:
        CorruptionError: They are not what was saved.
    """
    for child in row["children"]:
        if child["table"] == table:
            columns = [name for name in BY_NAME[table].schema.names if name not in PAYLOADS]
            rows = child_rows(reading, row, table, columns=columns)
            problem = children_problem(child, rows)
            if problem is not None:
                raise CorruptionError(
                    f"checkpoint {row['checkpoint_id']} of pipeline {row['pipeline']!r}: {problem[1]}",
                    expected=child["rows"],
                    found=len(rows),
                    details={"table": table, "version": child["version"]},
                )
            return rows
    return []


def children_problem(child: Row, rows: list[Row]) -> tuple[str, str] | None:
    """What is wrong with the rows found for an entry of `children`, as a stable name and in words; None for nothing."""
    if len(rows) != child["rows"]:
        return "children-missing", f"{child['table']} has {len(rows)} of {child['rows']} rows"
    if children_digest(rows) != child["digest"]:
        return "children-changed", f"{child['table']} holds other rows than were saved"
    return None
