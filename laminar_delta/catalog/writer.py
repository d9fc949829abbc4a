"""The writer of a pipeline: children first, one fenced commit last.

One commit on one table decides: the append of the manifest row, under the pipeline's fence. Everything before it is invisible,
and a writer that was taken over cannot make it.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog import generations
from laminar_delta.catalog.attempt import Attempt, Part, children_of, stage_offsets, stage_state
from laminar_delta.catalog.builder import CheckpointBuilder
from laminar_delta.catalog.checkpoints import load_manifest, manifest_row
from laminar_delta.catalog.chunks import checksum_over, cut
from laminar_delta.catalog.decisions import ABANDONED, Decision, Standing, decide
from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.healing import find_row
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.recovery import FailedSinks, Walk, store
from laminar_delta.catalog.rows import SaveContext, manifest_table
from laminar_delta.catalog.tables import MANIFESTS, SINK_STATUSES, SOURCE_OFFSETS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CommitUnknownError, ConflictError, FencedError, NotFoundError, SessionStateError
from laminar_delta.model.manifest import OperatorCheckpoint
from laminar_delta.model.status import SinkCommitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laminar_delta.catalog.generations import Generation
    from laminar_delta.codec import StateSource
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.manifest import CheckpointManifest
    from laminar_delta.model.report import RecoveryReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The answer to a save."""

    checkpoint_id: int
    version: int | None
    """The version of `manifests` that holds it."""
    replayed: bool = False
    """It was there already, with the same content."""


