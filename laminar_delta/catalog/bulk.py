"""Saving many checkpoints of one pipeline at once, as an import does: one commit per table for all of them.

A save by itself is one commit per table and costs tens of milliseconds; ten thousand of them also leave ten thousand files
and log entries. Here all manifest rows are one fenced append: all of the checkpoints exist then, or none. Nothing is filled
in: a manifest is stored as it is given, and so is what it says of its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laminar_delta.catalog.attempt import stage_all_offsets
from laminar_delta.catalog.committing import given_up_on_failure
from laminar_delta.catalog.state.staging import stage_all_state
from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.codec import StateSource
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSave:
    """One checkpoint of many: complete, and not to be changed by saving it."""

    manifest: CheckpointManifest
    states: Mapping[tuple[str, int], StateSource] = field(default_factory=dict)
    """By operator and partition; each is read once, and streamed."""
    external_id: str | None = None
    vnode_count: int | None = None


def save_all(writer: Writer, saves: Sequence[BulkSave], *, reason: str | None = None) -> int | None:
    """Saves new checkpoints in one commit.

    Returns:
        The version of `manifests` that holds them; None for no checkpoints.

    Raises:
        ConflictError: One of the ids is committed, or was. Then none is saved.
        FencedError: Another writer took over.
        InvalidInputError: Two have the same id.
    """
    if not saves:
        return None
    if len({save.manifest.checkpoint_id for save in saves}) < len(saves):
        raise InvalidInputError("several checkpoints of one save have the same id", expected="each id once")
    writer.settle()
    attempts = [writer.committer.begin(save.manifest.checkpoint_id) for save in saves]
    with given_up_on_failure([(writer.committer, attempt) for attempt in attempts]):
        offsets = stage_all_offsets(
            writer.engine, [(attempt, save.manifest) for attempt, save in zip(attempts, saves, strict=True)]
        )
        states = stage_all_state(
            writer.engine,
            [(attempt, save.states, {}, writer.state_policy) for attempt, save in zip(attempts, saves, strict=True)],
        )
        parts = [[*own, *state.parts] for own, state in zip(offsets, states, strict=True)]
        with writer.committer.doubted_unless_certain(attempts):
            made = writer.committer.commit_all(list(zip(attempts, saves, parts, strict=True)), reason=reason)
            # They came after what this writer saved last: nothing that follows changed since that.
            writer.basis.of(None)
    return made
