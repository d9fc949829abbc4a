"""Group commit: many pipelines of one process save in the commits that one would take.

One append per table holds the rows of all, under one fence each. All fences are checked inside the one commit: a pipeline that
was taken over is taken out and told, the rest commit. Each checkpoint is what it would be if it had been saved alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.accepting import check_manifest, check_recoverable
from laminar_delta.catalog.attempt import Attempt, Part, shared_metadata, stage_all_offsets
from laminar_delta.catalog.committing import given_up_on_failure
from laminar_delta.catalog.staged import Birth, Saved, Staged, stored_states, with_state
from laminar_delta.catalog.state.given import check_apart, given_states
from laminar_delta.catalog.state.staging import stage_all_state
from laminar_delta.catalog.state.upon import check_upon
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.errors import CommitUnknownError, FencedError, InvalidInputError, LaminarDeltaError

if TYPE_CHECKING:
    from laminar_delta.catalog.state.applying import AppliedDelta
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.staging import Layouts, StagedState, States
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.codec import StateSource
    from laminar_delta.engine.answer import Commit
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True)
class Save:
    """One save of a group."""

    writer: Writer
    manifest: CheckpointManifest
    state: States | None = None


@dataclass(slots=True)
class _Member:
    """A save under way."""

    save: Save
    attempt: Attempt
    manifest: CheckpointManifest
    parts: list[Part]
    states: States
    upon: Layouts = field(default_factory=dict)
    state: StagedState | None = None
    birth: Birth | None = None
    answer: Saved | LaminarDeltaError | None = None

    @property
    def staged(self) -> Staged:
        return Staged(manifest=self.manifest, parts=tuple(self.parts), state=self.state)


def save_together(engine: Engine, saves: Sequence[Save]) -> list[Saved | LaminarDeltaError]:
    """Saves checkpoints of several pipelines, each at most once, in shared commits.

    Returns:
        For each, in the order given, its answer: what `Writer.save` would have returned or raised.

    Raises:
        InvalidInputError: A pipeline comes twice, a writer is of another catalog, a state comes twice, two states come from
            one file or iterator, or a number is too large.
        SessionStateError: A state comes from a file or an iterator that was read from before, as by a group that failed.
        StorageError: Nothing was committed: staging failed, or the shared commit did. What one of them meets before that or
            after it is the answer of that one alone; where an engine commits them one by one, so is everything.
    """
    _check(engine, saves)
    if not engine.many_fences:
        return [_alone(save) for save in saves]
    with ExitStack() as turns:
        # In one order everywhere, so that two groups never wait for each other in a circle.
        for save in sorted(saves, key=lambda save: save.writer.pipeline):
            turns.enter_context(save.writer.committer.turn())
        members = [_begin(save) for save in saves]
        going = [member for member in members if member.answer is None]
        with given_up_on_failure([(member.save.writer.committer, member.attempt) for member in going]):
            _stage(engine, going)
            with _doubted_unless_certain(going):
                _commit(engine, going)
                _look_after(going)
    return [_answer(member) for member in members]


def _check(engine: Engine, saves: Sequence[Save]) -> None:
    names = [save.writer.pipeline for save in saves]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"pipeline {twice[0]!r} comes more than once in a group", expected="once", found=names.count(twice[0])
        )
    if any(save.writer.engine is not engine for save in saves):
        raise InvalidInputError("a group commits to one catalog", expected="writers of this catalog", found="others")
    given: list[tuple[Key, StateSource | AppliedDelta]] = []
    for save in saves:
        # Before anything is begun, whichever way the engine goes on: wrong input leaves nothing behind of any of them.
        check_manifest(save.manifest)
        states = given_states(save.state)
        stored_states(save.manifest, states)
        given += states.items()
    check_apart(given)


def _alone(save: Save) -> Saved | LaminarDeltaError:
    try:
        return save.writer.save(save.manifest, save.state)
    except LaminarDeltaError as error:
        # Whatever it is: others may be committed by now, and have to be told.
        return error


def _begin(save: Save) -> _Member:
    writer = save.writer
    attempt = writer.committer.begin(save.manifest.checkpoint_id)
    member = _Member(save, attempt, save.manifest, [], stored_states(save.manifest, given_states(save.state)))
    try:
        writer.settle()
        stored = writer.committer.stored(save.manifest.checkpoint_id)
        if stored is not None:
            member.answer = writer.same_again(save.manifest, member.states, stored)
        else:
            check_recoverable(save.manifest, member.states, has_frames=False)
            if member.states:
                member.upon = writer.basis.layouts(member.states)
                check_upon(member.upon, attempt, member.states, writer.state_policy)
    except LaminarDeltaError as error:
        # Whatever keeps one from beginning does not keep the others: a closed writer, a damaged checkpoint of its
        # own, a delta that stands upon nothing.
        member.answer = error
    return member


def _stage(engine: Engine, members: list[_Member]) -> None:
    offsets = stage_all_offsets(engine, [(member.attempt, member.manifest) for member in members])
    for member, parts in zip(members, offsets, strict=True):
        member.parts.extend(parts)
    stateful = [member for member in members if member.states]
    if not stateful:
        return
    saves = [(member.attempt, member.states, member.upon, member.save.writer.state_policy) for member in stateful]
    staged = stage_all_state(engine, saves)
    for member, state in zip(stateful, staged, strict=True):
        member.parts.extend(state.parts)
        member.manifest = with_state(member.manifest, state.measured)
        member.state = state


def _commit(engine: Engine, members: list[_Member]) -> None:
    for member in members:
        birth = member.save.writer.committer.prepare(member.attempt, member.staged)
        if isinstance(birth, Birth):
            member.birth = birth
        else:
            member.answer = birth
    while going := [member for member in members if member.answer is None]:
        try:
            made = _append(engine, going)
        except FencedError as error:
            fenced = [m for m in going if m.birth and m.birth.fence.application_id in _names(error)]
            if not fenced:
                raise
            for member in fenced:
                member.answer = _told(member, error)
                member.save.writer.abort(member.attempt)
        except CommitUnknownError as error:
            for member in going:
                member.answer = _told(member, error)
                member.save.writer.abort(member.attempt)
        else:
            for member in going:
                assert member.birth is not None
                member.answer = member.save.writer.committer.born(member.birth, made)


@contextmanager
def _doubted_unless_certain(members: list[_Member]) -> Iterator[None]:
    """Within: their commit, and all of them looked after. Cut off, they are in doubt: no next state stands upon the last."""
    with ExitStack() as doubted:
        for member in members:
            doubted.enter_context(member.save.writer.committer.doubted_unless_certain([member.attempt]))
        yield


def _look_after(members: list[_Member]) -> None:
    """As for checkpoints saved alone: whatever one of them meets is its own answer, and nobody else's."""
    for member in members:
        if not isinstance(member.answer, Saved):
            continue
        try:
            member.save.writer.aftercare.look_after(member.attempt, member.answer, member.staged)
        except LaminarDeltaError as error:
            member.answer = error


def _append(engine: Engine, members: list[_Member]) -> Commit:
    births = [member.birth for member in members if member.birth is not None]
    first = births[0].attempt
    return engine.append(
        MANIFESTS.name,
        pa.concat_tables([birth.row for birth in births]),
        fences=[birth.fence for birth in births],
        metadata=shared_metadata("save", [birth.attempt for birth in births]),
        key={"pipeline": first.pipeline, "attempt_id": first.attempt_id},
    )


def _names(error: FencedError) -> set[object]:
    return set(error.found) if isinstance(error.found, dict) else set()


def _told(member: _Member, error: LaminarDeltaError) -> LaminarDeltaError:
    """The error as this pipeline's writer would have raised it, taken note of in the same way."""
    try:
        with member.save.writer.committer.outcome_noted([member.attempt]):
            raise error
    except LaminarDeltaError as told:
        return told


def _answer(member: _Member) -> Saved | LaminarDeltaError:
    assert member.answer is not None
    return member.answer
