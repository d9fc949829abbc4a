"""The manifest of the distributed ("V2") layout: per-operator partitions in files of their own, ids that are UUIDs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from laminar_delta.errors import CorruptionError, ErrorCode
from laminar_delta.model.ids import CheckpointId
from laminar_delta.model.manifest import now_ms
from laminar_delta.model.rules import I64, U32, U64
from laminar_delta.model.wire import WireModel

MANIFEST_V2_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshotEntry(WireModel):
    """One file of an operator's state."""

    partition_id: U32
    is_delta: bool
    """Changes against the parent checkpoint, rather than the whole partition."""
    path: str
    """As the writer recorded it; 0.18 records the full path including the prefix."""
    size_bytes: U64
    sha256: str | None = None
    """Lower-case hex of the file's SHA-256; None if the writer recorded none."""

    def verify(self, data: bytes) -> None:
        """Check a file's content against the recorded digest, as text: upper-case hex is a mismatch, as it is for LaminarDB.

        Raises:
            CorruptionError: They differ.
        """
        import hashlib  # loads OpenSSL, which reading a manifest does not need

        digest = hashlib.sha256(data).hexdigest()
        if self.sha256 is not None and self.sha256 != digest:
            raise CorruptionError(
                f"{self.path} is not what was written: expected SHA-256 {self.sha256}, found {digest}",
                code=ErrorCode.CHECKSUM_MISMATCH,
                expected=self.sha256,
                found=digest,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSnapshotEntry(WireModel):
    """The files of one operator."""

    partitions: tuple[PartitionSnapshotEntry, ...]
    total_bytes: U64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffsetEntry(WireModel):
    """Where a source was; `positions` gives it a type."""

    source_type: str
    offsets: Mapping[str, str]
    epoch: U64


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifestV2(WireModel):
    """One checkpoint of the distributed layout."""

    pretty_json: ClassVar[bool] = True

    version: U32
    checkpoint_id: CheckpointId
    epoch: U64
    timestamp_ms: U64
    """When it was created, in milliseconds since 1970."""
    operators: Mapping[str, OperatorSnapshotEntry] = field(default_factory=dict)
    source_offsets: Mapping[str, SourceOffsetEntry] = field(default_factory=dict)
    parent_id: CheckpointId | None = None
    """The checkpoint that deltas build on."""
    watermark: I64 | None = None
    total_size_bytes: U64 = 0

    @classmethod
    def new(cls, checkpoint_id: CheckpointId, epoch: int, timestamp_ms: int | None = None) -> "CheckpointManifestV2":
        """An empty manifest of the current version, created now unless `timestamp_ms` says when."""
        return cls(
            version=MANIFEST_V2_VERSION,
            checkpoint_id=checkpoint_id,
            epoch=epoch,
            timestamp_ms=now_ms() if timestamp_ms is None else timestamp_ms,
        )