class Writer:
    """The holder of a pipeline's generation. Safe to share between threads; ends with `close` or its `with` block."""

    def __init__(self, engine: Engine, held: Generation, *, vnode_count: int | None = None) -> None:
        self._engine = engine
        self._held = held
        self._vnode_count = vnode_count
        self._aborted: set[str] = set()
        self._reading = Reading(engine)
        self._committing = threading.Lock()
        self._ordinal = 0
        self._status_ordinal = 0
        self._in_doubt = False
        self._closed = False
        # Read behind the fence: nobody else can commit any more, so what is here is all there will be.
        self._highest_id = _highest_id(self._reading, held.pipeline)
        self._next_id = self._highest_id + 1

    @property
    def pipeline(self) -> str:
        """Whose writer this is."""
        return self._held.pipeline

    @property
    def generation(self) -> int:
        """The generation held."""
        return self._held.number

    @property
    def reading(self) -> Reading:
        """How this writer reads: everything that is committed by now."""
        return self._reading

    @property
    def next_id(self) -> int:
        """The id the next checkpoint gets unless it names one."""
        return self._next_id

    def checkpoint(self, *, epoch: int | None = None, checkpoint_id: int | None = None) -> CheckpointBuilder:
        """A checkpoint to fill in and commit; leaving its `with` block commits, an exception in it rolls back."""
        self._check_open()
        with self._committing:
            number = self._next_id if checkpoint_id is None else checkpoint_id
            # Taken for good: an attempt that fails burns its id, so that no other content ever goes under it.
            self._next_id = max(self._next_id, number + 1)
        return CheckpointBuilder(self, number, number if epoch is None else epoch)

    def save(self, manifest: CheckpointManifest, state: Mapping[tuple[str, int], StateSource] | None = None) -> Saved:
        """Saves a whole manifest, with the state of operator partitions that is too large to travel inside it.

        The state is streamed. The manifest gets its checksum and size, and an entry for each of its operators.

        Raises:
            ConflictError: The id is committed with other content.
            FencedError: Another writer took over; `expected` and `found` are the generations.
        """
        self.settle()
        # Above the highest id there is nothing to compare with, and no need to look.
        stored = self._stored(manifest.checkpoint_id) if manifest.checkpoint_id <= self._highest_id else None
        if stored is not None:
            return self._same_again(_with_state(manifest, *_measure(state)) if state else manifest, stored)
        with self.attempting(manifest.checkpoint_id) as attempt:
            parts = stage_offsets(self._engine, attempt, manifest)
            if state:
                staged = stage_state(self._engine, attempt, state)
                manifest = _with_state(manifest, staged.checksum, staged.lengths)
                parts += staged.parts
            return self.commit(attempt, manifest, parts)

    @contextmanager
    def attempting(self, checkpoint_id: int) -> Iterator[Attempt]:
        """A fresh attempt, given up when the block fails; unless its commit may yet turn out to have happened."""
        attempt = Attempt.new(self._held, checkpoint_id)
        try:
            yield attempt
        except CommitUnknownError:
            raise
        except Exception:
            self.abort(attempt)
            raise

    def abort(self, attempt: Attempt) -> None:
        """Gives up an attempt for good: this writer, the only one who could, will not commit it any more."""
        with self._committing:
            self._aborted.add(attempt.attempt_id)

    @property
    def aborted(self) -> frozenset[str]:
        """The attempts given up: what they staged can be removed."""
        with self._committing:
            return frozenset(self._aborted)

    def commit(self, attempt: Attempt, manifest: CheckpointManifest, parts: Sequence[Part]) -> Saved:
        """Commits an attempt with the parts it accepts: the checkpoint's birth.

        Raises:
            ConflictError: The id was committed with other content meanwhile.
            SessionStateError: The attempt was given up, or is one of another generation: such are removed as orphans.
        """
        self._check_open()
        with self._committing:
            if attempt.attempt_id in self._aborted or attempt.generation != self.generation:
                raise SessionStateError(
                    f"attempt {attempt.attempt_id} of generation {attempt.generation} can no longer be committed",
                    expected=self.generation,
                    found=attempt.generation,
                    next_step="Stage again under a new attempt.",
                )
            # Looked for again inside the lock: another thread may have saved this id while this one staged.
            stored = self._stored(manifest.checkpoint_id) if manifest.checkpoint_id <= self._highest_id else None
            if stored is not None:
                return self._same_again(manifest, stored)
            self._ordinal += 1
            context = SaveContext(
                pipeline=self.pipeline,
                attempt_id=attempt.attempt_id,
                generation=self.generation,
                ordinal=self._ordinal,
                vnode_count=self._vnode_count,
                children=tuple(children_of(parts)),
            )
            rows = manifest_table([(manifest, context)])
            digest = row_digest(rows.to_pylist()[0], without=["content_digest"])
            rows = manifest_table([(manifest, replace(context, content_digest=digest))])
            try:
                made = self._engine.append(
                    MANIFESTS.name,
                    rows,
                    fences=[self._held.fence(self._ordinal)],
                    metadata=attempt.metadata("save"),
                    key={"pipeline": self.pipeline, "attempt_id": attempt.attempt_id},
                )
            except FencedError:
                generations.check_held(self._engine, self._held)
                raise
            except CommitUnknownError:
                # Its id may be taken now: the next save looks, once nothing can come any more.
                self._in_doubt = True
                self._highest_id = max(self._highest_id, manifest.checkpoint_id)
                self._next_id = max(self._next_id, manifest.checkpoint_id + 1)
                raise
            self._highest_id = max(self._highest_id, manifest.checkpoint_id)
            self._next_id = max(self._next_id, manifest.checkpoint_id + 1)
        return Saved(checkpoint_id=manifest.checkpoint_id, version=made.version, replayed=made.replayed)

    def check_held(self) -> None:
        """Raises `FencedError` once another writer took over. What was read before it passed is no successor's."""
        generations.check_held(self._engine, self._held)

    def settle(self) -> None:
        """Makes final what became of a save whose outcome is unknown: it has landed by now, or it never will.

        Without such a save there is nothing to do. Called by whatever has to know what is committed.
        """
        self._check_open()
        with self._committing:
            if not self._in_doubt:
                return
            self._ordinal += 1
            metadata = {
                "operation": "settle",
                "pipeline": self.pipeline,
                "generation": self.generation,
                "owner": self._held.owner,
            }
            if self._engine.raise_fence(MANIFESTS.name, self._held.fence(self._ordinal), metadata=metadata) is None:
                generations.check_held(self._engine, self._held)
            self._in_doubt = False

    def recover(
        self,
        *,
        failed_sinks: FailedSinks = FailedSinks.SKIP,
        pipeline_hash: int | None = None,
        check: Callable[[RecoveryReport], None] | None = None,
    ) -> RecoveryReport:
        """Chooses the checkpoint to resume from, behind the fence: what is read here is all there will ever be.

        What it passes over is recorded as abandoned by this generation, so that no late status can bring it back.

        Args:
            failed_sinks: Whether a checkpoint with a failed sink may be used.
            pipeline_hash: What the pipeline is now; a difference is reported.
            check: Sees the choice before anything is abandoned; what it raises leaves everything as it was.
        """
        self.settle()
        report = Walk(self._reading, self.pipeline, failed_sinks, pipeline_hash).run(generation=self.generation)
        if check is not None:
            check(report)
        passed_over = [skipped.checkpoint_id for skipped in report.skipped]

        def choose(seen: Standing) -> list[Decision]:
            self.check_held()
            reason = f"passed over by recovery under generation {self.generation}"
            return [
                Decision(checkpoint_id=number, word=ABANDONED, reason=reason)
                for number in passed_over
                if number not in seen.abandoned
            ]

        decide(self._engine, self.pipeline, choose, owner=self._held.owner, generation=self.generation)
        return store(self._engine, report, self._held.owner)

    def sink_committed(self, checkpoint_id: int, sink: str) -> None:
        """Records that a sink delivered a checkpoint for good."""
        self.set_sink_statuses(checkpoint_id, {sink: SinkCommitStatus.committed()})

    def sink_failed(self, checkpoint_id: int, sink: str, error: str) -> None:
        """Records that a sink could not deliver a checkpoint."""
        self.set_sink_statuses(checkpoint_id, {sink: SinkCommitStatus.failed(error)})

    def set_sink_statuses(self, checkpoint_id: int, statuses: Mapping[str, SinkCommitStatus]) -> None:
        """Records status changes of one checkpoint in one commit. Changes never replace one another: they are appended."""
        self._check_open()
        generations.check_held(self._engine, self._held)
        # As recovery finds it: also when its row was deleted or overwritten since.
        row = find_row(self._reading, self.pipeline, checkpoint_id) or manifest_row(
            self._reading, self.pipeline, checkpoint_id
        )
        epochs = {sink["name"]: sink["epoch"] for sink in row["sinks"]}
        unknown = sorted(set(statuses) - set(epochs))
        if unknown:
            raise NotFoundError(
                f"checkpoint {checkpoint_id} of pipeline {self.pipeline!r} has no sink {unknown[0]!r}",
                expected=unknown[0],
                found=sorted(epochs),
                next_step="Name the sink when the checkpoint is saved.",
            )
        with self._committing:
            self._status_ordinal += 1
            ordinal = self._status_ordinal
        fixed = {
            "pipeline": self.pipeline,
            "checkpoint_id": checkpoint_id,
            "attempt_id": row["attempt_id"],
            "generation": self.generation,
            "ordinal": ordinal,
            "changed_at": dt.datetime.now(dt.timezone.utc),
            "changed_by": self._held.owner,
        }
        rows = [
            {**fixed, "sink": name, "epoch": epochs[name], "status": status.kind.value, "error": status.message}
            for name, status in statuses.items()
        ]
        attempt = Attempt(
            pipeline=self.pipeline,
            checkpoint_id=checkpoint_id,
            attempt_id=row["attempt_id"],
            generation=self.generation,
            owner=self._held.owner,
        )
        self._engine.append(
            SINK_STATUSES.name,
            pa.Table.from_pylist(rows, schema=SINK_STATUSES.schema),
            metadata=attempt.metadata("status"),
        )

    def close(self) -> None:
        """Lets go of the generation. A writer that was taken over has nothing to let go of."""
        if not self._closed:
            self._closed = True
            generations.release(self._engine, self._held)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _stored(self, checkpoint_id: int) -> CheckpointManifest | None:
        try:
            row = manifest_row(self._reading, self.pipeline, checkpoint_id)
        except NotFoundError:
            return None
        return load_manifest(self._reading, row)

    def _same_again(self, manifest: CheckpointManifest, stored: CheckpointManifest) -> Saved:
        # When it was saved, and how far its sinks are by now, do not make it another checkpoint.
        like_stored = replace(
            manifest, timestamp_ms=stored.timestamp_ms, sink_commit_statuses=stored.sink_commit_statuses
        )
        if like_stored != stored:
            changed = [name for name, value in like_stored.to_dict().items() if value != stored.to_dict()[name]]
            raise ConflictError(
                f"checkpoint {manifest.checkpoint_id} of pipeline {self.pipeline!r} is committed with another "
                f"{', '.join(changed)}",
                expected={name: manifest.to_dict()[name] for name in changed},
                found={name: stored.to_dict()[name] for name in changed},
                next_step="Save other content under another id.",
            )
        return Saved(checkpoint_id=manifest.checkpoint_id, version=None, replayed=True)

    def _check_open(self) -> None:
        if self._closed:
            raise SessionStateError(
                f"the writer of pipeline {self.pipeline!r} is closed", next_step="Open a new writer."
            )


