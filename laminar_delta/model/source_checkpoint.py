"""The position of one source, as Drasi's checkpoint sessions keep it."""

from dataclasses import dataclass
from typing import Annotated

from laminar_delta.model.rules import U64, Base64
from laminar_delta.model.wire import WireModel

MAX_POSITION_BYTES = 65_536
"""The largest position that is kept, inclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCheckpoint(WireModel):
    """How far a query has processed a source, and where the source can resume."""

    sequence: U64
    """Of the last processed event. May go backwards: the store keeps what it is told."""
    position: Annotated[bytes, Base64(MAX_POSITION_BYTES)] | None = None
    """What the source needs to resume, opaque to everyone else. No bytes at all are a position too; None is no position."""
