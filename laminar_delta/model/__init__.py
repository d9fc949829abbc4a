"""The documents of checkpointing as Python values: manifests, positions, statuses, findings and reports.

Pure data: nothing here touches storage or knows an engine, and the clock is read only for a new id or manifest. Every type
but the enums and the path helpers has `from_json`, `to_json`, `from_dict` and `to_dict`; see `wire` for the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta._lazy import lazy_names

if TYPE_CHECKING:
    from laminar_delta.model.determinism import (
        DeterminismValidator,
        NondeterminismKind,
        OperatorDescriptor,
        OperatorDeterminismWarning,
    )
    from laminar_delta.model.findings import (
        Finding,
        FindingCode,
        Severity,
        ValidationResult,
        validate_manifest,
        validate_vnode_count,
    )
    from laminar_delta.model.ids import (
        CheckpointId,
        check_ordering_number,
        check_u64,
        new_attempt_id,
        validate_pipeline_name,
    )
    from laminar_delta.model.manifest import (
        INLINE_THRESHOLD_BYTES,
        CheckpointManifest,
        ConnectorCheckpoint,
        InFlightRecord,
        OperatorCheckpoint,
    )
    from laminar_delta.model.paths import CheckpointPaths, object_store_path
    from laminar_delta.model.positions import (
        FilePosition,
        GenericPosition,
        KafkaPartitionOffset,
        KafkaPosition,
        MysqlCdcPosition,
        PostgresCdcPosition,
        SourcePosition,
    )
    from laminar_delta.model.recovery_plan import DeterminismWarning, RecoveryPlan, SourceOffset, WarningSeverity
    from laminar_delta.model.report import HealedRows, RecoveryReport, SkippedCheckpoint
    from laminar_delta.model.source_checkpoint import MAX_POSITION_BYTES, SourceCheckpoint
    from laminar_delta.model.status import SinkCommitKind, SinkCommitStatus
    from laminar_delta.model.tiering import StorageClass, Tier, TieringPolicy
    from laminar_delta.model.v2 import (
        CheckpointManifestV2,
        OperatorSnapshotEntry,
        PartitionSnapshotEntry,
        SourceOffsetEntry,
    )
    from laminar_delta.model.wire import WireModel

_HOME = {
    "CheckpointId": "ids",
    "CheckpointManifest": "manifest",
    "CheckpointManifestV2": "v2",
    "CheckpointPaths": "paths",
    "ConnectorCheckpoint": "manifest",
    "DeterminismValidator": "determinism",
    "DeterminismWarning": "recovery_plan",
    "FilePosition": "positions",
    "Finding": "findings",
    "FindingCode": "findings",
    "GenericPosition": "positions",
    "HealedRows": "report",
    "INLINE_THRESHOLD_BYTES": "manifest",
    "InFlightRecord": "manifest",
    "KafkaPartitionOffset": "positions",
    "KafkaPosition": "positions",
    "MAX_POSITION_BYTES": "source_checkpoint",
    "MysqlCdcPosition": "positions",
    "NondeterminismKind": "determinism",
    "OperatorCheckpoint": "manifest",
    "OperatorDescriptor": "determinism",
    "OperatorDeterminismWarning": "determinism",
    "OperatorSnapshotEntry": "v2",
    "PartitionSnapshotEntry": "v2",
    "PostgresCdcPosition": "positions",
    "RecoveryPlan": "recovery_plan",
    "RecoveryReport": "report",
    "Severity": "findings",
    "SinkCommitKind": "status",
    "SinkCommitStatus": "status",
    "SkippedCheckpoint": "report",
    "SourceCheckpoint": "source_checkpoint",
    "SourceOffset": "recovery_plan",
    "SourceOffsetEntry": "v2",
    "SourcePosition": "positions",
    "StorageClass": "tiering",
    "Tier": "tiering",
    "TieringPolicy": "tiering",
    "ValidationResult": "findings",
    "WarningSeverity": "recovery_plan",
    "WireModel": "wire",
    "check_ordering_number": "ids",
    "check_u64": "ids",
    "new_attempt_id": "ids",
    "object_store_path": "paths",
    "validate_manifest": "findings",
    "validate_pipeline_name": "ids",
    "validate_vnode_count": "findings",
}

__getattr__, __dir__ = lazy_names(__name__, {name: f"{__name__}.{home}" for name, home in _HOME.items()})

__all__ = [
    "INLINE_THRESHOLD_BYTES",
    "MAX_POSITION_BYTES",
    "CheckpointId",
    "CheckpointManifest",
    "CheckpointManifestV2",
    "CheckpointPaths",
    "ConnectorCheckpoint",
    "DeterminismValidator",
    "DeterminismWarning",
    "FilePosition",
    "Finding",
    "FindingCode",
    "GenericPosition",
    "HealedRows",
    "InFlightRecord",
    "KafkaPartitionOffset",
    "KafkaPosition",
    "MysqlCdcPosition",
    "NondeterminismKind",
    "OperatorCheckpoint",
    "OperatorDescriptor",
    "OperatorDeterminismWarning",
    "OperatorSnapshotEntry",
    "PartitionSnapshotEntry",
    "PostgresCdcPosition",
    "RecoveryPlan",
    "RecoveryReport",
    "Severity",
    "SinkCommitKind",
    "SinkCommitStatus",
    "SkippedCheckpoint",
    "SourceCheckpoint",
    "SourceOffset",
    "SourceOffsetEntry",
    "SourcePosition",
    "StorageClass",
    "Tier",
    "TieringPolicy",
    "ValidationResult",
    "WarningSeverity",
    "WireModel",
    "check_ordering_number",
    "check_u64",
    "new_attempt_id",
    "object_store_path",
    "validate_manifest",
    "validate_pipeline_name",
    "validate_vnode_count",
]
