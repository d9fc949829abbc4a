"""Whether a pipeline may begin from the beginning: one rule, for whoever recovers in order to go on.

Nothing chosen is a beginning when there never was anything to choose, or nothing that all its sinks have. It is none when what
there is cannot be used: damage may be gone tomorrow (a volume that is not mounted, a restore under way), and what was abandoned
for it would not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.choosing import names_damage
from laminar_delta.catalog.deliveries import Deliveries
from laminar_delta.catalog.healing import find_rows
from laminar_delta.catalog.standing import standing
from laminar_delta.errors import CorruptionError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading
    from laminar_delta.model.report import RecoveryReport


def check_beginning(reading: Reading, report: RecoveryReport) -> None:
    """Refuses to begin anew over checkpoints that cannot be used.

    What was abandoned does not count: somebody began anew over it before.

    Raises:
        CorruptionError: Nothing was chosen, and some are damaged, or delivered and retired. Nothing is abandoned then.
    """
    if report.chosen_id is not None:
        return
    damaged = {skipped.checkpoint_id for skipped in report.skipped if names_damage(skipped.reason)}
    delivered = delivered_ids(reading, report.pipeline)
    if damaged or delivered:
        raise CorruptionError(
            f"pipeline {report.pipeline!r} has checkpoints and none of them can be used: "
            + ("; ".join(f"{s.checkpoint_id}: {s.reason}" for s in report.skipped) or "all are retired"),
            expected=f"checkpoint {max(damaged | delivered)}",
            found=None,
            next_step="Nothing was given up. Restore or repair one; `start_over=True` begins anew, and delivers all again.",
            details={"delivered": sorted(delivered), "damaged": sorted(damaged)},
        )


def delivered_ids(reading: Reading, pipeline: str) -> set[int]:
    """The checkpoints that all sinks have, or may have; retired or not."""
    seen = standing(reading, pipeline)
    found = find_rows(reading, pipeline)
    deliveries = Deliveries(reading, pipeline)
    numbers = {row["checkpoint_id"] for row in found.rows if deliveries.is_delivered(row)}
    numbers |= {lost.checkpoint_id for lost in found.lost if lost.row is None}
    return numbers - seen.removed - seen.abandoned
