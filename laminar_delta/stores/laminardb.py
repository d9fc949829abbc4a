"""LaminarDB's `CheckpointStore` on a catalog: its fourteen methods by their own names, without its ways to lose data.

A save is one commit and a checkpoint never changes after it, except that statuses of its sinks are added. Latest is computed,
not pointed to. State handed over before its manifest is staged where nobody sees it and becomes part of the save.

The store reads without holding anything. It takes the pipeline's generation at its first write, which fences off the writer
before, and keeps it until `close`.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING

from laminar_delta.catalog.accepting import check_vnode_count
from laminar_delta.catalog.listing import newest_known
from laminar_delta.catalog.pipeline import default_owner
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.said import check_said
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.logs import Event, log_event
from laminar_delta.model import CheckpointManifest, RecoveryReport, ValidationResult, check_ordering_number
from laminar_delta.stores.loading import Loader
from laminar_delta.stores.saving import Saver

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.codec import StateSource

DEFAULT_MAX_RETAINED = 3
DEFAULT_VNODE_COUNT = 256

_LOG = logging.getLogger(__name__)

# Inside the class `list` is the method.
_IdsAndEpochs = list[tuple[int, int]]
_Ids = list[int]


class DeltaCheckpointStore:
    """The checkpoints of one pipeline as LaminarDB sees them. Safe to share between threads."""

    def __init__(
        self,
        catalog: Catalog,
        pipeline: str,
        *,
        owner: str | None = None,
        max_retained: int = DEFAULT_MAX_RETAINED,
        vnode_count: int = DEFAULT_VNODE_COUNT,
        rescale: bool = False,
    ) -> None:
        """Opens a store; nothing is read or written yet.

        Args:
            catalog: Where.
            pipeline: Whose checkpoints.
            owner: Who, for messages and the audit; user and process by default.
            max_retained: How many checkpoints a save leaves; 0 leaves all.
            vnode_count: Into how many virtual nodes the runtime divides its state, 1 to 65535.
            rescale: Also load checkpoints of another vnode count: the caller divides their state anew.
        """
        check_ordering_number("max_retained", max_retained)
        check_vnode_count(vnode_count)
        check_said(owner=owner)
        self._max_retained = max_retained
        self._owner = owner or default_owner()
        self._pipeline = catalog.pipeline(pipeline)
        self._loader = Loader(self._pipeline, vnode_count, rescale)
        self._saver = Saver(catalog, self._loader, self._owner)

    # -- saving -------------------------------------------------------------------------------------------------------

    def save(self, manifest: CheckpointManifest) -> None:
        """Saves a checkpoint, with the state that was handed over for its id before.

        The same content under the same id again succeeds and changes nothing. Checkpoints beyond `max_retained` are retired
        afterwards; that this fails does not fail the save.

        Raises:
            ConflictError: The id is committed with other content, was committed and removed, or recovery has to be asked again.
            CorruptionError: Recovery found checkpoints and none to use; `Writer.recover(start_over=True)` gives them up.
            FencedError: Another writer took over.
        """
        self.save_with_state(manifest, None)

    def save_with_state(self, manifest: CheckpointManifest, state_data: StateSource | None = None) -> None:
        """Saves a checkpoint and its sidecar as one: both exist, or neither. See `save` for the rest.

        Args:
            manifest: The checkpoint. Its checksum gives way to ours when there is data, and stays as it is otherwise.
            state_data: The sidecar: pieces of any size, an open file, or bytes. Empty data is an empty sidecar, None is none.
        """
        if self._saver.save(manifest, state_data):
            self._retain(manifest.checkpoint_id)

    def save_state_data(self, checkpoint_id: int, chunks: StateSource) -> None:
        """Hands over the sidecar of a checkpoint that is yet to be saved; a second one for the same id replaces the first.

        Only this store sees it until then. For a committed checkpoint it changes nothing: the same bytes succeed.

        Raises:
            ConflictError: The checkpoint is committed with another sidecar, or without one, or was removed.
        """
        self._saver.stage(checkpoint_id, chunks)

    def update_manifest(self, manifest: CheckpointManifest) -> None:
        """Records how far the sinks of a checkpoint are. What the manifest leaves out stays as it is; so does latest.

        A retired checkpoint stays retired; its statuses are recorded all the same, for it may be restored.

        Raises:
            ConflictError: The manifest differs in something else, or names a sink that the checkpoint does not have, or the
                checkpoint was removed.
            NotFoundError: There is no such checkpoint.
        """
        self._saver.record(manifest)

    # -- loading ------------------------------------------------------------------------------------------------------

    def load_latest(self) -> CheckpointManifest | None:
        """The manifest with the highest id; None when there is no checkpoint. What cannot be read, or is lost, is an error.

        Also one that `list` does not have: whose row was deleted since, and is read as it was committed.
        """
        newest = newest_known(self._pipeline.reading, self._pipeline.name)
        return None if newest is None else self.load_by_id(newest)

    def load_by_id(self, checkpoint_id: int) -> CheckpointManifest | None:
        """A manifest with the current statuses of its sinks; None when there is no such checkpoint, or it is retired.

        Raises:
            CorruptionError: It is not what was saved, and no earlier version of its rows is.
            InvalidInputError: It was saved with another vnode count, and the store does not rescale.
        """
        row = self._loader.visible(checkpoint_id)
        return None if row is None else self._loader.manifest(row)

    def load_state_data(self, checkpoint_id: int) -> bytes | None:
        """The sidecar, verified; None when there is no such checkpoint, or it was saved without. Raises like `load_by_id`."""
        row = self._loader.visible(checkpoint_id) or self._saver.staged(checkpoint_id)
        return None if row is None else self._loader.sidecar(row)

    def list(self) -> _IdsAndEpochs:
        """Id and epoch of every checkpoint, ascending by id, as the table has them. See `Pipeline.list`."""
        return sorted({head.checkpoint_id: head.epoch for head in self._pipeline.list()}.items())

    def list_ids(self) -> _Ids:
        """The id of every checkpoint, damaged ones included, ascending, each once."""
        return [number for number, _ in self.list()]

    def vnode_count(self) -> int:
        """Into how many virtual nodes the runtime divides its state; kept with every checkpoint that is saved."""
        return self._loader.vnode_count

    # -- examining ----------------------------------------------------------------------------------------------------

    def validate_checkpoint(self, checkpoint_id: int) -> ValidationResult:
        """Everything wrong with a checkpoint, in LaminarDB's words and severities, and what only a catalog can tell.

        Bad data is a finding, and so is a checkpoint that is not there.
        """
        return self._loader.validate(checkpoint_id)

    def recover_latest_validated(self, *, pipeline_hash: int | None = None) -> RecoveryReport:
        """Walks back from the newest checkpoint to the first that is valid and that all its sinks have.

        Before the store's first save this is where it goes on from: that save is refused when another writer changed the
        outcome in between, and what was passed over stays abandoned from then on. Later it is a question only.

        Args:
            pipeline_hash: What the pipeline is now; the report notes when the checkpoint was saved by another one.

        Raises:
            InvalidInputError: The checkpoint to use was saved with another vnode count, and the store does not rescale.
        """
        report = self._pipeline.recover(pipeline_hash=pipeline_hash, owner=self._owner)
        if report.chosen_id is not None:
            self._loader.visible(report.chosen_id)
        self._saver.recovered(report)
        return report

    # -- clearing up --------------------------------------------------------------------------------------------------

    def prune(self, keep_count: int) -> int:
        """Retires all but the newest checkpoints: gone for readers at once, to be restored until maintenance removes them.

        Stays, whatever the count: latest, the newest that all sinks have, pinned ones, and what any that stays needs.

        Returns:
            How many were retired.
        """
        return len(self._pipeline.prune(RetentionPolicy(keep_last=keep_count), owner=self._owner).retire)

    def cleanup_orphans(self) -> int:
        """Removes state and offsets of attempts that provably never become checkpoints. How many attempts.

        What may still be saved stays, however old: of the pipeline's current writer only what it has given up itself goes.
        """
        return len(self._pipeline.remove_orphans(aborted=self._saver.aborted(), owner=self._owner))

    def close(self) -> None:
        """Lets go of the generation, and gives up state without a manifest. Reading goes on working; writing does not."""
        self._saver.close()

    def __enter__(self) -> DeltaCheckpointStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _retain(self, saved: int) -> None:
        """Retires what is beyond `max_retained`. A save below latest leaves that to the next: it would retire itself."""
        if self._max_retained == 0:
            return
        try:
            ids = self.list_ids()
            if len(ids) > self._max_retained and ids[-1] == saved:
                self.prune(self._max_retained)
        except LaminarDeltaError as error:
            # The checkpoint is committed; one too many is put right by the next save.
            log_event(
                _LOG,
                logging.WARNING,
                Event.PRUNE_FAILED,
                "[LDB-6009] pruning pipeline %r failed: %s",
                self._pipeline.name,
                error,
                pipeline=self._pipeline.name,
                error=str(error),
            )
