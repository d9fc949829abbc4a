"""The metadata of a checkpoint by the incremental manager of LaminarDB 0.18."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from laminar_delta.model.rules import I64, U64
from laminar_delta.model.wire import WireModel


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalMetadata(WireModel):
    """What `metadata.json` says; every field is written, and only the two optional ones may be missing."""

    pretty_json: ClassVar[bool] = True

    id: U64
    epoch: U64
    """0 where nobody told the manager of an epoch."""
    timestamp: U64
    """In seconds since 1970."""
    wal_position: U64
    source_offsets: Mapping[str, U64]
    watermark: I64 | None = None
    size_bytes: U64
    """Of the state file; 0 also where there is none."""
    key_count: U64
    is_incremental: bool
    parent_id: U64 | None = None
    """The checkpoint before. The state does not depend on it: what is saved is whole."""
    sst_files: tuple[str, ...]
