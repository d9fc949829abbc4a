"""The reading side of a store: checkpoints that are visible, as they were saved, for a runtime of one vnode count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import load_manifest
from laminar_delta.catalog.committed import is_intact
from laminar_delta.catalog.healing import find_row, healed
from laminar_delta.catalog.sidecar import read_sidecar
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.catalog.validation import examine
from laminar_delta.engine.predicate import col
from laminar_delta.errors import InvalidInputError
from laminar_delta.model import check_ordering_number
from laminar_delta.stores.wording import in_laminardb_words, not_found

if TYPE_CHECKING:
    from laminar_delta.catalog.pipeline import Pipeline
    from laminar_delta.catalog.reading import Row
    from laminar_delta.model import CheckpointManifest, ValidationResult


@dataclass(frozen=True, slots=True)
class Loader:
    """Reads the checkpoints of a pipeline. Holds nothing."""

    pipeline: Pipeline
    vnode_count: int
    rescale: bool

    def visible(self, checkpoint_id: int) -> Row | None:
        """The manifest row of a checkpoint that can be loaded; None when it is not there, or retired.

        Raises:
            CorruptionError: It was committed, and its row is nowhere to be had.
            InvalidInputError: It was saved with another vnode count.
        """
        number = check_ordering_number("checkpoint_id", checkpoint_id)
        if number in self._retired():
            return None
        row = self.committed(number)
        if row is not None:
            self._check_vnodes(row)
        return row

    def committed(self, checkpoint_id: int) -> Row | None:
        """The manifest row of a checkpoint, retired or not."""
        return find_row(self.pipeline.reading, self.pipeline.name, checkpoint_id)

    def manifest(self, row: Row) -> CheckpointManifest:
        """The manifest of a row. Raises `CorruptionError` when it is not what was saved, and no earlier version is."""
        return healed(self.pipeline.reading, row, lambda reading: load_manifest(reading, row))

    def sidecar(self, row: Row) -> bytes | None:
        """The sidecar of a row's checkpoint, verified; None when it was saved without. Raises like `manifest`."""
        return healed(self.pipeline.reading, row, lambda reading: read_sidecar(reading, row))

    def validate(self, checkpoint_id: int) -> ValidationResult:
        """Everything wrong with a checkpoint as it is now, in LaminarDB's words."""
        number = check_ordering_number("checkpoint_id", checkpoint_id)
        where = col("pipeline").eq(self.pipeline.name) & col("checkpoint_id").eq(number)
        rows = [] if number in self._retired() else self.pipeline.reading.rows(MANIFESTS, where=where)
        if not rows:
            return not_found(number)
        row = next((row for row in rows if is_intact(row)), rows[0])
        return in_laminardb_words(number, examine(self.pipeline.reading, row), row["vnode_count"], self.vnode_count)

    def _retired(self) -> frozenset[int]:
        return standing(self.pipeline.reading, self.pipeline.name).retired

    def _check_vnodes(self, row: Row) -> None:
        """State divided for another number of vnodes is not restorable as it is. A checkpoint that does not tell passes."""
        found = row["vnode_count"]
        if self.rescale or found in (None, self.vnode_count):
            return
        raise InvalidInputError(
            f"checkpoint {row['checkpoint_id']} of pipeline {self.pipeline.name!r} was saved with {found} vnodes, "
            f"this store has {self.vnode_count}",
            expected=self.vnode_count,
            found=found,
            next_step=f"Open the store with vnode_count={found}, or with rescale=True and divide the state anew.",
        )
