"""Committing: the one append that makes a checkpoint exist, under the pipeline's fence, in the order of its ordinals.

Everything before it is invisible, and a writer that was taken over cannot make it. What was staged under an attempt that is
given up can be removed; an attempt whose outcome is unknown is settled before anything depends on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from laminar_delta.catalog import generations
from laminar_delta.catalog.attempt import Attempt, Part, children_of, shared_metadata
from laminar_delta.catalog.checkpoints import load_manifest
from laminar_delta.catalog.healing import find_row, healed
from laminar_delta.catalog.numbers import CheckpointNumbers, burn
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.rows import SaveContext
from laminar_delta.catalog.same import Stored, check_same_again
from laminar_delta.catalog.staged import Birth, Saved, Staged, sealed
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.errors import (
    FencedError,
    InvalidInputError,
    LaminarDeltaError,
    SessionStateError,
    is_certain,
)
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from laminar_delta.catalog.bulk import BulkSave
    from laminar_delta.catalog.generations import Generation
    from laminar_delta.catalog.rows import Lineage
    from laminar_delta.catalog.state.chunks import Measured
    from laminar_delta.engine.answer import Commit
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.manifest import CheckpointManifest


_LOG = logging.getLogger(__name__)


class Committer:
    """The one committer of a generation: gives out ids and ordinals. Safe to share between threads."""

    def __init__(
        self,
        engine: Engine,
        held: Generation,
        *,
        vnode_count: int | None = None,
        doubted: Callable[[Sequence[Attempt]], None] = lambda _: None,
    ) -> None:
        """Begins behind the fence.

        Args:
            engine: Where.
            held: Under which generation.
            vnode_count: What its checkpoints say of themselves.
            doubted: Is called with what nobody knows to be committed, or to be looked after since.
        """
        self.held = held
        self._doubted = doubted
        self.reading = Reading(engine)
        self._engine = engine
        self._vnode_count = vnode_count
        self._aborted: set[str] = set()
        # Of checkpoints that another attempt became: never committed, and asked again they get the same answer.
        self._surplus: set[str] = set()
        # Without an answer to their commit; and those among them that are given up if it turns out not to have happened.
        self._unsettled: set[str] = set()
        self._given_up: dict[str, Attempt] = {}
        # Held from the look at what is there to the commit; reentrant, because a group commit holds several at once.
        self._turn = threading.RLock()
        self._ordinal = held.begun
        self._in_doubt = False
        # Read behind the fence: nobody else can commit any more, so what is here is all there will be.
        self._numbers = CheckpointNumbers(self.reading, held.pipeline)

    @property
    def next_id(self) -> int:
        """The id the next checkpoint gets unless it names one."""
        return self._numbers.next

    @property
    def highest_id(self) -> int:
        """Above it nothing was ever committed."""
        return self._numbers.highest

    def is_new(self, checkpoint_id: int) -> bool:
        """Whether nothing was ever committed under an id, for certain and without a look.

        Raises:
            ConflictError: The checkpoint of that id was removed: no id is ever committed twice.
        """
        if self._numbers.is_new(checkpoint_id):
            return True
        self._numbers.check_not_removed(checkpoint_id)
        return False

    def take_id(self, wanted: int | None) -> int:
        """The next id, or the one wanted; not given out again, so that only who names a failed attempt's id saves under it."""
        with self._turn:
            return self._numbers.take(wanted)

    def begin(self, checkpoint_id: int) -> Attempt:
        """A fresh attempt at a checkpoint, whose id is taken by it, whatever becomes of it."""
        return Attempt.new(self.held, self.take_id(checkpoint_id))

    @property
    def aborted(self) -> frozenset[str]:
        """The attempts given up: what they staged can be removed."""
        with self._turn:
            return frozenset(self._aborted | self._surplus)

    def abort(self, attempt: Attempt) -> None:
        """Gives up an attempt for good: this committer, the only one who could, will not commit it any more.

        One whose commit has no answer may have landed, or still land: it is given up once that is settled, if it has not.
        """
        with self._turn:
            if attempt.attempt_id in self._unsettled:
                self._given_up[attempt.attempt_id] = attempt
            else:
                self._aborted.add(attempt.attempt_id)

    def stored(self, checkpoint_id: int) -> Stored | None:
        """The checkpoint of that id, if there is one. Raises `ConflictError` when it was removed."""
        if self.is_new(checkpoint_id):
            return None
        # As recovery finds it: a checkpoint whose rows were deleted or overwritten since has been committed all the same.
        row = find_row(self.reading, self.held.pipeline, checkpoint_id)
        if row is None:
            return None
        return Stored(row, healed(self.reading, row, lambda reading: load_manifest(reading, row)))

    def commit(
        self,
        attempt: Attempt,
        staged: Staged,
        *,
        lineage: Lineage | None = None,
        external_id: str | None = None,
    ) -> Saved:
        """Commits an attempt with what was staged for it: the checkpoint's birth. See `Writer.commit`."""
        with self.turn():
            birth = self.prepare(attempt, staged, lineage=lineage, external_id=external_id)
            if isinstance(birth, Saved):
                return birth
            with self.outcome_noted([attempt]):
                made = self._engine.append(
                    MANIFESTS.name,
                    birth.row,
                    fences=[birth.fence],
                    metadata=attempt.metadata(*(("save",) if lineage is None else (lineage.how, lineage.reason))),
                    key={"pipeline": self.held.pipeline, "attempt_id": attempt.attempt_id},
                )
                return self.born(birth, made)

    def commit_all(
        self, saves: Sequence[tuple[Attempt, BulkSave, Sequence[Part]]], *, reason: str | None = None
    ) -> int | None:
        """Commits several attempts at once, as one: all of their checkpoints are born, or none. See `bulk.save_all`.

        Raises:
            ConflictError: One of the ids is committed, or was.
        """
        attempts = [attempt for attempt, _, _ in saves]
        with self.turn():
            self._numbers.check_new(attempt.checkpoint_id for attempt in attempts)
            self._ordinal += 1
            rows = sealed(
                (
                    save.manifest,
                    SaveContext(
                        pipeline=self.held.pipeline,
                        attempt_id=attempt.attempt_id,
                        generation=self.held.number,
                        ordinal=self._ordinal,
                        external_id=save.external_id,
                        vnode_count=self._vnode_count if save.vnode_count is None else save.vnode_count,
                        children=tuple(children_of(parts)),
                    ),
                )
                for attempt, save, parts in saves
            )
            highest = max(attempts, key=lambda attempt: attempt.checkpoint_id)
            birth = Birth(attempt=highest, row=rows, fence=self.held.fence(self._ordinal))
            with self.outcome_noted(attempts):
                made = self._engine.append(
                    MANIFESTS.name,
                    rows,
                    fences=[birth.fence],
                    metadata={**shared_metadata("save", attempts), "reason": reason},
                    key={"pipeline": self.held.pipeline, "attempt_id": highest.attempt_id},
                )
                for attempt in attempts:
                    self._numbers.note(attempt.checkpoint_id, certain=True)
                return self.born(birth, made).version

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Within: this pipeline's next ordinal is nobody else's."""
        with self._turn:
            yield

    def prepare(
        self,
        attempt: Attempt,
        staged: Staged,
        *,
        lineage: Lineage | None = None,
        external_id: str | None = None,
    ) -> Birth | Saved:
        """The row to commit, under the next ordinal; or the answer, when the same content is committed already.

        To be called, and followed by the commit, within one `turn`.

        Raises:
            ConflictError: The id was committed with other content meanwhile.
            InvalidInputError: The attempt is another pipeline's, or at another checkpoint than the manifest's.
            SessionStateError: The attempt was given up, or is one of another generation: such are removed as orphans.
        """
        _check_own(attempt, self.held.pipeline, staged.manifest.checkpoint_id)
        if attempt.attempt_id in self._aborted or attempt.generation != self.held.number:
            raise SessionStateError(
                f"attempt {attempt.attempt_id} of generation {attempt.generation} can no longer be committed",
                expected=self.held.number,
                found=attempt.generation,
                next_step="Stage again under a new attempt.",
            )
        # Looked for again within the turn: another thread may have saved this id while this one staged.
        manifest = staged.manifest
        stored = self.stored(manifest.checkpoint_id)
        if stored is not None:
            same = self.same_again(manifest, stored, None if staged.state is None else staged.state.measured)
            if stored.row["attempt_id"] != attempt.attempt_id:
                self._surplus.add(attempt.attempt_id)
            return same
        self._ordinal += 1
        context = SaveContext(
            pipeline=self.held.pipeline,
            attempt_id=attempt.attempt_id,
            generation=self.held.number,
            ordinal=self._ordinal,
            external_id=external_id,
            # State that is used again is divided as it was, whatever this writer divides its own into.
            vnode_count=self._vnode_count if lineage is None else lineage.vnode_count,
            lineage=lineage,
            state_needs=staged.needs,
            children=(*children_of(staged.parts), *(lineage.children if lineage is not None else ())),
        )
        return Birth(attempt=attempt, row=sealed([(manifest, context)]), fence=self.held.fence(self._ordinal))

    @contextmanager
    def outcome_noted(self, attempts: Sequence[Attempt]) -> Iterator[None]:
        """Within: their commit. Takes note when nobody knows what became of it, and names the successor when there is one."""
        with self.doubted_unless_certain(attempts):
            try:
                yield
            except FencedError:
                self.check_held()
                raise

    @contextmanager
    def doubted_unless_certain(self, attempts: Sequence[Attempt]) -> Iterator[None]:
        """Within: their commit, up to where everything that goes by it knows of it. An interrupt can come anywhere between."""
        try:
            yield
        except BaseException as error:
            if not is_certain(error):
                self.doubt(attempts)
            raise

    def doubt(self, attempts: Sequence[Attempt]) -> None:
        """Their ids may be taken now: the next save looks, once nothing can come any more."""
        self._in_doubt = True
        self._doubted(attempts)
        for attempt in attempts:
            self._unsettled.add(attempt.attempt_id)
            self._numbers.note(attempt.checkpoint_id, certain=False)

    def born(self, birth: Birth, made: Commit) -> Saved:
        """The answer, after the commit."""
        self._numbers.note(birth.attempt.checkpoint_id, certain=True)
        log_event(
            _LOG,
            logging.INFO,
            Event.CHECKPOINT_COMMITTED,
            "checkpoint %d of pipeline %s committed",
            birth.attempt.checkpoint_id,
            self.held.pipeline,
            pipeline=self.held.pipeline,
            checkpoint_id=birth.attempt.checkpoint_id,
            attempt_id=birth.attempt.attempt_id,
            generation=self.held.number,
            version=made.version,
        )
        return Saved(checkpoint_id=birth.attempt.checkpoint_id, version=made.version, replayed=made.replayed)

    def release(self) -> None:
        """Lets go of the generation; the ids that it gave out stay given out."""
        try:
            if self._numbers.unrecorded is not None:
                burn(self._engine, self.held, self._numbers.unrecorded)
        finally:
            generations.release(self._engine, self.held)

    def may_be_committed(self, checkpoint_id: int) -> bool:
        """Whether something was committed under an id, or may have been, as far as is known here without a look."""
        return not self._numbers.is_new(checkpoint_id)

    def check_held(self) -> None:
        """Raises `FencedError` once another writer took over. What was read before it passed is no successor's."""
        generations.check_held(self._engine, self.held)

    def settle(self) -> None:
        """Makes final what became of a save whose outcome is unknown: it has landed by now, or it never will."""
        with self._turn:
            if not self._in_doubt:
                return
            self._ordinal += 1
            metadata = {
                "operation": "settle",
                "pipeline": self.held.pipeline,
                "generation": self.held.number,
                "owner": self.held.owner,
            }
            if self._engine.raise_fence(MANIFESTS.name, self.held.fence(self._ordinal), metadata=metadata) is None:
                self.check_held()
            self._in_doubt = False
            self._unsettled.clear()
            self._aborted.update(number for number, attempt in self._given_up.items() if self._never_landed(attempt))
            self._given_up.clear()

    def _never_landed(self, attempt: Attempt) -> bool:
        try:
            row = find_row(self.reading, self.held.pipeline, attempt.checkpoint_id)
        except LaminarDeltaError:
            # It stays until a successor takes over: what is unknown is not removed.
            return False
        return row is None or row["attempt_id"] != attempt.attempt_id

    def same_again(self, manifest: CheckpointManifest, stored: Stored, measured: Measured | None) -> Saved:
        """The answer to a save of an id that is committed. Raises `ConflictError` when the content is another."""
        check_same_again(self.reading, stored, manifest, measured)
        return Saved(checkpoint_id=manifest.checkpoint_id, version=None, replayed=True)


def _check_own(attempt: Attempt, pipeline: str, checkpoint_id: int) -> None:
    """Refuses to commit one thing under the name of another: ids are looked up, and taken note of, by both."""
    for what, expected, found in (
        ("pipeline", pipeline, attempt.pipeline),
        ("checkpoint", checkpoint_id, attempt.checkpoint_id),
    ):
        if expected != found:
            raise InvalidInputError(
                f"the attempt is of {what} {found!r}, what it is to commit of {expected!r}",
                expected=expected,
                found=found,
                next_step="Commit what was staged for it, with the writer that began it.",
            )


@contextmanager
def given_up_on_failure(attempts: Sequence[tuple[Committer, Attempt]]) -> Iterator[None]:
    """Within: staging and the commit. When it fails the attempts are given up, unless they turn out committed."""
    try:
        yield
    except BaseException:
        for committer, attempt in attempts:
            committer.abort(attempt)
        raise
