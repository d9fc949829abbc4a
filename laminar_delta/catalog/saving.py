"""Saving: children first, one fenced commit last. With sink statuses and recovery, what a running pipeline does all day."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from laminar_delta.catalog.accepting import (
    check_asked_for,
    check_manifest,
    check_operators,
    check_recoverable,
    check_statuses,
)
from laminar_delta.catalog.aftercare import Aftercare
from laminar_delta.catalog.attempt import stage_offsets
from laminar_delta.catalog.builder import CheckpointBuilder
from laminar_delta.catalog.choosing import FailedSinks, check_hash
from laminar_delta.catalog.committing import Committer, given_up_on_failure
from laminar_delta.catalog.healing import committed_row
from laminar_delta.catalog.recovery import resume, to_store_upon
from laminar_delta.catalog.staged import Saved, Staged, inline_states, stored_states, with_state
from laminar_delta.catalog.state.basis import Basis
from laminar_delta.catalog.state.chunks import Measured
from laminar_delta.catalog.state.given import given_states
from laminar_delta.catalog.state.policy import DEFAULT_POLICY, StatePolicy
from laminar_delta.catalog.state.progress import StateProgress, TellProgress
from laminar_delta.catalog.state.staging import Frame, Layouts, StagedState, States, stage_state
from laminar_delta.catalog.statuses import append_statuses
from laminar_delta.errors import LaminarDeltaError, SessionStateError
from laminar_delta.logs import Event, log_event
from laminar_delta.model.ids import check_ordering_number
from laminar_delta.model.status import SinkCommitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laminar_delta.catalog.attempt import Attempt, Part
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.rows import Lineage
    from laminar_delta.catalog.same import Stored
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.manifest import CheckpointManifest
    from laminar_delta.model.report import RecoveryReport

_LOG = logging.getLogger(__name__)

W = TypeVar("W", bound="SavingWriter")


class SavingWriter:
    """The holder of a pipeline's generation, as far as its daily work goes."""

    def __init__(
        self,
        engine: Engine,
        held: Generation,
        *,
        vnode_count: int | None = None,
        state_policy: StatePolicy = DEFAULT_POLICY,
    ) -> None:
        self.engine = engine
        self.held = held
        self.committer = Committer(
            engine, held, vnode_count=vnode_count, doubted=lambda attempts: self.aftercare.doubted(attempts)
        )
        self.state_policy = state_policy
        self.basis = Basis(self.committer.reading, held.pipeline)
        self.aftercare = Aftercare(engine, self.committer, self.basis)
        self._statuses = threading.Lock()
        self._status_ordinal = 0
        self._closed = False

    @property
    def pipeline(self) -> str:
        """Whose writer this is."""
        return self.held.pipeline

    @property
    def generation(self) -> int:
        """The generation held."""
        return self.held.number

    @property
    def reading(self) -> Reading:
        """How this writer reads: everything that is committed by now."""
        return self.committer.reading

    @property
    def next_id(self) -> int:
        """The id the next checkpoint gets unless it names one."""
        return self.committer.next_id

    @property
    def aborted(self) -> frozenset[str]:
        """The attempts given up: what they staged can be removed."""
        return self.committer.aborted

    def checkpoint(
        self, *, epoch: int | None = None, checkpoint_id: int | None = None, tell: TellProgress | None = None
    ) -> CheckpointBuilder:
        """A checkpoint to fill in and commit; leaving its `with` block commits, an exception in it rolls back.

        Args:
            epoch: Its epoch; like its id by default.
            checkpoint_id: Its id; the next one by default. Which one is named is up to the caller: also that of an attempt that
                failed, or one below the newest, which then stays the newest. What is committed is never replaced.
            tell: Is told how far its state is, of frames when they are written; what it raises cancels it.

        Raises:
            InvalidInputError: Its id or epoch is 0 or too large. No id is taken.
        """
        self._check_open()
        check_asked_for(checkpoint_id=checkpoint_id, epoch=epoch)
        number = self.committer.take_id(checkpoint_id)
        return CheckpointBuilder(self, number, number if epoch is None else epoch, tell=tell)

    def save(
        self,
        manifest: CheckpointManifest,
        state: States | None = None,
        *,
        frames: Sequence[Frame] = (),
        external_id: str | None = None,
        tell: TellProgress | None = None,
    ) -> Saved:
        """Saves a whole manifest, with the state of operator partitions that is too large to travel inside it.

        The state is streamed. The manifest gets its checksum and size, and an entry for each of its operators.

        Args:
            manifest: The checkpoint.
            state: By operator and partition: bytes, an open file, or pieces of any size.
            frames: State as frames on Spark, which executors write; see `CheckpointBuilder.state_frame`.
            external_id: What another system calls it.
            tell: Is told how far the state is, of frames when they are written; what it raises cancels the save.

        Raises:
            CommitUnknownError: It may be committed, or is and could not be looked after: its text says which. Save it again.
            ConflictError: The id is committed with other content.
            FencedError: Another writer took over; `expected` and `found` are the generations.
            InvalidInputError: State is not by operator and partition or is no bytes, or one file is to be two states; the
                manifest has what no column can hold, or what recovery passes over by rule: id or epoch 0, or state that it
                names and that does not come with it. Nothing was begun.
            SessionStateError: A state comes from a file or an iterator that was read from before, as by a save that failed, and
                the file was not put back to where it was then. Nothing was begun.
        """
        states = given_states(state)
        self.settle()
        check_manifest(manifest, external_id=external_id)
        stored = self.committer.stored(manifest.checkpoint_id)
        if stored is None:
            check_recoverable(manifest, states, has_frames=bool(frames))
        elif not frames:
            return self.same_again(manifest, stored_states(manifest, states), stored)
        with self.attempting(manifest.checkpoint_id) as attempt:
            staged = self.stage(attempt, manifest, states, frames=frames, tell=tell)
            return self.commit(attempt, staged.manifest, staged.parts, state=staged.state, external_id=external_id)

    def same_again(self, manifest: CheckpointManifest, states: States, stored: Stored) -> Saved:
        """The answer to a save of an id that is committed. Raises `ConflictError` when the content is another."""
        measured = Measured.of(states) if states else None
        said = manifest if measured is None else with_state(manifest, measured)
        saved = self.committer.same_again(said, stored, measured)
        self.aftercare.found(saved.checkpoint_id)
        return saved

    def stage(
        self,
        attempt: Attempt,
        manifest: CheckpointManifest,
        state: States | None = None,
        *,
        frames: Sequence[Frame] = (),
        tell: TellProgress | None = None,
    ) -> Staged:
        """Stages all children of a checkpoint, its state upon that of the checkpoint before. Nothing is visible yet."""
        check_manifest(manifest)
        given = given_states(state)
        if not given and not frames:
            return Staged(manifest=manifest, parts=tuple(stage_offsets(self.engine, attempt, manifest)))
        states = stored_states(manifest, given)
        # Two tables, side by side: on an object store or Spark each commit takes its time.
        with ThreadPoolExecutor(1, thread_name_prefix="laminar-stage") as beside:
            offsets = beside.submit(stage_offsets, self.engine, attempt, manifest)
            staged = self._stage_state(attempt, states, tell)
            for frame in frames:
                staged = staged.joined(self._stage_frame(attempt, frame, tell))
                check_operators(operator for operator, _ in staged.layouts)
            # Only now it is known whose state the frames have.
            inline = inline_states(manifest, {operator for operator, _ in staged.layouts})
            late = {key: found for key, found in inline.items() if key not in states}
            if late:
                staged = staged.joined(self._stage_state(attempt, late, tell))
            parts = (*offsets.result(), *staged.parts)
        return Staged(manifest=with_state(manifest, staged.measured), parts=parts, state=staged)

    def _stage_state(self, attempt: Attempt, states: States, tell: TellProgress | None) -> StagedState:
        return stage_state(
            self.engine, attempt, states, policy=self.state_policy, upon=self.basis.layouts(states), tell=tell
        )

    def _stage_frame(self, attempt: Attempt, frame: Frame, tell: TellProgress | None) -> StagedState:
        # By name: the core does not know Spark.
        stage_frame = import_module("laminar_delta.distributed.saving").stage_frame
        staged: StagedState = stage_frame(self.engine, attempt, frame, policy=self.state_policy, upon=self.layouts())
        if tell is not None:
            # Executors cannot call back: it is known when all of the frame is written.
            for (operator, partition), layout in staged.layouts.items():
                tell(StateProgress(operator, partition, layout.length, None))
        return staged

    def layouts(self) -> Layouts:
        """What the next state is stored upon."""
        return self.basis.layouts()

    @contextmanager
    def attempting(self, checkpoint_id: int) -> Iterator[Attempt]:
        """A fresh attempt, given up when the block fails; unless its commit may yet turn out to have happened."""
        attempt = self.committer.begin(checkpoint_id)
        with given_up_on_failure([(self.committer, attempt)]):
            yield attempt

    def abort(self, attempt: Attempt) -> None:
        """Gives up an attempt for good: this writer, the only one who could, will not commit it any more."""
        self.committer.abort(attempt)

    def commit(
        self,
        attempt: Attempt,
        manifest: CheckpointManifest,
        parts: Sequence[Part],
        *,
        state: StagedState | None = None,
        lineage: Lineage | None = None,
        external_id: str | None = None,
    ) -> Saved:
        """Commits an attempt with the parts it accepts: the checkpoint's birth. `state` is what some of them are of.

        What it needs of other checkpoints stays: one that was retired meanwhile is restored.

        Raises:
            CommitUnknownError: It may be committed, or is and could not be looked after: its text says which. Save it again.
            ConflictError: The id was committed with other content meanwhile, or what it needs was removed.
            InvalidInputError: The attempt is another pipeline's, or at another checkpoint than the manifest's.
            SessionStateError: The attempt was given up, or is one of another generation: such are removed as orphans.
        """
        self._check_open()
        check_manifest(manifest, external_id=external_id)
        staged = Staged(manifest=manifest, parts=tuple(parts), state=state)
        with self.committer.turn(), self.committer.doubted_unless_certain([attempt]):
            saved = self.committer.commit(attempt, staged, lineage=lineage, external_id=external_id)
            # Within the turn: a checkpoint that is committed after this one is what comes before the next state.
            self.aftercare.look_after(attempt, saved, staged, is_derived=lineage is not None)
        return saved

    def check_held(self) -> None:
        """Raises `FencedError` once another writer took over. What was read before it passed is no successor's."""
        self.committer.check_held()

    def settle(self) -> None:
        """Makes final what became of a save whose outcome is unknown: it has landed by now, or it never will.

        Without such a save there is nothing to do. Called by whatever has to know what is committed.
        """
        self._check_open()
        self.committer.settle()

    def recover(
        self,
        *,
        failed_sinks: FailedSinks = FailedSinks.SKIP,
        pipeline_hash: int | None = None,
        start_over: bool = False,
    ) -> RecoveryReport:
        """Chooses the checkpoint to resume from, behind the fence: what is read here is all there will ever be.

        What it passes over is recorded as abandoned by this generation, so that no late status can bring it back.

        Args:
            failed_sinks: Whether a checkpoint with a failed sink may be used.
            pipeline_hash: What the pipeline is now; a difference is reported.
            start_over: Begin anew when there are checkpoints and none can be used; otherwise that is `CorruptionError`.

        Raises:
            CorruptionError: There are checkpoints and none can be used. Nothing was given up; the next state is stored whole.
        """
        self.settle()
        check_hash(pipeline_hash)
        try:
            report = resume(
                self.reading, self.held, failed_sinks=failed_sinks, pipeline_hash=pipeline_hash, start_over=start_over
            )
        except BaseException:
            # What the last state lies upon may be the very thing that was found damaged: the next one is stored whole.
            self.basis.of(None)
            raise
        self.basis.of(to_store_upon(report))
        return report

    def sink_committed(self, checkpoint_id: int, sink: str) -> None:
        """Records that a sink delivered a checkpoint for good."""
        self.set_sink_statuses(checkpoint_id, {sink: SinkCommitStatus.committed()})

    def sink_failed(self, checkpoint_id: int, sink: str, error: str) -> None:
        """Records that a sink could not deliver a checkpoint."""
        self.set_sink_statuses(checkpoint_id, {sink: SinkCommitStatus.failed(error)})

    def set_sink_statuses(self, checkpoint_id: int, statuses: Mapping[str, SinkCommitStatus]) -> None:
        """Records status changes of one checkpoint in one commit. Changes never replace one another: they are appended."""
        self._check_open()
        check_ordering_number("checkpoint_id", checkpoint_id)
        check_statuses(statuses)
        self.check_held()
        # As recovery finds it: also when its row was deleted or overwritten since.
        row = committed_row(self.reading, self.pipeline, checkpoint_id)
        with self._statuses:
            self._status_ordinal += 1
            ordinal = self._status_ordinal
        append_statuses(self.engine, self.held, row, statuses, ordinal=ordinal)

    def close(self) -> None:
        """Lets go of the generation. A writer that was taken over has nothing to let go of."""
        if not self._closed:
            self._closed = True
            self.committer.release()

    def __enter__(self: W) -> W:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except LaminarDeltaError as failure:
            if kind is None:
                raise
            # What the block failed with is what its caller has to know; a successor takes over without this.
            log_event(
                _LOG,
                logging.WARNING,
                Event.WRITER_NOT_RELEASED,
                "the writer of pipeline %s could not let go",
                self.pipeline,
                cause=failure,
                pipeline=self.pipeline,
                generation=self.generation,
            )

    def _check_open(self) -> None:
        if self._closed:
            raise SessionStateError(
                f"the writer of pipeline {self.pipeline!r} is closed", next_step="Open a new writer."
            )
