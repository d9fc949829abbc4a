"""Batch jobs started again and again by spark-submit: each run one checkpoint, also when one before was killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_delta.catalog.pipeline import Pipeline
from tests.support import batch_job
from tests.support.configurations import CONF
from tests.support.named import location, metastore, open_kept

pytestmark = [pytest.mark.spark, pytest.mark.processes]


def _submit(home: Path, by_name: bool, *arguments: str) -> int:
    """As people submit: with what `conf/cluster` says."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        **(metastore(home) if by_name else {}),
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT": str(Path(sys.executable).parent / "spark-submit"),
    }
    command = [
        str(CONF / "cluster" / "submit"),
        "--master",
        "local[2]",
        *options,
        batch_job.__file__,
        str(home),
        location(home, by_name=by_name),
        *arguments,
    ]
    with (home / "submit.log").open("ab") as log:
        return subprocess.run(command, check=False, env=env, stdout=log, stderr=log).returncode


def _add_day(home: Path, day: int, amounts: dict[str, int]) -> None:
    (home / "orders").mkdir(exist_ok=True)
    lines = [json.dumps({"day": day, "customer": name, "amount": amount}) for name, amount in amounts.items()]
    (home / "orders" / f"{day}.json").write_text("\n".join(lines))


def _totals(pipeline: Pipeline, checkpoint_id: int) -> dict[str, int]:
    state = pipeline.state(checkpoint_id)
    rows = [row for part in state.partitions()["totals"] for row in json.loads(state.read("totals", part))]
    return {row["customer"]: row["total"] for row in rows}


@pytest.mark.parametrize(
    "by_name", [pytest.param(False, id="by path"), pytest.param(True, id="by name", marks=pytest.mark.soak)]
)
def test_a_job_that_was_killed_is_run_again_and_counts_nothing_twice(
    tmp_path: Path, by_name: bool, request: pytest.FixtureRequest
) -> None:
    _add_day(tmp_path, 1, {"ada": 10, "bob": 20})
    assert _submit(tmp_path, by_name) == 0, (tmp_path / "submit.log").read_text()[-3000:]
    _add_day(tmp_path, 2, {"bob": 1, "cleo": 5})
    assert _submit(tmp_path, by_name, "die") != 0
    pipeline = open_kept(tmp_path, by_name=by_name, request=request).pipeline("daily-totals")
    (first,) = pipeline.list()
    assert _totals(pipeline, first.checkpoint_id) == {"ada": 10, "bob": 20}
    assert _submit(tmp_path, by_name) == 0, (tmp_path / "submit.log").read_text()[-3000:]
    newest = pipeline.latest()
    assert newest is not None
    assert newest.source_offsets["orders"].offsets == {"day": "2"}
    assert _totals(pipeline, newest.checkpoint_id) == {"ada": 10, "bob": 21, "cleo": 5}
    assert len(pipeline.list()) == 2
