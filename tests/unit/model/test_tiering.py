import json
from pathlib import Path
from typing import Any

import pytest

from laminar_delta.model import StorageClass, Tier, TieringPolicy

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "golden" / "vectors" / "tiering.json").read_text("utf-8")
)


@pytest.mark.parametrize("case", VECTORS["from_config"], ids=lambda case: case["config"] or "empty")
def test_storage_class_from_config(case: dict[str, Any]) -> None:
    found = StorageClass.from_config(case["config"])
    assert (None if found is None else str(found)) == case["class"]


@pytest.mark.parametrize("case", VECTORS["policies"], ids=lambda case: "-".join(case["args"]))
def test_policy(case: dict[str, Any]) -> None:
    policy = TieringPolicy.from_config(*case["args"])
    assert {str(tier): str(policy.storage_class(tier)) for tier in Tier} == {
        str(tier): case[str(tier)] for tier in Tier
    }
    assert policy.has_cold_tier == case["has_cold_tier"]
