import pytest

from laminar_delta.errors import FormatError, InvalidInputError
from laminar_delta.model import CheckpointManifest, Finding, RecoveryReport, Severity, SkippedCheckpoint


def test_report_of_a_fresh_pipeline() -> None:
    assert RecoveryReport(pipeline="p").is_fresh_start
    assert not RecoveryReport(pipeline="p", examined=3).is_fresh_start
    assert not RecoveryReport(pipeline="p", examined=3, chosen_id=2).is_fresh_start


def test_manifest_has_to_be_the_chosen_one() -> None:
    manifest = CheckpointManifest.new(7, 1, 1)
    assert RecoveryReport(pipeline="p", chosen_id=7, manifest=manifest).manifest == manifest
    for chosen in (None, 8):
        with pytest.raises(InvalidInputError, match="that of checkpoint 7"):
            RecoveryReport(pipeline="p", chosen_id=chosen, manifest=manifest)
    document = RecoveryReport(pipeline="p", chosen_id=7, manifest=manifest).to_dict()
    with pytest.raises(FormatError, match="that of checkpoint 7"):
        RecoveryReport.from_dict({**document, "chosen_id": 8})


def test_report_is_compact_json_with_every_field() -> None:
    finding = Finding(severity=Severity.FATAL, code="checksum", message="differs")
    skipped = SkippedCheckpoint(checkpoint_id=9, reason="differs", findings=(finding,))
    report = RecoveryReport(pipeline="p", chosen_id=8, skipped=(skipped,), examined=2, elapsed_ms=3, started_at_ms=4)
    assert report.to_json() == (
        b'{"pipeline":"p","chosen_id":8,"manifest":null,"skipped":[{"checkpoint_id":9,"reason":"differs","findings":'
        b'[{"severity":"fatal","code":"checksum","message":"differs"}]}],"examined":2,"healed":[],"notes":[],'
        b'"generation":null,"started_at_ms":4,"elapsed_ms":3,"dry_run":false,"stored":false}'
    )
    assert RecoveryReport.from_json(report.to_json()) == report
