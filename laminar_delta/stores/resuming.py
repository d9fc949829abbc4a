"""Where a store goes on: recovered from before it held the generation, made sure of once it does.

LaminarDB recovers first and writes later, so its walk is made in front of the fence, where the writer before may still commit.
What it found is compared behind the fence, at the store's first write. What it passed over is recorded as abandoned when the
store saves its first checkpoint, and not before: until then a sink may turn out to have delivered after all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import heads
from laminar_delta.catalog.recovery import Walk
from laminar_delta.errors import ConflictError

if TYPE_CHECKING:
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.model import RecoveryReport


class StartingPoint:
    """What a store recovered before it saved anything. A recovery after that is a question only."""

    def __init__(self) -> None:
        self._report: RecoveryReport | None = None
        self._confirmed = False
        self._left = False

    def remember(self, report: RecoveryReport, *, behind_fence: bool) -> None:
        """Takes note of a recovery. Behind the fence nobody can overtake it."""
        self._report, self._confirmed = report, behind_fence

    def confirm(self, writer: Writer) -> None:
        """Looks again behind the fence. Raises `ConflictError` when the writer before changed what there is to go on from."""
        if self._report is None or self._confirmed:
            return
        chosen, now = self._report.chosen_id, _choice(writer, self._report)
        if now != chosen:
            raise ConflictError(
                f"pipeline {writer.pipeline!r}: recovery chose {_named(chosen)}, but the writer before this store went on, "
                f"and now it chooses {_named(now)}",
                expected=chosen,
                found=now,
                next_step="Call recover_latest_validated again and go on from what it chooses.",
            )
        self._confirmed = True

    def leave(self, writer: Writer) -> None:
        """Goes on from here: what recovery passes over stays behind, whatever a late status says of it."""
        if self._report is not None and self._report.skipped and not self._left:
            writer.recover()
        self._left = True


def _choice(writer: Writer, report: RecoveryReport) -> int | None:
    """What recovery chooses behind the fence."""
    found = heads(writer.reading, writer.pipeline)
    if found and found[-1].checkpoint_id == report.chosen_id:
        # It is the newest still, so there is no need to examine it once more.
        return report.chosen_id
    return Walk(writer.reading, writer.pipeline).run(generation=writer.generation, dry_run=True).chosen_id


def _named(checkpoint_id: int | None) -> str:
    return "no checkpoint" if checkpoint_id is None else f"checkpoint {checkpoint_id}"
