"""Hypothesis strategies for the model: any value a document can hold, with full integer ranges and names in any script.

Needs the `testing` extra. Collections are kept small; what makes a document interesting is the values at its edges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

from laminar_delta.model import (
    MAX_POSITION_BYTES,
    CheckpointId,
    CheckpointManifest,
    CheckpointManifestV2,
    ConnectorCheckpoint,
    DeterminismWarning,
    FilePosition,
    Finding,
    GenericPosition,
    HealedRows,
    InFlightRecord,
    KafkaPartitionOffset,
    KafkaPosition,
    MysqlCdcPosition,
    NondeterminismKind,
    OperatorCheckpoint,
    OperatorDeterminismWarning,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    PostgresCdcPosition,
    RecoveryPlan,
    RecoveryReport,
    Severity,
    SinkCommitStatus,
    SkippedCheckpoint,
    SourceCheckpoint,
    SourceOffset,
    SourceOffsetEntry,
    SourcePosition,
    ValidationResult,
    WarningSeverity,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

FEW = 3
"""Entries of a map or list, at most."""


def u32() -> SearchStrategy[int]:
    """Unsigned 32-bit integers."""
    return st.integers(0, 2**32 - 1)


def u64() -> SearchStrategy[int]:
    """Unsigned 64-bit integers, also those that no BIGINT holds."""
    return st.integers(0, 2**64 - 1)


def i64() -> SearchStrategy[int]:
    """Signed 64-bit integers."""
    return st.integers(-(2**63), 2**63 - 1)


def ordering_numbers() -> SearchStrategy[int]:
    """What a BIGINT column takes for ids, epochs and the like."""
    return st.integers(0, 2**63 - 1)


def texts() -> SearchStrategy[str]:
    """Text of any script, empty and with control characters too."""
    return st.text(max_size=12)


def names() -> SearchStrategy[str]:
    """Names of sources, sinks and operators: often plain, sometimes not."""
    plain = st.sampled_from(["orders", "kafka-orders", "window_agg", "größe", "日本語", "😀", 'a"b\\c', "a/b", ""])
    return plain | texts()


def pipeline_names() -> SearchStrategy[str]:
    """Names that `validate_pipeline_name` takes."""
    plain = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-._~", min_size=1, max_size=200)
    # 20 characters of 4 bytes each are 240 bytes when percent-encoded, which still fits.
    return plain | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


def sink_commit_statuses() -> SearchStrategy[SinkCommitStatus]:
    """All three kinds."""
    fixed = st.sampled_from([SinkCommitStatus.pending(), SinkCommitStatus.committed()])
    return fixed | st.builds(SinkCommitStatus.failed, texts())


def connector_checkpoints(epochs: SearchStrategy[int] | None = None) -> SearchStrategy[ConnectorCheckpoint]:
    """Offsets of a connector."""
    return st.builds(
        ConnectorCheckpoint, offsets=_map(texts()), epoch=u64() if epochs is None else epochs, metadata=_map(texts())
    )


def operator_checkpoints() -> SearchStrategy[OperatorCheckpoint]:
    """State inside the manifest, beside it, or neither well."""
    odd = st.builds(
        OperatorCheckpoint,
        state_b64=st.none() | texts(),
        external=st.booleans(),
        external_offset=u64(),
        external_length=u64(),
    )
    return (
        st.builds(OperatorCheckpoint.inline, st.binary(max_size=40))
        | st.builds(OperatorCheckpoint.external_at, u64(), u64())
        | odd
    )


def in_flight_records() -> SearchStrategy[InFlightRecord]:
    """Events between operators; their text need not be base64."""
    return st.builds(InFlightRecord, input_id=u64(), data_b64=texts())


def manifests(ordering: SearchStrategy[int] | None = None) -> SearchStrategy[CheckpointManifest]:
    """Manifests with any of the 22 fields filled, valid or not.

    Args:
        ordering: Where ids, epochs and times come from; `ordering_numbers()` for manifests a table can hold.
    """
    number = u64() if ordering is None else ordering
    return st.builds(
        CheckpointManifest,
        version=u32(),
        checkpoint_id=number,
        epoch=number,
        timestamp_ms=number,
        source_offsets=_map(connector_checkpoints(number)),
        sink_epochs=_map(number),
        sink_commit_statuses=_map(sink_commit_statuses()),
        table_offsets=_map(connector_checkpoints(number)),
        operator_states=_map(operator_checkpoints()),
        table_store_checkpoint_path=st.none() | texts(),
        wal_position=u64(),
        per_core_wal_positions=_list(u64()),
        watermark=st.none() | i64(),
        source_watermarks=_map(i64()),
        source_names=_list(names()),
        sink_names=_list(names()),
        pipeline_hash=st.none() | u64(),
        inflight_data=_map(_list(in_flight_records())),
        size_bytes=u64(),
        is_incremental=st.booleans(),
        parent_id=st.none() | number,
        state_checksum=st.none() | texts(),
    )


def checkpoint_ids() -> SearchStrategy[CheckpointId]:
    """UUIDs of any version."""
    return st.builds(CheckpointId.from_uuid, st.uuids())


def source_offset_entries() -> SearchStrategy[SourceOffsetEntry]:
    """Offsets of a source in a V2 manifest."""
    kinds = st.sampled_from(["kafka", "postgres_cdc", "mysql_cdc", "file"]) | texts()
    return st.builds(SourceOffsetEntry, source_type=kinds, offsets=_map(texts()), epoch=u64())


def partition_snapshot_entries() -> SearchStrategy[PartitionSnapshotEntry]:
    """Files of a V2 manifest."""
    return st.builds(
        PartitionSnapshotEntry,
        partition_id=u32(),
        is_delta=st.booleans(),
        path=texts(),
        size_bytes=u64(),
        sha256=st.none() | texts(),
    )


def operator_snapshot_entries() -> SearchStrategy[OperatorSnapshotEntry]:
    """Operators of a V2 manifest."""
    return st.builds(OperatorSnapshotEntry, partitions=_list(partition_snapshot_entries()), total_bytes=u64())


def manifests_v2() -> SearchStrategy[CheckpointManifestV2]:
    """Manifests of the distributed layout."""
    return st.builds(
        CheckpointManifestV2,
        version=u32(),
        checkpoint_id=checkpoint_ids(),
        epoch=u64(),
        timestamp_ms=u64(),
        operators=_map(operator_snapshot_entries()),
        source_offsets=_map(source_offset_entries()),
        parent_id=st.none() | checkpoint_ids(),
        watermark=st.none() | i64(),
        total_size_bytes=u64(),
    )


def kafka_partition_offsets() -> SearchStrategy[KafkaPartitionOffset]:
    """Partitions, negative ones too."""
    return st.builds(KafkaPartitionOffset, topic=names(), partition=st.integers(-(2**31), 2**31 - 1), offset=i64())


def source_positions() -> SearchStrategy[SourcePosition]:
    """Every variant."""
    return st.one_of(
        st.builds(KafkaPosition, group_id=names(), partitions=_list(kafka_partition_offsets())),
        st.builds(PostgresCdcPosition, confirmed_flush_lsn=texts(), write_lsn=st.none() | texts(), slot_name=names()),
        st.builds(
            MysqlCdcPosition,
            gtid_set=st.none() | texts(),
            binlog_file=st.none() | texts(),
            binlog_position=st.none() | u64(),
        ),
        st.builds(FilePosition, path=texts(), byte_offset=u64()),
        st.builds(GenericPosition, connector_type=texts(), offsets=_map(texts())),
    )


def source_offsets() -> SearchStrategy[SourceOffset]:
    """Positions with their owner."""
    return st.builds(SourceOffset, source_id=names(), position=source_positions())


def determinism_warnings() -> SearchStrategy[DeterminismWarning]:
    """Warnings of a recovery plan."""
    severity = st.sampled_from(WarningSeverity)
    return st.builds(DeterminismWarning, source_name=names(), message=texts(), severity=severity)


def operator_determinism_warnings() -> SearchStrategy[OperatorDeterminismWarning]:
    """Warnings about operators."""
    kind = st.sampled_from(NondeterminismKind)
    return st.builds(OperatorDeterminismWarning, kind=kind, operator_id=names(), suggestion=texts())


def recovery_plans() -> SearchStrategy[RecoveryPlan]:
    """Plans for any sources."""
    return st.builds(
        RecoveryPlan,
        source_positions=_map(source_positions()),
        resume_epoch=u64(),
        warnings=_list(determinism_warnings()),
    )


def source_checkpoints() -> SearchStrategy[SourceCheckpoint]:
    """Sequences with a position, an empty one, one of the largest size, or none."""
    largest = st.just(b"\xff" * MAX_POSITION_BYTES)
    return st.builds(SourceCheckpoint, sequence=u64(), position=st.none() | st.binary(max_size=40) | largest)


def findings() -> SearchStrategy[Finding]:
    """Findings of any severity."""
    return st.builds(Finding, severity=st.sampled_from(Severity), code=texts(), message=texts())


def validation_results() -> SearchStrategy[ValidationResult]:
    """Results that agree with their findings."""
    found = st.builds(ValidationResult.of, u64(), _list(findings()))
    return st.builds(lambda result, why: replace(result, passed_over=why), found, st.none() | texts())


def skipped_checkpoints() -> SearchStrategy[SkippedCheckpoint]:
    """Checkpoints that recovery passed over."""
    return st.builds(SkippedCheckpoint, checkpoint_id=u64(), reason=texts(), findings=_list(findings()))


def healed_rows() -> SearchStrategy[HealedRows]:
    """Rows that were read from the past."""
    return st.builds(HealedRows, checkpoint_id=u64(), table=names(), version=u64(), reason=texts())


@st.composite
def recovery_reports(draw: st.DrawFn) -> RecoveryReport:
    """Reports with and without a chosen checkpoint."""
    manifest = draw(st.none() | manifests())
    return RecoveryReport(
        pipeline=draw(pipeline_names()),
        chosen_id=draw(st.none() | u64()) if manifest is None else manifest.checkpoint_id,
        manifest=manifest,
        skipped=draw(_list(skipped_checkpoints())),
        examined=draw(u64()),
        healed=draw(_list(healed_rows())),
        notes=draw(_list(texts())),
        generation=draw(st.none() | u64()),
        started_at_ms=draw(u64()),
        elapsed_ms=draw(u64()),
        dry_run=draw(st.booleans()),
        stored=draw(st.booleans()),
    )


def _map(values: SearchStrategy[T]) -> SearchStrategy[dict[str, T]]:
    return st.dictionaries(names(), values, max_size=FEW)


def _list(values: SearchStrategy[T]) -> SearchStrategy[tuple[T, ...]]:
    return st.lists(values, max_size=FEW).map(tuple)
