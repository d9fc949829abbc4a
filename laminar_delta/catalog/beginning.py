"""Whether a pipeline may begin from the beginning: one rule, for whoever recovers in order to go on.

Nothing chosen is a beginning when there never was anything to choose, or nothing that all its sinks have. It is none when they
may have what looks undelivered, because what they told was taken out; nor when what there is cannot be used: damage may be gone
tomorrow (a volume that is not mounted, a restore under way), and what was abandoned for it would not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.choosing import names_damage
from laminar_delta.catalog.deliveries import DOUBT, Deliveries
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
        CorruptionError: Nothing was chosen, and some are damaged, delivered and retired, or may be delivered although nothing
            tells so any more. Nothing is abandoned then.
    """
    if report.chosen_id is not None:
        return
    damaged = {skipped.checkpoint_id for skipped in report.skipped if names_damage(skipped.reason)}
    delivered, maybe = _delivered(reading, report.pipeline)
    if damaged or delivered or maybe:
        why = [f"{skipped.checkpoint_id}: {skipped.reason}" for skipped in report.skipped] or ["all are retired"]
        again = "Restore or repair one"
        if maybe:
            why.append(f"of {', '.join(map(str, sorted(maybe)))}: {DOUBT}")
            again = "Record again what the sinks have (`writer.sink_committed`), or restore or repair one"
        raise CorruptionError(
            f"pipeline {report.pipeline!r} has checkpoints and none of them can be used: {'; '.join(why)}",
            expected=f"checkpoint {max(damaged | delivered | maybe)}",
            found=None,
            next_step=f"Nothing was given up. {again}; `start_over=True` begins anew, and delivers all again.",
            details={"delivered": sorted(delivered), "maybe_delivered": sorted(maybe), "damaged": sorted(damaged)},
        )


def delivered_ids(reading: Reading, pipeline: str) -> set[int]:
    """The checkpoints that all sinks have, or may have for all that is known; retired or not."""
    delivered, maybe = _delivered(reading, pipeline)
    return delivered | maybe


def _delivered(reading: Reading, pipeline: str) -> tuple[set[int], set[int]]:
    """Those that all sinks have, or whose row is lost; and those of which what the sinks told may be lost."""
    seen = standing(reading, pipeline)
    found = find_rows(reading, pipeline)
    deliveries = Deliveries(reading, pipeline)
    sure = {lost.checkpoint_id for lost in found.lost if lost.row is None}
    maybe: set[int] = set()
    for row in sorted(found.rows, key=lambda row: row["checkpoint_id"], reverse=True):
        if deliveries.is_delivered(row):
            sure.add(row["checkpoint_id"])
        elif deliveries.may_have_lost(row) or deliveries.is_untold(row):
            maybe.add(row["checkpoint_id"])
    gone = seen.removed | seen.abandoned
    return sure - gone, maybe - gone
