"""Reading the state of a checkpoint: every byte verified, or `CorruptionError` naming what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import child_rows
from laminar_delta.catalog.chunks import joined
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import NotFoundError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The operator state of one checkpoint."""

    reading: Reading
    row: Row

    def partitions(self) -> dict[str, list[int]]:
        """The operators that have state, and their partitions, in order."""
        found: dict[str, set[int]] = {operator: {0} for operator in self._inline()}
        for chunk in child_rows(self.reading, self.row, OPERATOR_SNAPSHOTS.name, columns=["operator", "partition"]):
            found.setdefault(chunk["operator"], set()).add(chunk["partition"])
        return {operator: sorted(numbers) for operator, numbers in sorted(found.items())}

    def read(self, operator: str, partition: int = 0) -> bytes:
        """The state of one operator partition. Raises `NotFoundError` when the checkpoint has none."""
        inline = self._inline().get(operator)
        if inline is not None and partition == 0:
            return inline
        where = col("operator").eq(operator) & col("partition").eq(partition)
        chunks = child_rows(self.reading, self.row, OPERATOR_SNAPSHOTS.name, where=where)
        if not chunks:
            raise NotFoundError(
                f"checkpoint {self.row['checkpoint_id']} has no state of operator {operator!r} partition {partition}",
                expected=(operator, partition),
                found=self.partitions(),
                next_step="See `partitions` for what there is.",
            )
        return joined(chunks)

    def _inline(self) -> dict[str, bytes]:
        return {entry["operator"]: entry["state"] for entry in self.row["operators"] if entry["state"] is not None}
