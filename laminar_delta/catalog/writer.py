"""The writer of a pipeline: everything that only the holder of its generation may do.

Its daily work is `saving`; what an operator adds is here: going back, starting from another pipeline, moving offsets, undoing.
"""

from __future__ import annotations

from dataclasses import replace

from laminar_delta.catalog.attempt import stage_offsets
from laminar_delta.catalog.derive import (
    EDIT,
    FORK,
    REWIND,
    UNDO,
    Derivation,
    Derived,
    OffsetEdits,
    newest_id,
    plan_derivation,
    undone_by,
)
from laminar_delta.catalog.saving import SavingWriter
from laminar_delta.catalog.staged import Staged
from laminar_delta.model.ids import validate_pipeline_name


class Writer(SavingWriter):
    """The holder of a pipeline's generation. Safe to share between threads; ends with `close` or its `with` block."""

    def rewind(
        self, checkpoint_id: int, *, reason: str, accept_undelivered: bool = False, dry_run: bool = False
    ) -> Derived:
        """Goes back: a new checkpoint with the content of an earlier one becomes the newest. Nothing in between is lost.

        Args:
            checkpoint_id: The one to go back to.
            reason: Why, for whoever reads the history.
            accept_undelivered: Also to one that its sinks did not get, giving up what they missed.
            dry_run: Only tell what it would be.
        """
        return self._derive(
            REWIND, self.pipeline, checkpoint_id, reason, accept_undelivered=accept_undelivered, dry_run=dry_run
        )

    def fork(self, from_pipeline: str, checkpoint_id: int, *, reason: str, dry_run: bool = False) -> Derived:
        """Starts from another pipeline's checkpoint, whose state is used where it is. That pipeline goes on unhindered."""
        return self._derive(FORK, validate_pipeline_name(from_pipeline), checkpoint_id, reason, dry_run=dry_run)

    def edit_offsets(
        self,
        edits: OffsetEdits,
        *,
        reason: str,
        checkpoint_id: int | None = None,
        accept_undelivered: bool = False,
        dry_run: bool = False,
    ) -> Derived:
        """Moves sources: a new checkpoint like the newest, or the one named, but with other offsets.

        Args:
            edits: Per source the partitions to change and their new offsets; None takes a partition out.
            reason: Why, for whoever reads the history.
            checkpoint_id: The one to edit; the newest by default.
            accept_undelivered: Also one that its sinks did not get, giving up what they missed.
            dry_run: Only tell what it would be.
        """
        return self._derive(
            EDIT,
            self.pipeline,
            newest_id(self.reading, self.pipeline) if checkpoint_id is None else checkpoint_id,
            reason,
            edits=edits,
            accept_undelivered=accept_undelivered,
            dry_run=dry_run,
        )

    def undo(self, *, reason: str, accept_undelivered: bool = False, dry_run: bool = False) -> Derived:
        """Takes back the newest checkpoint, if it was derived: a new one with the content of the one before it.

        Args:
            reason: Why, for whoever reads the history.
            accept_undelivered: Also when its sinks did not get the one before it, giving up what they missed.
            dry_run: Only tell what it would be.

        Raises:
            ConflictError: The newest was not derived: work was done since. Or recovery did not go on from the one before it,
                because its sinks did not get it.
        """
        _, before = undone_by(self.reading, self.pipeline)
        return self._derive(UNDO, self.pipeline, before, reason, accept_undelivered=accept_undelivered, dry_run=dry_run)

    def _derive(
        self,
        how: str,
        from_pipeline: str,
        from_id: int,
        reason: str,
        *,
        edits: OffsetEdits | None = None,
        accept_undelivered: bool = False,
        dry_run: bool,
    ) -> Derived:
        self.settle()
        number = self.next_id if dry_run else self.committer.take_id(None)
        planned = plan_derivation(
            self.reading,
            self.pipeline,
            number,
            how=how,
            from_pipeline=from_pipeline,
            from_id=from_id,
            reason=reason,
            edits=edits,
            accept_undelivered=accept_undelivered,
        )
        if not dry_run:
            planned = self._commit_derived(number, planned)
        return planned.told(number, dry_run=dry_run)

    def _commit_derived(self, number: int, planned: Derivation) -> Derivation:
        with self.attempting(number) as attempt:
            if planned.rewriting is None:
                staged = self.stage(attempt, planned.manifest)
            else:
                manifest, state = planned.rewriting.stage(self.engine, attempt, planned.manifest, self.state_policy)
                parts = (*stage_offsets(self.engine, attempt, manifest), *state.parts)
                staged = Staged(manifest=manifest, parts=parts, state=state)
            self.commit(attempt, staged.manifest, staged.parts, state=staged.state, lineage=planned.lineage)
        return replace(planned, manifest=staged.manifest)
