"""Writing the state of a checkpoint anew, for one that is made from it: where its rows are whole only as they were saved.

Earlier versions of a table are gone after the healing window, so a checkpoint that goes on using such rows would be of no use
then. The state is streamed from the one into the other, never held as a whole; application deltas are applied on the way, for
what they stand upon goes too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.catalog.state.chunks import checksum_over
from laminar_delta.catalog.state.staging import stage_state
from laminar_delta.model.manifest import OperatorCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laminar_delta.catalog.attempt import Attempt
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.catalog.state.policy import StatePolicy
    from laminar_delta.catalog.state.staging import StagedState
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The state to write anew."""

    state: CheckpointState
    """As it was saved."""

    def stage(
        self, engine: Engine, attempt: Attempt, manifest: CheckpointManifest, policy: StatePolicy
    ) -> tuple[CheckpointManifest, StagedState]:
        """Stages it whole under an attempt, upon nothing. The manifest, as it describes what was staged, and that."""
        layouts = self.state.layouts()
        states = {(layout.operator, layout.partition): self._pieces(layout) for layout in layouts}
        staged = stage_state(engine, attempt, states, policy=policy)
        return _described(manifest, layouts, staged), staged

    def _pieces(self, layout: Layout) -> Iterator[bytes | memoryview]:
        # Asked for when its turn comes: of many partitions each would else be opened before the first is written.
        yield from self.state.pieces(layout.operator, layout.partition)


def _described(manifest: CheckpointManifest, before: list[Layout], staged: StagedState) -> CheckpointManifest:
    """What the manifest says of its state: other lengths and another checksum only where deltas were applied."""
    lengths = staged.measured.lengths
    external = {
        name: OperatorCheckpoint.external_at(0, lengths[name]) if name in lengths else found
        for name, found in manifest.operator_states.items()
    }
    # A checksum that came with the manifest is of what the application makes of the state: it stays.
    ours = checksum_over({(layout.operator, layout.partition): layout.checksum for layout in before})
    grown = sum(lengths.values()) - sum(layout.length for layout in before)
    return replace(
        manifest,
        operator_states=external,
        state_checksum=staged.measured.checksum if manifest.state_checksum == ours else manifest.state_checksum,
        size_bytes=manifest.size_bytes + grown,
    )
