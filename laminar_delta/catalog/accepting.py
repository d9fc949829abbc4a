"""What a save may hold: looked at before anything is staged, so that wrong input leaves nothing behind.

Refused is what no column can hold, and what recovery would pass over by rule: whoever is told that a checkpoint is saved can go
on from it. LaminarDB's store takes what its callers have always given it, and imports take what there was, so those ask only
for what can be kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from laminar_delta.catalog.rows import SaveContext, check_numbers, manifest_table
from laminar_delta.catalog.said import check_said
from laminar_delta.catalog.sidecar import SIDECAR, inline_checksum
from laminar_delta.errors import InvalidInputError
from laminar_delta.model.ids import check_ordering_number
from laminar_delta.model.manifest import CheckpointManifest
from laminar_delta.model.status import SinkCommitStatus

if TYPE_CHECKING:
    from laminar_delta.catalog.state.staging import States

LARGEST_VNODE_COUNT = 2**16 - 1
"""LaminarDB counts them in 16 bits."""


def check_manifest(manifest: object, *, external_id: str | None = None) -> None:
    """Raises `InvalidInputError` for what is no manifest, or has what no column can hold."""
    if not isinstance(manifest, CheckpointManifest):
        raise InvalidInputError(
            f"what is to be saved is no manifest: {type(manifest).__name__}",
            expected=CheckpointManifest.__name__,
            found=type(manifest).__name__,
        )
    check_numbers(manifest)
    check_said(external_id=external_id)


def check_recoverable(manifest: CheckpointManifest, states: States, *, has_frames: bool) -> None:
    """Raises `InvalidInputError` when recovery would pass over a checkpoint of this manifest and these states.

    Args:
        manifest: What is to be saved.
        states: The state that comes with it.
        has_frames: Whether more comes as frames: whose is known only once those have run.
    """
    check_asked_for(checkpoint_id=manifest.checkpoint_id, epoch=manifest.epoch)
    operators = {key[0] for key in states}
    check_operators(operators)
    if has_frames:
        return
    named = manifest.operator_states.items()
    missing = sorted(name for name, at in named if at.external and at.external_length and name not in operators)
    if missing:
        raise _without_state(f"it names state of operator {missing[0]!r} that is not in it", missing)
    if not states and manifest.state_checksum is not None:
        (row,) = manifest_table([(manifest, SaveContext(pipeline="-", attempt_id=""))]).to_pylist()
        if manifest.state_checksum != inline_checksum(row):
            raise _without_state("its state_checksum is of state that is not in it", [manifest.state_checksum])


def check_asked_for(**numbers: int | None) -> None:
    """Raises `InvalidInputError`, naming it, for an id or epoch that no checkpoint to recover from can have."""
    for name, value in numbers.items():
        if value is not None and check_ordering_number(name, value) == 0:
            raise InvalidInputError(
                f"{name} is 0, which recovery takes for a damaged checkpoint", expected="1 or more", found=0
            )


def check_operators(operators: Iterable[str]) -> None:
    """Raises `InvalidInputError` for the name that LaminarDB's sidecars are stored under: it says what is in it otherwise."""
    if SIDECAR in set(operators):
        raise InvalidInputError(
            f"no operator can be called {SIDECAR!r}",
            expected="another name",
            found=SIDECAR,
            next_step="Name it otherwise: state of LaminarDB's own form is stored under that name.",
        )


def check_names(**lists: object) -> None:
    """Raises `InvalidInputError`, naming it, for a text in place of a list of names: it would be one of its letters."""
    for what, names in lists.items():
        if isinstance(names, (str, bytes)):
            raise InvalidInputError(f"{what} is one text", expected="a list of names", found=names)


def check_statuses(statuses: Mapping[str, object]) -> None:
    """Raises `InvalidInputError` for what is no status of a sink, such as its name."""
    for sink, status in statuses.items():
        if not isinstance(status, SinkCommitStatus):
            raise InvalidInputError(
                f"what is said of sink {sink!r} is no status: {type(status).__name__}",
                expected="a SinkCommitStatus, such as SinkCommitStatus.committed()",
                found=type(status).__name__,
            )


def check_vnode_count(vnode_count: object) -> None:
    """Raises `InvalidInputError` for what is no number of virtual nodes."""
    is_number = isinstance(vnode_count, int) and not isinstance(vnode_count, bool)
    if not is_number or vnode_count not in range(1, LARGEST_VNODE_COUNT + 1):
        raise InvalidInputError(
            "vnode_count is out of range", expected=f"1 to {LARGEST_VNODE_COUNT}", found=vnode_count
        )


def _without_state(why: str, found: Collection[str]) -> InvalidInputError:
    return InvalidInputError(
        f"the manifest cannot be recovered from: {why}",
        expected="the state of every operator that the manifest names",
        found=list(found),
        next_step="Give the state with the manifest, or use `rewind`, which makes a checkpoint like an earlier one.",
    )
