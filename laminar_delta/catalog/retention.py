"""Retention: which checkpoints may go, as a plan that can be looked at before anything happens.

The plan is a pure function of what there is and what was decided. It never names the newest checkpoint, the newest that all its
sinks have, those above it that they may have although what they told is lost, a pinned one, what undoing the newest goes back
to, or one that a checkpoint that stays needs: the parent of its deltas, or the one whose state it uses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.deliveries import DOUBT
from laminar_delta.catalog.needs import followed
from laminar_delta.errors import InvalidInputError
from laminar_delta.model.display import Displayed
from laminar_delta.model.ids import check_ordering_number

if TYPE_CHECKING:
    from laminar_delta.catalog.checkpoints import CheckpointHead
    from laminar_delta.catalog.standing import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """What to keep. A checkpoint stays when any of these says so."""

    keep_last: int | None = None
    """The newest so many."""
    keep_for_ms: int | None = None
    """Those younger than this."""

    def __post_init__(self) -> None:
        if self.keep_last is None and self.keep_for_ms is None:
            raise InvalidInputError("a retention policy needs a rule", expected="keep_last or keep_for_ms", found=None)
        for name, value in (("keep_last", self.keep_last), ("keep_for_ms", self.keep_for_ms)):
            if value is not None:
                check_ordering_number(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A checkpoint that stays, and why."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan(Displayed):
    """What a policy comes to."""

    retire: tuple[int, ...]
    """Ascending."""
    keep: tuple[Kept, ...]

    def without(self, restored: Collection[int]) -> RetentionPlan:
        """What is left of the plan when some that it retired had to be restored."""
        back = [Kept(checkpoint_id=number, reason="needed meanwhile") for number in self.retire if number in restored]
        return RetentionPlan(
            retire=tuple(number for number in self.retire if number not in restored),
            keep=tuple(sorted([*self.keep, *back], key=lambda kept: kept.checkpoint_id)),
        )


def plan(
    heads: Sequence[CheckpointHead],
    seen: Standing,
    policy: RetentionPolicy,
    *,
    now_ms: int,
    resumable: int | None = None,
    doubtful: Collection[int] = (),
    used: Mapping[int, str] | None = None,
) -> RetentionPlan:
    """Decides on the visible checkpoints of one pipeline.

    Args:
        heads: What there is.
        seen: What was decided so far.
        policy: What to keep.
        now_ms: What time it is.
        resumable: The newest that all sinks have: while a sink is down, older than all that the policy keeps. That it is whole
            is not known here; maintenance makes sure before it removes anything.
        doubtful: Those above it that sinks may have, what they told being lost: to be kept until that is known.
        used: Those that other pipelines use, and which do.
    """
    visible = sorted((head for head in heads if head.checkpoint_id not in seen.retired), key=lambda h: h.checkpoint_id)
    reasons: dict[int, str] = {}
    for place, head in enumerate(reversed(visible)):
        if place == 0:
            reasons[head.checkpoint_id] = "the newest"
        elif head.checkpoint_id in seen.pinned:
            reasons[head.checkpoint_id] = "pinned"
        elif head.checkpoint_id == resumable:
            reasons[head.checkpoint_id] = "the newest that all sinks have"
        elif head.checkpoint_id in doubtful:
            reasons[head.checkpoint_id] = DOUBT
        elif policy.keep_last is not None and place < policy.keep_last:
            reasons[head.checkpoint_id] = f"one of the last {policy.keep_last}"
        elif policy.keep_for_ms is not None and now_ms - head.timestamp_ms < policy.keep_for_ms:
            reasons[head.checkpoint_id] = f"younger than {_span(policy.keep_for_ms)}"
        elif used and head.checkpoint_id in used:
            reasons[head.checkpoint_id] = used[head.checkpoint_id]
    if visible:
        newest = visible[-1]
        undone = [head.checkpoint_id for head in visible if head.checkpoint_id == newest.derived_over_id]
        reasons = {**dict.fromkeys(undone, f"needed to undo {newest.checkpoint_id}"), **reasons}
    reasons = followed(visible, reasons)
    return RetentionPlan(
        retire=tuple(head.checkpoint_id for head in visible if head.checkpoint_id not in reasons),
        keep=tuple(
            Kept(checkpoint_id=head.checkpoint_id, reason=reasons[head.checkpoint_id])
            for head in visible
            if head.checkpoint_id in reasons
        ),
    )


def _span(ms: int) -> str:
    """A span of time for people, in the largest unit that tells it exactly."""
    for unit, length in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        count, rest = divmod(ms, length)
        if count and not rest:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{ms} ms"
