"""Checksums that came with a manifest: kept as they are, checked by LaminarDB's formulas and told in its words."""

import hashlib

import pytest

import laminar_delta as ld
from laminar_delta.catalog.rows import SaveContext, manifest_table
from laminar_delta.catalog.sidecar import inline_checksum
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine.predicate import col
from laminar_delta.model import FindingCode, OperatorCheckpoint, Severity
from laminar_delta.stores import DeltaCheckpointStore
from tests.stores.support import COMMITTED, StoreOpener, manifest, overwrite

INLINE = OperatorCheckpoint.inline
MIXED = {"a": INLINE(b"x"), "b": OperatorCheckpoint.external_at(0, 3)}
SHA_OF_BIG = "343cd0ac847a92b70526c729a416511eda295bab831789bb93ba96d2ad0e1f97"
MIXED_OF_BIG = "8dae8729fb7c82c31977db645c4e4640c8c3e0f651f1eb4d297ea72f1cff8891"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"window": INLINE(b"data")}, "014c9733bf1d312c37d202e0e18bbb6a5273bc1aade1a2e82067d988123cc70d"),
        ({"b": INLINE(b""), "a": INLINE(b"x")}, "6ec5b8b01fdf57af1718a054cf0e238f43cb755b5e166bc0e0afbef10c231791"),
        ({"a": INLINE(b"x")}, "aa36a4ebb8fafb101fd150d62c72ba82b8695eaa1d53be52670f83f732cb346d"),
        (MIXED, "aa36a4ebb8fafb101fd150d62c72ba82b8695eaa1d53be52670f83f732cb346d"),
        ({}, EMPTY),
    ],
)
def test_inline_state_has_the_checksum_that_laminardb_gives_it(
    states: dict[str, OperatorCheckpoint], expected: str
) -> None:
    rows = manifest_table([(manifest(1, operator_states=states), SaveContext(pipeline="p", attempt_id="a"))])
    assert inline_checksum(rows.to_pylist()[0]) == expected


def test_a_checksum_that_was_given_is_kept_and_checked(store: DeltaCheckpointStore) -> None:
    given = [
        (manifest(1, state_checksum=SHA_OF_BIG), True),
        (manifest(2, state_checksum=SHA_OF_BIG, operator_states=MIXED), True),
        (manifest(3, state_checksum=MIXED_OF_BIG, operator_states=MIXED), True),
        (manifest(4, state_checksum=EMPTY), False),
    ]
    for saved, valid in given:
        store.save_state_data(saved.checkpoint_id, [b"B", b"IG"])
        store.save(saved)
        found = store.load_by_id(saved.checkpoint_id)
        assert found is not None
        assert (found.state_checksum, found.size_bytes) == (saved.state_checksum, 3)
        assert store.validate_checkpoint(saved.checkpoint_id).valid is valid
    assert store.validate_checkpoint(4).issues == (f"state.bin checksum mismatch: expected {EMPTY}, got {SHA_OF_BIG}",)
    report = store.recover_latest_validated()
    assert (report.chosen_id, report.skipped[0].checkpoint_id) == (3, 4)


def test_a_checksum_without_state_is_kept_and_names_what_is_missing(store: DeltaCheckpointStore) -> None:
    inline = {"window": INLINE(b"data")}
    sha = hashlib.sha256(b"state elsewhere").hexdigest()
    store.save(
        manifest(
            1, operator_states=inline, state_checksum="014c9733bf1d312c37d202e0e18bbb6a5273bc1aade1a2e82067d988123cc70d"
        )
    )
    store.save(manifest(2, operator_states=inline, state_checksum=sha))
    store.save(manifest(3, operator_states=inline))
    found = store.load_by_id(2)
    assert found is not None
    assert found.state_checksum == sha
    assert [store.validate_checkpoint(number).issues for number in (1, 2, 3)] == [
        (),
        ("state.bin referenced by checksum but not found",),
        (),
    ]
    store.update_manifest(manifest(2, operator_states=inline))
    found = store.load_by_id(2)
    assert found is not None
    assert found.state_checksum == sha


def test_findings_have_the_documented_words_and_severities(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    store, other = open_store(), open_store(vnode_count=1)
    store.save(
        manifest(
            1,
            version=0,
            timestamp_ms=0,
            sink_epochs={"a": 1, "b": 1},
            sink_commit_statuses={"a": COMMITTED},
            source_names=("other",),
            is_incremental=True,
        )
    )
    result = store.validate_checkpoint(1)
    assert result.valid
    assert {finding.severity for finding in result.findings} == {Severity.WARNING}
    assert result.issues == (
        "manifest validation: manifest version is 0",
        "manifest validation: timestamp_ms is 0 (missing creation time)",
        "manifest validation: sink 'b' has epoch but no commit status",
        "manifest validation: source_offsets contains 'kafka' not in source_names",
        "manifest validation: incremental checkpoint has no parent_id",
    )
    store.save(manifest(2, epoch=0))
    result = store.validate_checkpoint(2)
    assert [(finding.is_fatal, finding.message) for finding in result.findings] == [
        (False, "manifest validation: epoch is 0"),
        (True, "epoch or checkpoint_id is 0 — likely corrupted"),
    ]
    assert result.findings[0].code == FindingCode.EPOCH_ZERO.value
    assert other.validate_checkpoint(2).issues == (
        result.issues[0],
        "manifest validation: vnode_count mismatch: checkpoint has 256, runtime expects 1",
        result.issues[1],
    )
    store.save(manifest(3))
    overwrite(catalog, MANIFESTS, col("checkpoint_id").eq(3), {"epoch": 77})
    result = store.validate_checkpoint(3)
    assert not result.valid
    assert [issue.partition(": ")[0] for issue in result.issues] == ["corrupt manifest"]
    result = store.validate_checkpoint(99)
    assert (result.valid, result.issues) == (False, ("manifest not found for checkpoint 99",))
    assert result.findings[0].is_fatal
