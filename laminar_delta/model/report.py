"""What a recovery did and why: returned to the caller and, where the catalog can be written, stored as a row."""

from dataclasses import dataclass

from laminar_delta.model.display import Displayed
from laminar_delta.model.findings import Finding
from laminar_delta.model.manifest import CheckpointManifest
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import U64
from laminar_delta.model.wire import WireModel


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCheckpoint(WireModel):
    """A checkpoint that recovery passed over."""

    checkpoint_id: U64
    reason: str
    """In one line, for people."""
    findings: tuple[Finding, ...] = ()
    """What the reason rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealedRows(WireModel):
    """Rows that were missing or changed, and were read from an earlier version of their table."""

    checkpoint_id: U64
    table: str
    version: U64
    """The Delta version they were read from."""
    reason: str
    """What was wrong with the current ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport(Displayed, WireModel):
    """The walk from the newest checkpoint to the first valid one.

    `chosen_id` is None only if nothing was there or nothing was valid; `examined` tells which.
    """

    pipeline: str
    chosen_id: U64 | None = None
    manifest: CheckpointManifest | None = None
    """Of the chosen checkpoint. A stored report may leave it out: the manifest is in its own table."""
    skipped: tuple[SkippedCheckpoint, ...] = ()
    """In the order of the walk, newest first."""
    examined: U64 = 0
    """How many checkpoints there were to choose from, as LaminarDB counts it."""
    healed: tuple[HealedRows, ...] = ()
    notes: tuple[str, ...] = ()
    """Further remarks, such as history that is gone and could not be searched."""
    generation: U64 | None = None
    """The writer's generation this recovery was made under; None for a reader."""
    started_at_ms: U64 = 0
    """Milliseconds since 1970."""
    elapsed_ms: U64 = 0
    dry_run: bool = False
    """Whether the walk was only tried: nothing was recorded, nothing abandoned."""
    stored: bool = False
    """Whether the catalog keeps this report; False with read-only access."""

    @property
    def is_fresh_start(self) -> bool:
        """Whether there was nothing to recover from, rather than nothing usable."""
        return self.chosen_id is None and self.examined == 0

    def _check(self) -> None:
        if self.manifest is not None and self.manifest.checkpoint_id != self.chosen_id:
            chosen = "no checkpoint" if self.chosen_id is None else f"checkpoint {self.chosen_id}"
            raise Mismatch(f"the manifest of {chosen}", f"that of checkpoint {self.manifest.checkpoint_id}")
