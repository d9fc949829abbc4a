"""Which operators cannot be replayed to the same result, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from laminar_delta.model.wire import WireModel


class OperatorDescriptor(Protocol):
    """What the check asks of an operator; users supply it."""

    @property
    def id(self) -> str:
        """The operator's name."""
        ...

    @property
    def uses_wall_clock(self) -> bool:
        """Whether a result depends on when it is computed."""
        ...

    @property
    def uses_random(self) -> bool:
        """Whether a result depends on chance."""
        ...

    @property
    def has_external_side_effects(self) -> bool:
        """Whether computing it changes something outside."""
        ...


class NondeterminismKind(str, Enum):
    """Why an operator cannot be replayed."""

    WALL_CLOCK_USAGE = "WallClockUsage"
    RANDOM_USAGE = "RandomUsage"
    EXTERNAL_SIDE_EFFECT = "ExternalSideEffect"

    def __str__(self) -> str:
        return self.value


SUGGESTIONS = {
    NondeterminismKind.WALL_CLOCK_USAGE: "Use event-time instead of processing-time",
    NondeterminismKind.RANDOM_USAGE: "Use deterministic seed or remove randomness",
    NondeterminismKind.EXTERNAL_SIDE_EFFECT: "Move side effects to a sink connector",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDeterminismWarning(WireModel):
    """One reason why one operator cannot be replayed."""

    kind: NondeterminismKind
    operator_id: str
    suggestion: str


class DeterminismValidator:
    """Looks at what operators say of themselves. Stateless."""

    @staticmethod
    def validate(operator: OperatorDescriptor) -> tuple[OperatorDeterminismWarning, ...]:
        """The warnings of one operator: clock, chance, side effects, in this order."""
        answers = {
            NondeterminismKind.WALL_CLOCK_USAGE: operator.uses_wall_clock,
            NondeterminismKind.RANDOM_USAGE: operator.uses_random,
            NondeterminismKind.EXTERNAL_SIDE_EFFECT: operator.has_external_side_effects,
        }
        return tuple(
            OperatorDeterminismWarning(kind=kind, operator_id=operator.id, suggestion=SUGGESTIONS[kind])
            for kind, holds in answers.items()
            if holds
        )

    @staticmethod
    def validate_all(operators: Iterable[OperatorDescriptor]) -> tuple[OperatorDeterminismWarning, ...]:
        """The warnings of all operators, in the order of the operators."""
        return tuple(warning for operator in operators for warning in DeterminismValidator.validate(operator))
