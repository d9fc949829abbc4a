import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_delta.errors import InvalidInputError
from laminar_delta.model import CheckpointId, CheckpointPaths, object_store_path

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "golden" / "vectors" / "checkpoint_paths.json").read_text("utf-8")
)
ID = CheckpointId(VECTORS["id"])
ODD_NAME = 'a/b ü%~{x}*?#|<>"^`[]\\'


def all_paths(paths: CheckpointPaths) -> dict[str, str]:
    return {
        "latest_pointer": paths.latest_pointer(),
        "checkpoint_dir": paths.checkpoint_dir(ID),
        "manifest": paths.manifest(ID),
        "snapshot_window-agg_3": paths.snapshot(ID, "window-agg", 3),
        "delta_odd_name": paths.delta(ID, ODD_NAME, 2**32 - 1),
        "source_offset_src": paths.source_offset(ID, "src"),
    }


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["base_prefix"] or "empty")
def test_slashless_paths_are_the_real_ones(case: dict[str, Any]) -> None:
    found = all_paths(CheckpointPaths(case["base_prefix"], slashless=True))
    assert found.keys() == case.keys() - {"base_prefix"}
    for name, path in found.items():
        assert path == case[name]["string"]
        assert object_store_path(path) == case[name]["object_store_path"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["base_prefix"] or "empty")
def test_documented_paths_have_the_slash_after_the_id(case: dict[str, Any]) -> None:
    for name, path in all_paths(CheckpointPaths(case["base_prefix"])).items():
        real = case[name]["string"]
        assert path == (real if real.endswith("/") else real.replace(f"{ID}", f"{ID}/"))


def test_default_prefix() -> None:
    assert CheckpointPaths().latest_pointer() == VECTORS["default_prefix"]
    assert CheckpointPaths("a") == CheckpointPaths("a/")


@pytest.mark.parametrize("partition", [-1, 2**32, "3", None])
def test_partition_is_a_u32(partition: int) -> None:
    with pytest.raises(InvalidInputError, match="partition"):
        CheckpointPaths().snapshot(ID, "op", partition)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("a/./b/../c", "a/%2E/b/%2E%2E/c"),
        ("a/.../.b", "a/.../.b"),
        ("//", ""),
        ("", ""),
        ("ü/日", "%C3%BC/%E6%97%A5"),
        ("\x00\x1f\x7f\r\n", "%00%1F%7F%0D%0A"),
        ("a b:c=d&e+f,g;h@i!j$k'l(m)n", "a b:c=d&e+f,g;h@i!j$k'l(m)n"),
    ],
)
def test_object_store_path(text: str, normal: str) -> None:
    assert object_store_path(text) == normal


@settings(deadline=None)
@given(st.text())
def test_object_store_path_is_plain(text: str) -> None:
    path = object_store_path(text)
    assert path.isascii()
    assert not path.startswith("/")
    assert not path.endswith("/")
    assert "//" not in path
