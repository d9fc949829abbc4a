"""The console script as a newcomer types it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import laminar_delta


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).parent / "laminar-delta"
    return subprocess.run(
        [str(script), *arguments], capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"}
    )


def test_the_demo_loses_and_repeats_nothing(tmp_path: Path) -> None:
    done = _run("demo", "--directory", str(tmp_path / "kept"), "--records", "30")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("killed with SIGKILL") == 2
    assert "No gap, no repeat: 30 numbers in, 30 lines out" in done.stdout
    for title in ("Checkpoints", "Recoveries", "Audit"):
        assert title in done.stdout
    assert (tmp_path / "kept" / "catalog" / "manifests" / "_delta_log").is_dir()


@pytest.mark.spark
@pytest.mark.processes
def test_the_streaming_demo_loses_and_repeats_nothing_and_goes_back(tmp_path: Path) -> None:
    done = _run("demo", "--spark", "--directory", str(tmp_path / "kept"), "--files", "6")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("killed with SIGKILL") == 2
    for told in (
        "through 2 kills: 1500 events in, 1500 rows out",
        "also after the rewind: 1500 events in, 1500 rows out",
    ):
        assert f"No gap, no repeat {told}" in done.stdout
    for told in ("replayed-written", "replayed-delivered", "offsets_history", "Audit", "rewound to checkpoint"):
        assert told in done.stdout


def test_the_race_tells_winner_and_loser() -> None:
    done = _run("race", "--rounds", "5")
    assert done.returncode == 0, done.stderr
    assert "The table holds exactly those 5 rows" in done.stdout
    assert "committed as version" in done.stdout


@pytest.mark.parametrize("command", ["demo", "race"])
def test_an_existing_directory_is_one_sentence_and_exit_code_2(tmp_path: Path, command: str) -> None:
    done = _run(command, "--directory", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.strip() == f"error: {tmp_path} exists already. Name another directory."


def test_help_and_version() -> None:
    assert _run("--version").stdout.strip() == f"laminar-delta {laminar_delta.__version__}"
    for arguments in (["--help"], ["demo", "--help"], ["race", "--help"]):
        done = _run(*arguments)
        assert done.returncode == 0
        assert "Usage" in done.stdout
    assert _run("nonsense").returncode == 2
    assert _run("demo", "--records", "1").returncode == 2
