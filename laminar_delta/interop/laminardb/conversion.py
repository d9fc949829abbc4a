"""Manifests of the distributed layout as manifests of ours, and back.

Ours has no place for partitions of an operator, so the original document is kept, as inline state of a reserved name:
with its SHA-256 digests and sizes, in one spelling whatever form its paths had. The state itself is stored like any
other, by operator and partition; delta files are under a name of their own, so that nobody takes changes for a whole
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from laminar_delta.model import (
    CheckpointManifest,
    CheckpointManifestV2,
    ConnectorCheckpoint,
    OperatorCheckpoint,
    SourceOffsetEntry,
)

if TYPE_CHECKING:
    from laminar_delta.model import PartitionSnapshotEntry

DELTA_PREFIX = "__delta__/"
"""Before the name of an operator: its changes against the parent checkpoint, in its own format. Reserved."""
DOCUMENT = "__laminardb_v2__"
"""The operator name under which the original document is kept; reserved."""

_TYPE = "connector_type"
_EXTRAS = {"kafka": "group_id", "postgres_cdc": "slot_name"}
"""Per type the one entry that a V2 manifest keeps among the offsets, and ours in the metadata."""


def manifest_from_v2(v2: CheckpointManifestV2, digests: Mapping[tuple[str, int], str]) -> CheckpointManifest:
    """A manifest with the same content; its id is 0 until one is given.

    Args:
        v2: The document.
        digests: The SHA-256 of each file as found, by state name and partition: some documents state none.
    """
    states: dict[str, OperatorCheckpoint] = {}
    for operator, entry in v2.operators.items():
        for is_delta in (False, True):
            own = [partition for partition in entry.partitions if partition.is_delta == is_delta]
            if own:
                states[state_name(operator, is_delta=is_delta)] = OperatorCheckpoint.external_at(0, _bytes(own))
    states[DOCUMENT] = OperatorCheckpoint.inline(_spelled(v2, digests))
    return CheckpointManifest(
        version=v2.version,
        checkpoint_id=0,
        epoch=v2.epoch,
        timestamp_ms=v2.timestamp_ms,
        source_offsets={name: connector_from_v2(entry) for name, entry in v2.source_offsets.items()},
        operator_states=states,
        watermark=v2.watermark,
        source_names=tuple(sorted(v2.source_offsets)),
        size_bytes=v2.total_size_bytes,
        is_incremental=any(name.startswith(DELTA_PREFIX) for name in states),
    )


def connector_from_v2(entry: SourceOffsetEntry) -> ConnectorCheckpoint:
    """The same position as a V1 manifest spells it."""
    extra = _EXTRAS.get(entry.source_type)
    offsets, metadata = dict(entry.offsets), {_TYPE: entry.source_type}
    if extra in offsets:
        metadata[extra] = offsets.pop(extra)
    return ConnectorCheckpoint(offsets=offsets, epoch=entry.epoch, metadata=metadata)


def connector_to_v2(connector: ConnectorCheckpoint) -> SourceOffsetEntry:
    """The same position as a V2 manifest spells it; metadata beyond the type has no place there."""
    source_type = connector.metadata.get(_TYPE, "")
    extra = _EXTRAS.get(source_type)
    offsets = dict(connector.offsets)
    if extra is not None and extra in connector.metadata:
        offsets[extra] = connector.metadata[extra]
    return SourceOffsetEntry(source_type=source_type, offsets=offsets, epoch=connector.epoch)


def original_v2(manifest: CheckpointManifest) -> CheckpointManifestV2 | None:
    """The document a manifest was made from; None when it was made otherwise."""
    kept = manifest.operator_states.get(DOCUMENT)
    data = None if kept is None else kept.try_decode_inline()
    return None if data is None else CheckpointManifestV2.from_json(data)


def state_name(operator: str, *, is_delta: bool) -> str:
    """Under which operator name a file of an operator is stored."""
    return f"{DELTA_PREFIX}{operator}" if is_delta else operator


def _spelled(v2: CheckpointManifestV2, digests: Mapping[tuple[str, int], str]) -> bytes:
    """The document in one spelling: names sorted, paths as documented, every digest filled in."""

    def entry(operator: str, found: PartitionSnapshotEntry) -> PartitionSnapshotEntry:
        kind = "delta" if found.is_delta else "snap"
        digest = digests.get((state_name(operator, is_delta=found.is_delta), found.partition_id), found.sha256)
        return replace(found, path=f"operators/{operator}/partition-{found.partition_id}.{kind}", sha256=digest)

    operators = {
        name: replace(found, partitions=tuple(entry(name, partition) for partition in found.partitions))
        for name, found in sorted(v2.operators.items())
    }
    sources = {
        name: replace(found, offsets=dict(sorted(found.offsets.items())))
        for name, found in sorted(v2.source_offsets.items())
    }
    return replace(v2, operators=operators, source_offsets=sources).to_json(pretty=False)


def _bytes(partitions: list[PartitionSnapshotEntry]) -> int:
    return sum(partition.size_bytes for partition in partitions)
