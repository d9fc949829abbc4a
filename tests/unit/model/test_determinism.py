import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laminar_delta.model import DeterminismValidator, OperatorDeterminismWarning

VECTOR: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "golden" / "vectors" / "determinism.json").read_text("utf-8")
)


@dataclass(frozen=True)
class Operator:
    id: str
    uses_wall_clock: bool
    uses_random: bool
    has_external_side_effects: bool


def test_warnings_come_per_operator_in_a_fixed_order() -> None:
    operators = []
    for text in VECTOR["operators"]:
        name, traits = text.split(":")
        operators.append(Operator(name, "clock" in traits, "random" in traits, "side" in traits))
    warnings = DeterminismValidator.validate_all(operators)
    assert [[str(each.kind), each.operator_id, each.suggestion] for each in warnings] == VECTOR["warnings"]
    assert DeterminismValidator.validate(operators[0]) == ()
    assert all(OperatorDeterminismWarning.from_json(each.to_json()) == each for each in warnings)
