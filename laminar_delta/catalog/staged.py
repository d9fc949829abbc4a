"""What goes into a commit and what comes out of it, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.rows import SaveContext, manifest_table

if TYPE_CHECKING:
    from laminar_delta.catalog.attempt import Attempt, Part
    from laminar_delta.catalog.state.staging import StagedState
    from laminar_delta.engine.request import Fence
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The answer to a save."""

    checkpoint_id: int
    version: int | None
    """The version of `manifests` that holds it; None when it was committed under another attempt before."""
    replayed: bool = False
    """It was there already, with the same content."""

    @property
    def is_own(self) -> bool:
        """Whether this attempt is the one that was committed: then what it staged is the checkpoint's."""
        return self.version is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What is ready to be committed: a manifest, and the parts it accepts."""

    manifest: CheckpointManifest
    parts: tuple[Part, ...]
    state: StagedState | None = None

    @property
    def needs(self) -> tuple[int, ...]:
        """The checkpoints before that store some of its state."""
        return () if self.state is None else self.state.needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """A checkpoint about to exist: its manifest row and the fence to commit it under."""

    attempt: Attempt
    row: pa.Table
    fence: Fence


def sealed(rows: Iterable[tuple[CheckpointManifest, SaveContext]]) -> pa.Table:
    """Manifest rows, each with the digest of its content."""
    table = manifest_table(rows)
    digests = [row_digest(row, without=["content_digest"]) for row in table.to_pylist()]
    return table.set_column(
        table.column_names.index("content_digest"), "content_digest", pa.array(digests, pa.string())
    )
