"""What is wrong with a checkpoint, as data: examining never raises for bad content, and severities are decided here.

The checks of a manifest's own fields, their order and their words are LaminarDB's, so that reports of both can be
compared. None of them makes a checkpoint unusable by itself; what does is found where state and children are read.
"""

from dataclasses import dataclass
from enum import Enum

from laminar_delta.model.display import Displayed
from laminar_delta.model.manifest import CheckpointManifest
from laminar_delta.model.rules import U64
from laminar_delta.model.wire import WireModel


class Severity(str, Enum):
    """What a finding means for recovery."""

    INFO = "info"
    """Worth knowing, nothing is wrong: data that was healed, for example."""
    WARNING = "warning"
    """Unusual or incomplete; recovery may use the checkpoint."""
    FATAL = "fatal"
    """Recovery must not use the checkpoint."""

    def __str__(self) -> str:
        return self.value


class FindingCode(str, Enum):
    """Stable names of the findings made here; others bring their own. Append only."""

    VERSION_ZERO = "version-zero"
    CHECKPOINT_ID_ZERO = "checkpoint-id-zero"
    EPOCH_ZERO = "epoch-zero"
    TIMESTAMP_ZERO = "timestamp-zero"
    SINK_WITHOUT_STATUS = "sink-without-status"
    UNREGISTERED_SOURCE = "unregistered-source"
    NO_PARENT = "no-parent"
    VNODE_COUNT_ZERO = "vnode-count-zero"
    VNODE_COUNT_DIFFERS = "vnode-count-differs"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(WireModel):
    """One thing that was noticed."""

    severity: Severity
    code: str
    """A stable name to match on. Text, so that reports of newer versions can still be read."""
    message: str

    @property
    def is_fatal(self) -> bool:
        """Whether recovery must not use the checkpoint."""
        return self.severity is Severity.FATAL

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult(Displayed, WireModel):
    """The outcome of examining one checkpoint."""

    checkpoint_id: U64
    valid: bool
    """Whether it is intact: all of it is there, as it was saved."""
    findings: tuple[Finding, ...] = ()
    """In the order they were made."""
    passed_over: str | None = None
    """Why recovery passes over it although it is intact: an undelivered sink, for example; None when it does not."""

    @classmethod
    def of(cls, checkpoint_id: int, findings: tuple[Finding, ...]) -> "ValidationResult":
        """Valid unless a finding is fatal."""
        valid = not any(finding.is_fatal for finding in findings)
        return cls(checkpoint_id=checkpoint_id, valid=valid, findings=findings)

    @property
    def issues(self) -> tuple[str, ...]:
        """The findings' messages, the form LaminarDB 0.18 gives them in."""
        return tuple(finding.message for finding in self.findings)


def validate_manifest(manifest: CheckpointManifest) -> tuple[Finding, ...]:
    """Check a manifest against itself.

    Returns:
        Warnings in a fixed order, within one check by name. Empty if there is nothing to say.
    """
    found: list[Finding] = []
    if manifest.version == 0:
        found.append(_warning(FindingCode.VERSION_ZERO, "manifest version is 0"))
    if manifest.checkpoint_id == 0:
        found.append(_warning(FindingCode.CHECKPOINT_ID_ZERO, "checkpoint_id is 0"))
    if manifest.epoch == 0:
        found.append(_warning(FindingCode.EPOCH_ZERO, "epoch is 0"))
    if manifest.timestamp_ms == 0:
        found.append(_warning(FindingCode.TIMESTAMP_ZERO, "timestamp_ms is 0 (missing creation time)"))
    if manifest.sink_commit_statuses:  # written before any sink was asked, a manifest has epochs and no status at all
        found.extend(
            _warning(FindingCode.SINK_WITHOUT_STATUS, f"sink '{name}' has epoch but no commit status")
            for name in sorted(manifest.sink_epochs.keys() - manifest.sink_commit_statuses.keys())
        )
    if manifest.source_names:  # releases before 0.16 recorded no names
        found.extend(
            _warning(FindingCode.UNREGISTERED_SOURCE, f"source_offsets contains '{name}' not in source_names")
            for name in sorted(manifest.source_offsets.keys() - set(manifest.source_names))
        )
    if manifest.is_incremental and manifest.parent_id is None:
        found.append(_warning(FindingCode.NO_PARENT, "incremental checkpoint has no parent_id"))
    return tuple(found)


def validate_vnode_count(vnode_count: int, expected: int) -> tuple[Finding, ...]:
    """Check the number of virtual nodes of a newer manifest; 0 stands for a missing field. Our manifest has no such field."""
    if vnode_count == 0:
        return (_warning(FindingCode.VNODE_COUNT_ZERO, "vnode_count is 0 (missing or legacy checkpoint)"),)
    if vnode_count != expected:
        message = f"vnode_count mismatch: checkpoint has {vnode_count}, runtime expects {expected}"
        return (_warning(FindingCode.VNODE_COUNT_DIFFERS, message),)
    return ()


def _warning(code: FindingCode, message: str) -> Finding:
    return Finding(severity=Severity.WARNING, code=code.value, message=message)
