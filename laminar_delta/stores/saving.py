"""The writing side of a store: it takes the generation when it is first needed, and keeps it.

A sidecar that comes before its manifest is staged under an attempt of its own, which the save then adopts. One that is
replaced, or left over in the end, is given up, so that its rows can be removed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.accepting import check_manifest
from laminar_delta.catalog.attempt import children_of, stage_offsets
from laminar_delta.catalog.comparing import check_same, news
from laminar_delta.catalog.sidecar import SIDECAR, stage_sidecar
from laminar_delta.catalog.state.chunks import Measured
from laminar_delta.codec import xxh3_hex
from laminar_delta.errors import ConflictError, NotFoundError, SessionStateError
from laminar_delta.model import check_ordering_number
from laminar_delta.stores.resuming import StartingPoint

if TYPE_CHECKING:
    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.reading import Row
    from laminar_delta.catalog.state.staging import StagedState
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.codec import StateSource
    from laminar_delta.model import CheckpointManifest, RecoveryReport
    from laminar_delta.stores.loading import Loader


@dataclass(frozen=True, slots=True)
class _Staged:
    """A sidecar that waits for its manifest."""

    attempt: Attempt
    state: StagedState


class Saver:
    """Writes the checkpoints of a pipeline, one call at a time."""

    def __init__(self, catalog: Catalog, loader: Loader, owner: str) -> None:
        self._catalog = catalog
        self._loader = loader
        self._owner = owner
        self._turn = threading.Lock()
        self._writer: Writer | None = None
        self._closed = False
        self._staged: dict[int, _Staged] = {}
        self._start = StartingPoint()

    def save(self, manifest: CheckpointManifest, state_data: StateSource | None) -> bool:
        """Saves a checkpoint with its state, or with what was staged for it. Whether it is new."""
        check_manifest(manifest)
        number = manifest.checkpoint_id
        with self._turn:
            writer = self._hold()
            row = self._committed(writer, number)
            if row is not None:
                self._check_same(row, manifest, state_data)
                writer.aftercare.found(number)
                self._give_up(writer, number)
                return False
            self._start.leave(writer)
            staged = self._staged.get(number)
            if state_data is None and staged is not None:
                self._commit(writer, staged.attempt, manifest, staged.state)
                # Only now: when the commit failed, the next save finds it still there.
                del self._staged[number]
                return True
            with writer.attempting(number) as attempt:
                if state_data is None:
                    self._commit(writer, attempt, manifest, None)
                else:
                    state = stage_sidecar(writer, attempt, state_data)
                    self._commit(writer, attempt, replace(manifest, state_checksum=None), state)
            self._give_up(writer, number)
            return True

    def stage(self, checkpoint_id: int, data: StateSource) -> None:
        """Keeps a sidecar for the save of its checkpoint, in place of one from before."""
        number = check_ordering_number("checkpoint_id", checkpoint_id)
        with self._turn:
            writer = self._hold()
            row = self._committed(writer, number)
            if row is not None:
                self._check_same_state(row, data)
                return
            with writer.attempting(number) as attempt:
                state = stage_sidecar(writer, attempt, data)
            self._give_up(writer, number)
            self._staged[number] = _Staged(attempt, state)

    def record(self, manifest: CheckpointManifest) -> None:
        """Records the sink statuses of a manifest that are news."""
        check_manifest(manifest)
        number = manifest.checkpoint_id
        with self._turn:
            writer = self._hold()
            row = self._committed(writer, number)
            if row is None:
                raise NotFoundError(f"pipeline {writer.pipeline!r} has no checkpoint {number}", expected=number)
            stored = self._loader.manifest(row)
            check_same(writer.pipeline, manifest, stored)
            known = {sink["name"] for sink in row["sinks"]}
            unknown = sorted(manifest.sink_commit_statuses.keys() - known)
            if unknown:
                raise ConflictError(
                    f"checkpoint {number} of pipeline {writer.pipeline!r} has no sink {unknown[0]!r}",
                    expected=unknown,
                    found=sorted(known),
                    next_step="Name a sink when its checkpoint is saved.",
                )
            changes = news(manifest.sink_commit_statuses, stored.sink_commit_statuses)
            if changes:
                writer.set_sink_statuses(number, changes)

    def staged(self, checkpoint_id: int) -> Row | None:
        """What the manifest row of a staged sidecar would say of it; None when nothing is staged for that id."""
        with self._turn:
            found = self._staged.get(checkpoint_id)
        if found is None:
            return None
        children = children_of(found.state.parts)
        return {
            "pipeline": found.attempt.pipeline,
            "checkpoint_id": checkpoint_id,
            "attempt_id": found.attempt.attempt_id,
            "state_pipeline": None,
            "state_attempt_id": None,
            "operators": [],
            "children": children,
        }

    def recovered(self, report: RecoveryReport) -> None:
        """Takes note of a recovery: the next save goes on from it, unless there was one already."""
        with self._turn:
            self._start.remember(report, behind_fence=self._writer is not None)

    def aborted(self) -> frozenset[str]:
        """The attempts given up here."""
        with self._turn:
            return frozenset() if self._writer is None else self._writer.aborted

    def close(self) -> None:
        """Gives up what is staged, and the generation."""
        with self._turn:
            self._closed = True
            if self._writer is not None:
                for number in list(self._staged):
                    self._give_up(self._writer, number)
                self._writer.close()

    def _hold(self) -> Writer:
        if self._closed:
            raise SessionStateError(
                f"the store of pipeline {self._loader.pipeline.name!r} is closed", next_step="Open a new store."
            )
        if self._writer is None:
            self._writer = self._catalog.writer(
                self._loader.pipeline.name,
                owner=self._owner,
                reason="first write of a checkpoint store",
                vnode_count=self._loader.vnode_count,
            )
        self._start.confirm(self._writer)
        self._writer.settle()
        return self._writer

    def _committed(self, writer: Writer, checkpoint_id: int) -> Row | None:
        """The row of a checkpoint that is committed. Raises `ConflictError` when it was removed."""
        return None if writer.committer.is_new(checkpoint_id) else self._loader.committed(checkpoint_id)

    def _commit(
        self, writer: Writer, attempt: Attempt, manifest: CheckpointManifest, state: StagedState | None
    ) -> None:
        parts = tuple(stage_offsets(self._catalog.engine, attempt, manifest))
        if state is not None:
            (layout,) = state.layouts.values()
            checksum = layout.checksum if manifest.state_checksum is None else manifest.state_checksum
            size = manifest.size_bytes or layout.length
            manifest = replace(manifest, state_checksum=checksum, size_bytes=size)
            parts = (*parts, *state.parts)
        writer.commit(attempt, manifest, parts, state=state)

    def _check_same(self, row: Row, manifest: CheckpointManifest, state_data: StateSource | None) -> None:
        # A checksum that comes with data is not taken from the manifest, so it is not compared with it either.
        stated = manifest if state_data is None else replace(manifest, state_checksum=None)
        check_same(self._loader.pipeline.name, stated, self._loader.manifest(row))
        if row["vnode_count"] not in (None, self._loader.vnode_count):
            raise ConflictError(
                f"checkpoint {row['checkpoint_id']} of pipeline {row['pipeline']!r} is committed with another vnode_count",
                expected=self._loader.vnode_count,
                found=row["vnode_count"],
                next_step="Save under another id.",
            )
        if state_data is not None:
            self._check_same_state(row, state_data)

    def _check_same_state(self, row: Row, data: StateSource) -> None:
        given = Measured.of({(SIDECAR, 0): data}).checksums[SIDECAR, 0]
        stored = self._loader.sidecar(row)
        found = None if stored is None else xxh3_hex(stored)
        if given != found:
            raise ConflictError(
                f"checkpoint {row['checkpoint_id']} of pipeline {row['pipeline']!r} is committed "
                f"{'without state' if found is None else 'with other state'}",
                expected=given,
                found=found,
                next_step="Save other state under another id.",
            )

    def _give_up(self, writer: Writer, checkpoint_id: int) -> None:
        staged = self._staged.pop(checkpoint_id, None)
        if staged is not None:
            writer.abort(staged.attempt)