def _with_state(manifest: CheckpointManifest, checksum: str, lengths: Mapping[str, int]) -> CheckpointManifest:
    external = {operator: OperatorCheckpoint.external_at(0, length) for operator, length in lengths.items()}
    return replace(
        manifest,
        operator_states={**manifest.operator_states, **external},
        state_checksum=checksum,
        size_bytes=manifest.size_bytes + sum(lengths.values()),
    )


def _measure(state: Mapping[tuple[str, int], StateSource]) -> tuple[str, dict[str, int]]:
    """Checksum and lengths of a state without storing it, to compare with one that is stored."""
    checksums: dict[tuple[str, int], str] = {}
    lengths: dict[str, int] = {}
    for (operator, partition), source in state.items():
        cutter = cut(source)
        for _ in cutter:
            pass
        checksums[operator, partition] = cutter.checksum
        lengths[operator] = lengths.get(operator, 0) + cutter.length
    return checksum_over(checksums), lengths


def _highest_id(reading: Reading, pipeline: str) -> int:
    """The highest id anyone used, also in attempts that never committed: theirs are burned."""
    of_pipeline = col("pipeline").eq(pipeline)
    return max(
        (
            row["checkpoint_id"]
            for table in (MANIFESTS, SOURCE_OFFSETS)
            for row in reading.rows(table, where=of_pipeline, columns=["checkpoint_id"])
        ),
        default=0,
    )
