import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laminar_delta.model import (
    CheckpointManifest,
    ConnectorCheckpoint,
    Finding,
    FindingCode,
    Severity,
    SinkCommitStatus,
    ValidationResult,
    validate_manifest,
    validate_vnode_count,
)

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "golden" / "vectors" / "self_validation.json").read_text("utf-8")
)


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["note"])
def test_manifest_findings_are_those_of_the_real_code(case: dict[str, Any]) -> None:
    findings = validate_manifest(CheckpointManifest.from_dict(case["manifest"]))
    assert [finding.message for finding in findings] == case["issues"]
    assert all(finding.severity is Severity.WARNING for finding in findings)


def test_everything_wrong_is_found_in_order() -> None:
    entry = ConnectorCheckpoint.new(1)
    manifest = CheckpointManifest(
        version=0,
        checkpoint_id=0,
        epoch=0,
        timestamp_ms=0,
        sink_epochs={"z": 1, "ok": 1, "a": 1},
        sink_commit_statuses={"ok": SinkCommitStatus.pending(), "no epoch": SinkCommitStatus.pending()},
        source_names=("known", "no offset"),
        source_offsets={"known": entry, "y": entry, "b": entry},
        is_incremental=True,
    )
    assert [(finding.code, finding.message) for finding in validate_manifest(manifest)] == [
        (FindingCode.VERSION_ZERO, "manifest version is 0"),
        (FindingCode.CHECKPOINT_ID_ZERO, "checkpoint_id is 0"),
        (FindingCode.EPOCH_ZERO, "epoch is 0"),
        (FindingCode.TIMESTAMP_ZERO, "timestamp_ms is 0 (missing creation time)"),
        (FindingCode.SINK_WITHOUT_STATUS, "sink 'a' has epoch but no commit status"),
        (FindingCode.SINK_WITHOUT_STATUS, "sink 'z' has epoch but no commit status"),
        (FindingCode.UNREGISTERED_SOURCE, "source_offsets contains 'b' not in source_names"),
        (FindingCode.UNREGISTERED_SOURCE, "source_offsets contains 'y' not in source_names"),
        (FindingCode.NO_PARENT, "incremental checkpoint has no parent_id"),
    ]


def test_lists_that_were_never_filled_are_not_compared() -> None:
    manifest = CheckpointManifest.new(1, 1, 1)
    entry = ConnectorCheckpoint.new(1)
    assert validate_manifest(replace(manifest, sink_epochs={"a": 1}, source_offsets={"b": entry})) == ()
    assert validate_manifest(replace(manifest, is_incremental=True, parent_id=0)) == ()


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (256, None),
        (0, "vnode_count is 0 (missing or legacy checkpoint)"),
        (128, "vnode_count mismatch: checkpoint has 128, runtime expects 256"),
    ],
)
def test_vnode_count(count: int, message: str | None) -> None:
    findings = validate_vnode_count(count, 256)
    assert [finding.message for finding in findings] == ([] if message is None else [message])
    assert not any(finding.is_fatal for finding in findings)


def test_result_is_invalid_only_by_a_fatal_finding() -> None:
    warning = Finding(severity=Severity.WARNING, code="w", message="odd")
    fatal = Finding(severity=Severity.FATAL, code="f", message="broken")
    assert ValidationResult.of(1, ()).valid
    assert ValidationResult.of(1, (warning,)).valid
    result = ValidationResult.of(1, (warning, fatal))
    assert not result.valid
    assert result.issues == ("odd", "broken")
    assert str(fatal) == "broken"
