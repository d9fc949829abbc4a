"""From the offsets of a checkpoint to typed positions a pipeline can resume from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from laminar_delta.model.manifest import ConnectorCheckpoint
from laminar_delta.model.positions import SourcePosition
from laminar_delta.model.rules import U64
from laminar_delta.model.v2 import SourceOffsetEntry
from laminar_delta.model.wire import WireModel

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset(WireModel):
    """A position and whose it is."""

    source_id: str
    position: SourcePosition


class WarningSeverity(str, Enum):
    """How much a warning matters, by the names that documents use."""

    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterminismWarning(WireModel):
    """Why a source may not resume exactly where it was."""

    source_name: str
    message: str
    severity: WarningSeverity


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPlan(WireModel):
    """Where each source resumes, and which could not be told."""

    source_positions: Mapping[str, SourcePosition]
    resume_epoch: U64
    """The checkpoint's own epoch, not the one after it."""
    warnings: tuple[DeterminismWarning, ...]
    """One per source without a typed position, by name."""

    @classmethod
    def from_manifest(cls, source_offsets: Mapping[str, ConnectorCheckpoint], epoch: int) -> "RecoveryPlan":
        """Plan from the entries of a manifest."""
        return cls._plan(source_offsets, SourcePosition.from_connector_checkpoint, epoch, "position")

    @classmethod
    def from_manifest_v2(cls, source_offsets: Mapping[str, SourceOffsetEntry], epoch: int) -> "RecoveryPlan":
        """Plan from the entries of a V2 manifest."""
        return cls._plan(source_offsets, SourcePosition.from_offset_entry, epoch, "position from V2 offset entry")

    @classmethod
    def _plan(
        cls,
        entries: Mapping[str, Entry],
        rebuild: Callable[[Entry], SourcePosition | None],
        epoch: int,
        what: str,
    ) -> "RecoveryPlan":
        rebuilt = {name: rebuild(entry) for name, entry in entries.items()}
        message = f"Could not reconstruct typed {what}; will use raw offsets for recovery"
        return cls(
            source_positions={name: position for name, position in rebuilt.items() if position is not None},
            resume_epoch=epoch,
            warnings=tuple(
                DeterminismWarning(source_name=name, message=message, severity=WarningSeverity.WARNING)
                for name in sorted(rebuilt)
                if rebuilt[name] is None
            ),
        )
