"""Deriving: a new checkpoint made from an old one. Rewinding, forking, editing offsets and undoing are all this.

A derived checkpoint is a checkpoint like any other: it gets the pipeline's next id and epoch, is committed under the fence, and
recovery finds it as the newest. The state of the one it comes from is used by reference, so it costs no more than its manifest;
unless that state is whole only in earlier versions of its tables: then it is written anew.
Nothing of the past is changed: what it was derived from, over what, by whom and why stays readable in its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import load_manifest
from laminar_delta.catalog.healing import find_row, healed, highest_epoch
from laminar_delta.catalog.listing import known_ids, newest_known
from laminar_delta.catalog.numbers import CheckpointNumbers
from laminar_delta.catalog.origin import check_delivered, check_sound, state_of, usable_row
from laminar_delta.catalog.reading import STATE_TABLES
from laminar_delta.catalog.rows import Lineage, check_numbers
from laminar_delta.catalog.said import check_reason
from laminar_delta.errors import ConflictError, InvalidInputError, NotFoundError
from laminar_delta.model.ids import check_ordering_number
from laminar_delta.model.manifest import ConnectorCheckpoint, now_ms

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.rewriting import Rewriting
    from laminar_delta.model.manifest import CheckpointManifest

REWIND = "rewind"
FORK = "fork"
EDIT = "edit"
UNDO = "undo"

OffsetEdits = Mapping[str, Mapping[str, str | None]]
"""Per source the partitions to change and their new offsets; None takes a partition out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A checkpoint that was derived, or would be."""

    checkpoint_id: int
    how: str
    from_pipeline: str
    from_id: int
    over_id: int | None
    """The newest checkpoint before it, which undoing goes back to."""
    manifest: CheckpointManifest
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """A derivation planned: everything looked up and checked, nothing written."""

    manifest: CheckpointManifest
    lineage: Lineage
    rewriting: Rewriting | None = None
    """The state to write anew; None to use it where it is."""

    def told(self, checkpoint_id: int, *, dry_run: bool) -> Derived:
        """What the caller is told of it."""
        return Derived(
            checkpoint_id=checkpoint_id,
            how=self.lineage.how,
            from_pipeline=self.lineage.from_pipeline,
            from_id=self.lineage.from_id,
            over_id=self.lineage.over_id,
            manifest=self.manifest,
            dry_run=dry_run,
        )


def plan_derivation(
    reading: Reading,
    pipeline: str,
    checkpoint_id: int,
    *,
    how: str,
    from_pipeline: str,
    from_id: int,
    reason: str,
    edits: OffsetEdits | None = None,
    accept_undelivered: bool = False,
) -> Derivation:
    """Works out a derived checkpoint.

    Raises:
        ConflictError: The one it would come from has sinks that never got it, or was abandoned.
        CorruptionError: It is damaged beyond healing.
        NotFoundError: It does not exist, or is retired.
    """
    check_reason("a derived checkpoint", reason)
    check_ordering_number("checkpoint_id", from_id)
    _check_edits(edits)
    row = usable_row(reading, from_pipeline, from_id)
    source = healed(reading, row, lambda found: load_manifest(found, row))
    rewriting = check_sound(reading, row)
    if how != FORK:
        # Another pipeline's sinks have nothing to do with this one's.
        check_delivered(reading, row, accept_undelivered=accept_undelivered)
    manifest = replace(
        source,
        checkpoint_id=checkpoint_id,
        epoch=highest_epoch(reading, pipeline) + 1,
        timestamp_ms=now_ms(),
        source_offsets=_edited(source.source_offsets, edits or {}),
        # Nothing is owed to a sink for a checkpoint that repeats an earlier one.
        sink_commit_statuses={},
        # What it needs is told by where its state is; deltas against a parent stay with the one that has them.
        parent_id=None,
        is_incremental=False,
    )
    # Also for a dry run: it promises nothing that could not be done.
    check_numbers(manifest)
    before = known_ids(reading, pipeline)
    lineage = Lineage(
        how=how,
        from_pipeline=from_pipeline,
        from_id=from_id,
        over_id=before[-1] if before else None,
        reason=reason,
        vnode_count=row["vnode_count"],
    )
    if rewriting is None:
        used = tuple(child for child in row["children"] if child["table"] in STATE_TABLES)
        lineage = replace(lineage, state=state_of(row), children=used)
    return Derivation(manifest=manifest, lineage=lineage, rewriting=rewriting)


def preview(
    reading: Reading,
    pipeline: str,
    *,
    how: str,
    reason: str,
    from_pipeline: str | None = None,
    from_id: int | None = None,
    edits: OffsetEdits | None = None,
    accept_undelivered: bool = False,
) -> Derived:
    """What a derivation would come to, looked up without a generation: a running writer is not disturbed by the question.

    Args:
        reading: Where.
        pipeline: Whose checkpoint it would be.
        how: `REWIND`, `FORK`, `EDIT` or `UNDO`.
        reason: Why.
        from_pipeline: Whose checkpoint it would be made from; the same pipeline's by default.
        from_id: Which; the newest by default, for `UNDO` what it goes back to.
        edits: For `EDIT`.
        accept_undelivered: Also from one that its sinks did not get.
    """
    if how not in (REWIND, FORK, EDIT, UNDO):
        raise InvalidInputError(
            f"a checkpoint cannot be derived by {how!r}", expected=[REWIND, FORK, EDIT, UNDO], found=how
        )
    origin = from_pipeline or pipeline
    if how == UNDO:
        _, from_id = undone_by(reading, pipeline)
    number = CheckpointNumbers(reading, pipeline).next
    chosen = newest_id(reading, origin) if from_id is None else from_id
    planned = plan_derivation(
        reading,
        pipeline,
        number,
        how=how,
        from_pipeline=origin,
        from_id=chosen,
        reason=reason,
        edits=edits,
        accept_undelivered=accept_undelivered,
    )
    return planned.told(number, dry_run=True)


def newest_id(reading: Reading, pipeline: str) -> int:
    """The newest visible checkpoint, also where somebody took out its row.

    Raises:
        CorruptionError: Its row is lost: then the caller has to say which one is meant.
        NotFoundError: There is none.
    """
    newest = newest_known(reading, pipeline)
    if newest is None:
        raise NotFoundError(
            f"pipeline {pipeline!r} has no checkpoint to derive from",
            expected="a checkpoint",
            next_step="Check the name; see `catalog.pipelines()` for those there are.",
        )
    return newest


def undone_by(reading: Reading, pipeline: str) -> tuple[int, int]:
    """What undoing the newest checkpoint of a pipeline would undo, and what it would go back to.

    Raises:
        ConflictError: The newest is not a derived one: there is work since that undoing would throw away.
        CorruptionError: Its row is lost, and with it what it was derived over.
    """
    newest = newest_known(reading, pipeline)
    if newest is None:
        raise NotFoundError(f"pipeline {pipeline!r} has no checkpoint to undo")
    row = find_row(reading, pipeline, newest)
    if row is None or row["derived_over_id"] is None:
        raise ConflictError(
            f"checkpoint {newest} of pipeline {pipeline!r} was not derived over another: there is nothing to undo",
            expected="a derived checkpoint",
            found=newest,
            next_step="Rewind to the checkpoint you want instead.",
        )
    return newest, int(row["derived_over_id"])


def _check_edits(edits: object) -> None:
    if edits is None:
        return
    if not isinstance(edits, Mapping) or not all(isinstance(partitions, Mapping) for partitions in edits.values()):
        raise InvalidInputError(
            "the edits do not say which offsets of which sources",
            expected="by source: offsets by partition",
            found=edits,
        )


def _edited(sources: Mapping[str, ConnectorCheckpoint], edits: OffsetEdits) -> dict[str, ConnectorCheckpoint]:
    unknown = sorted(set(edits) - set(sources))
    if unknown:
        raise NotFoundError(f"the checkpoint has no source {unknown[0]!r}", expected=unknown[0], found=sorted(sources))
    changed = dict(sources)
    for name, partitions in edits.items():
        offsets = {**sources[name].offsets, **partitions}
        changed[name] = replace(
            sources[name], offsets={key: value for key, value in offsets.items() if value is not None}
        )
    return changed
