"""What follows a commit: what the checkpoint needs of others is kept, and the next state is stored upon its own.

The commit was the decision, and nothing that fails here takes it back: the caller is told that the checkpoint is committed, and
saving it again does what was left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from laminar_delta.catalog.needs import keep_needed
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.errors import CommitUnknownError, ConflictError, LaminarDeltaError

if TYPE_CHECKING:
    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.committing import Committer
    from laminar_delta.catalog.staged import Saved, Staged
    from laminar_delta.catalog.state.basis import Basis
    from laminar_delta.engine.base import Engine


class Aftercare:
    """Looks after the checkpoints of one writer, in the turns of its committer: what is committed next finds it done."""

    def __init__(self, engine: Engine, committer: Committer, basis: Basis) -> None:
        self._engine = engine
        self._committer = committer
        self._basis = basis
        # Committed, or perhaps committed, and not looked after to the end.
        self._left: set[int] = set()

    def look_after(self, attempt: Attempt, saved: Saved, staged: Staged, *, is_derived: bool = False) -> None:
        """To be called after the commit, within the same turn: of two checkpoints the later one comes last here too.

        Raises:
            ConflictError: What it needs was removed meanwhile. It is retired.
            CommitUnknownError: It is committed, and whether what it needs is kept is not known.
        """
        if not saved.is_own:
            self.found(saved.checkpoint_id)
            return
        if staged.manifest.parent_id is not None or staged.needs or is_derived:
            try:
                self._keep_needed(saved.checkpoint_id)
            except BaseException:
                # The caller is told something else than success: nobody knows what comes next stands upon, and the attempt
                # is given up by no one, because it is committed.
                self._committer.doubt([attempt])
                raise
        self._left.discard(saved.checkpoint_id)
        if saved.checkpoint_id < self._committer.highest_id:
            # It came beside a higher one: neither is surely what the next state says its changes of.
            self._basis.were()
        elif staged.state is not None:
            self._basis.are(staged.state.layouts)
        elif is_derived:
            self._basis.of(saved.checkpoint_id)
        else:
            self._basis.were()

    def doubted(self, attempts: Sequence[Attempt]) -> None:
        """What became of these is not known: if they are committed, nobody has looked after them."""
        self._basis.doubted()
        self._left.update(attempt.checkpoint_id for attempt in attempts)

    def found(self, checkpoint_id: int) -> None:
        """A checkpoint turned out to be committed: what was left to do for it is done. Raises as `look_after` does."""
        with self._committer.turn():
            if checkpoint_id in self._left:
                self._keep_needed(checkpoint_id)
                self._left.discard(checkpoint_id)
            if checkpoint_id == self._committer.highest_id:
                # Nothing came after it: what became of it is known now, and its state is the one before the next.
                self._basis.found(checkpoint_id)

    def _keep_needed(self, checkpoint_id: int) -> None:
        held = self._committer.held
        try:
            keep_needed(self._engine, held.pipeline, checkpoint_id, owner=held.owner)
        except ConflictError:
            raise
        except LaminarDeltaError as error:
            raise CommitUnknownError(
                f"checkpoint {checkpoint_id} of pipeline {held.pipeline!r} is committed, but whether what it needs of "
                f"others is kept could not be found out: {error.message}",
                next_step="Undo nothing that belongs to it: save the same content under the same id again, to find out.",
                details={
                    "table": MANIFESTS.name,
                    "key": {"pipeline": held.pipeline, "checkpoint_id": checkpoint_id},
                    "committed": True,
                },
            ) from error
