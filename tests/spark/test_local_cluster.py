"""State from executors that are processes of their own: `local-cluster`, or two hosts, in a process with its own master.

They run with `make soak`: starting a master, two workers and two executors takes most of a minute on a small machine.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.two_hosts import two_hosts

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).parents[2]
DRIVER_GROWTH_MIB = 128


def _run(place: Path, *arguments: str, job: str = "benchmarks.cluster_job") -> dict[str, Any]:
    """What the job says of itself."""
    ran = subprocess.run(
        [sys.executable, "-m", job, str(place), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return said


def test_state_of_executors_is_the_same_for_everybody_and_not_in_the_driver(tmp_path: Path) -> None:
    said = _run(tmp_path, "256")
    assert said["mebibytes"] == 256
    assert len(said["made"]) == 16
    assert said["by_embedded"] == said["made"]
    assert said["by_executors"] == said["made"]
    for grown in said["driver_grown"].values():
        assert grown["python"] + grown["jvm"] < DRIVER_GROWTH_MIB


def test_files_of_a_lost_executor_are_never_referenced(tmp_path: Path) -> None:
    said = _run(tmp_path, "0", "lose")
    assert said["lost"]
    assert set(said["committed"]) < set(said["files"])
    assert said["valid"]
    assert said["by_embedded"] == said["made"]
    assert said["by_executors"] == said["made"]


def test_files_of_a_task_that_lost_to_its_speculative_twin_are_never_referenced(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as master:
        said = _run(tmp_path, master, job="tests.support.speculative_job")
    assert said["signs"] == ["began-0", "began-1", "ended-1", "hangs"]
    assert said["lost"]
    assert set(said["lost"]) <= set(said["files"]) - set(said["committed"])
    assert set(said["committed"]) < set(said["files"])
    assert said["valid"]
    assert said["by_embedded"] == said["made"]
    assert said["by_executors"] == said["made"]
