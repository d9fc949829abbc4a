"""The manifest of a checkpoint and the entries it is made of, field for field what LaminarDB 0.18 writes.

Declaration order is output order, and a field's default is what a reader fills in when the field is missing: manifests
of releases before and after 0.18 lack some of these fields and have others, and are read all the same.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from laminar_delta.errors import CorruptionError
from laminar_delta.model.base64text import decode_base64, encode_base64
from laminar_delta.model.display import Displayed
from laminar_delta.model.rules import I64, U32, U64
from laminar_delta.model.status import SinkCommitStatus
from laminar_delta.model.wire import WireModel

MANIFEST_VERSION = 1
"""The only version ever written; fields came and went without changing it."""

INLINE_THRESHOLD_BYTES = 1_048_576
"""State up to this size, inclusive, travels inside the manifest unless the caller says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorCheckpoint(WireModel):
    """Where a connector was. Offsets are text, also the numeric ones: only the connector knows what they mean."""

    offsets: Mapping[str, str]
    epoch: U64
    metadata: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def new(cls, epoch: int) -> "ConnectorCheckpoint":
        """A checkpoint without any offset yet."""
        return cls(offsets={}, epoch=epoch)

    @classmethod
    def with_offsets(cls, epoch: int, offsets: Mapping[str, str]) -> "ConnectorCheckpoint":
        """A checkpoint without metadata."""
        return cls(offsets=offsets, epoch=epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCheckpoint(WireModel):
    """An operator's state: inside the manifest as base64, or a range of the sidecar `state.bin`."""

    state_b64: str | None = None
    """The state itself. Empty text is empty state; None is no state here."""
    external: bool = False
    external_offset: U64 = 0
    external_length: U64 = 0

    @classmethod
    def inline(cls, data: bytes) -> "OperatorCheckpoint":
        """State inside the manifest."""
        return cls(state_b64=encode_base64(data))

    @classmethod
    def external_at(cls, offset: int, length: int) -> "OperatorCheckpoint":
        """State in the sidecar, at `offset` for `length` bytes."""
        return cls(external=True, external_offset=offset, external_length=length)

    @classmethod
    def from_bytes(cls, data: bytes, threshold: int, current_offset: int) -> tuple["OperatorCheckpoint", bytes | None]:
        """Place state by its size.

        Args:
            data: The state.
            threshold: The largest size, in bytes, that stays inline.
            current_offset: Where in the sidecar the next bytes would go.

        Returns:
            The entry, and the bytes to append to the sidecar (None if the state is inline).
        """
        if len(data) <= threshold:
            return cls.inline(data), None
        return cls.external_at(current_offset, len(data)), data

    def decode_inline(self) -> bytes | None:
        """The inline state, or None if there is none *or it is damaged*.

        Kept because callers of LaminarDB expect it. An operator restored through it can start empty without anyone
        noticing; `try_decode_inline` tells the two apart.
        """
        try:
            return self.try_decode_inline()
        except CorruptionError:
            return None

    def try_decode_inline(self) -> bytes | None:
        """The inline state, or None if there is none. Text that is there is decoded, whatever `external` says.

        Raises:
            CorruptionError: The text is not canonical base64 (LDB-4004).
        """
        if self.state_b64 is None:
            return None
        try:
            return decode_base64(self.state_b64)
        except ValueError as error:
            raise CorruptionError(
                f"[LDB-4004] inline operator state is not base64: {error}",
                expected="padded, canonical base64",
                found=str(error),
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightRecord(WireModel):
    """Events that were between operators when an unaligned checkpoint passed. Order is the order of the list."""

    input_id: U64
    """Index of the input channel."""
    data_b64: str
    """The events' bytes. Nothing on the way decodes them, so text that is not base64 passes through unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest(Displayed, WireModel):
    """One checkpoint: where the pipeline was, what it knew and what it had delivered."""

    pretty_json: ClassVar[bool] = True

    version: U32
    checkpoint_id: U64
    """Unique in its pipeline, and growing."""
    epoch: U64
    timestamp_ms: U64
    """When it was created, in milliseconds since 1970."""
    source_offsets: Mapping[str, ConnectorCheckpoint] = field(default_factory=dict)
    """By source name."""
    sink_epochs: Mapping[str, U64] = field(default_factory=dict)
    """By name of an exactly-once sink: the epoch being committed."""
    sink_commit_statuses: Mapping[str, SinkCommitStatus] = field(default_factory=dict)
    """By name of an exactly-once sink."""
    table_offsets: Mapping[str, ConnectorCheckpoint] = field(default_factory=dict)
    """By name of a reference table. LaminarDB 0.18 also puts source offsets here, so an importer looks in both maps."""
    operator_states: Mapping[str, OperatorCheckpoint] = field(default_factory=dict)
    """By operator name."""
    table_store_checkpoint_path: str | None = None
    wal_position: U64 = 0
    per_core_wal_positions: tuple[U64, ...] = ()
    """Index is the core; replay starts after these positions."""
    watermark: I64 | None = None
    source_watermarks: Mapping[str, I64] = field(default_factory=dict)
    source_names: tuple[str, ...] = ()
    """Names of all registered sources, to notice a changed topology."""
    sink_names: tuple[str, ...] = ()
    """Names of all registered sinks."""
    pipeline_hash: U64 | None = None
    """Of the pipeline's configuration. Uses the full range, so it does not fit a BIGINT."""
    inflight_data: Mapping[str, tuple[InFlightRecord, ...]] = field(default_factory=dict)
    """By operator name; empty for aligned checkpoints."""
    size_bytes: U64 = 0
    is_incremental: bool = False
    parent_id: U64 | None = None
    state_checksum: str | None = None

    @classmethod
    def new(cls, checkpoint_id: int, epoch: int, timestamp_ms: int | None = None) -> "CheckpointManifest":
        """An empty manifest of the current version, created now unless `timestamp_ms` says when."""
        return cls(
            version=MANIFEST_VERSION,
            checkpoint_id=checkpoint_id,
            epoch=epoch,
            timestamp_ms=now_ms() if timestamp_ms is None else timestamp_ms,
        )


def now_ms() -> int:
    """Milliseconds since 1970; 0 on a machine whose clock stands before it."""
    return max(0, time.time_ns() // 1_000_000)
