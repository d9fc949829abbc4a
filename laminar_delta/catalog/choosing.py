"""The words that recovery chooses by. Apart from the walk itself, so that who only speaks of it need not load it."""

from __future__ import annotations

from enum import Enum

from laminar_delta.errors import InvalidInputError
from laminar_delta.model.ids import check_u64

UNDELIVERED_REASON = "undelivered: "
ABANDONED_REASON = "abandoned: "
"""How the reasons begin for which a checkpoint that may be whole is passed over; any other names damage."""


class FailedSinks(str, Enum):
    """What to make of a checkpoint with a sink that failed to deliver it."""

    SKIP = "skip"
    """Fall back to one that was delivered: nothing is lost, the sink gets the data again."""
    ACCEPT = "accept"
    """Use it: the sink's data of that epoch is given up, or will be delivered by other means."""


def failed_sinks_of(value: FailedSinks | str) -> FailedSinks:
    """The choice a caller made, also by its text. Anything else is `InvalidInputError`: it must not pass for either."""
    try:
        return FailedSinks(value)
    except ValueError as error:
        raise InvalidInputError(
            f"failed_sinks is {value!r}",
            expected=[choice.value for choice in FailedSinks],
            found=value,
            next_step="Give FailedSinks.SKIP or FailedSinks.ACCEPT.",
        ) from error


def names_damage(reason: str) -> bool:
    """Whether a checkpoint was passed over because it is damaged, by the reason a report gives."""
    return not reason.startswith((UNDELIVERED_REASON, ABANDONED_REASON))


def check_hash(pipeline_hash: int | None) -> None:
    """Raises `InvalidInputError` for what cannot be the hash of a pipeline."""
    if pipeline_hash is not None:
        check_u64("pipeline_hash", pipeline_hash)
