"""What goes into a commit and what comes out of it, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.rows import SaveContext, manifest_table
from laminar_delta.errors import InvalidInputError
from laminar_delta.model.manifest import OperatorCheckpoint

if TYPE_CHECKING:
    from laminar_delta.catalog.attempt import Attempt, Part
    from laminar_delta.catalog.state.chunks import Measured
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.staging import StagedState, States
    from laminar_delta.engine.request import Fence
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The answer to a save."""

    checkpoint_id: int
    version: int | None
    """The version of `manifests` that holds it; None when it was committed under another attempt before."""
    replayed: bool = False
    """It was there already, with the same content."""

    @property
    def is_own(self) -> bool:
        """Whether this attempt is the one that was committed: then what it staged is the checkpoint's."""
        return self.version is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What is ready to be committed: a manifest, and the parts it accepts."""

    manifest: CheckpointManifest
    parts: tuple[Part, ...]
    state: StagedState | None = None

    @property
    def needs(self) -> tuple[int, ...]:
        """The checkpoints before that store some of its state."""
        return () if self.state is None else self.state.needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """A checkpoint about to exist: its manifest row and the fence to commit it under."""

    attempt: Attempt
    row: pa.Table
    fence: Fence


def sealed(rows: Iterable[tuple[CheckpointManifest, SaveContext]]) -> pa.Table:
    """Manifest rows, each with the digest of its content."""
    table = manifest_table(rows)
    digests = [row_digest(row, without=["content_digest"]) for row in table.to_pylist()]
    return table.set_column(
        table.column_names.index("content_digest"), "content_digest", pa.array(digests, pa.string())
    )


def with_state(manifest: CheckpointManifest, measured: Measured) -> CheckpointManifest:
    """A manifest that says what it has to say of its state. What it had inline of the same operators must be among it."""
    external = {operator: OperatorCheckpoint.external_at(0, length) for operator, length in measured.lengths.items()}
    return replace(
        manifest,
        operator_states={**manifest.operator_states, **external},
        state_checksum=measured.checksum,
        size_bytes=manifest.size_bytes + sum(measured.lengths.values()),
    )


def stored_states(manifest: CheckpointManifest, states: States) -> States:
    """The states to store: those given, and what the manifest has inline of the same operators.

    An entry of a manifest is inline or says what is elsewhere; an operator with both would lose the one.

    Raises:
        InvalidInputError: A state comes both ways.
    """
    inline = inline_states(manifest, {operator for operator, _ in states})
    twice = sorted(inline.keys() & states.keys())
    if twice:
        raise InvalidInputError(
            f"partition {twice[0][1]} of operator {twice[0][0]!r} has its state already, inside the manifest",
            expected="once",
            found="twice",
        )
    return {**states, **inline}


def inline_states(manifest: CheckpointManifest, operators: Iterable[str]) -> dict[Key, bytes]:
    """What a manifest has inline of some operators, as states of their own. Raises `CorruptionError` if it is no base64."""
    found = {
        (operator, 0): manifest.operator_states[operator].try_decode_inline()
        for operator in operators
        if operator in manifest.operator_states
    }
    return {key: state for key, state in found.items() if state is not None}
