"""An import that is killed, and one of ten thousand checkpoints."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.model import OperatorCheckpoint
from laminar_delta.stores import DeltaCheckpointStore
from tests.interop.support import fingerprint, manifest, write_files

ROOT = Path(__file__).parents[2]


def _tree(root: Path, count: int) -> None:
    numbers = range(1, count + 1)
    states = {number: bytes([number % 251]) * (number % 90) for number in numbers if number % 3 == 0}
    external = {number: OperatorCheckpoint.external_at(0, len(states[number])) for number in states}
    write_files(
        root,
        {n: manifest(n, operator_states={"op": external[n]}) if n in external else manifest(n) for n in numbers},
        states,
    )


def _import_until(tree: Path, catalog: Path, kill_at: int) -> None:
    """Runs an import in another process and kills it when it says that it is so far."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.interop.importer", str(tree), str(catalog), "p"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if int(line.split()[0]) >= kill_at:
                process.send_signal(signal.SIGKILL)
                break
    assert process.wait() == -signal.SIGKILL


def _assert_all_there(tree: Path, catalog: ld.Catalog, count: int) -> None:
    pipeline = catalog.pipeline("p")
    assert [head.checkpoint_id for head in pipeline.list()] == list(range(1, count + 1))
    store = DeltaCheckpointStore(catalog, "p")
    for number in [1, 2, 3, *random.Random(count).sample(range(1, count + 1), 10), count]:
        path = tree / "checkpoints" / f"checkpoint_{number:06}" / "state.bin"
        assert store.load_state_data(number) == (path.read_bytes() if path.exists() else None)
        assert pipeline.validate(number).valid


@pytest.mark.processes
def test_a_killed_import_continues_where_it_was(tmp_path: Path) -> None:
    count = 300
    _tree(tmp_path / "tree", count)
    before = fingerprint(tmp_path / "tree")
    _import_until(tmp_path / "tree", tmp_path / "catalog", 90)
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    first = [head.checkpoint_id for head in catalog.pipeline("p").list()]
    # A beginning, of whole batches: what was on its way when the process died is not there.
    assert first == list(range(1, len(first) + 1))
    assert len(first) in (80, 100)
    _import_until(tmp_path / "tree", tmp_path / "catalog", 210)
    report = interop.import_checkpoints(tmp_path / "tree", catalog, "p")
    assert report.already_there >= 200
    assert report.already_there + len(report.imported) == count
    assert report.skipped == ()
    _assert_all_there(tmp_path / "tree", catalog, count)
    # Nothing twice, although batches were staged twice; what the dead left behind is known to be theirs.
    assert catalog.engine.read("manifests").num_rows == count
    catalog.pipeline("p").remove_orphans()
    assert catalog.engine.read("source_offsets").num_rows == count
    assert fingerprint(tmp_path / "tree") == before


@pytest.mark.soak
def test_ten_thousand_checkpoints_come_in_in_one_run(tmp_path: Path) -> None:
    count = 10_000
    _tree(tmp_path / "tree", count)
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    told: list[int] = []
    report = interop.import_checkpoints(tmp_path / "tree", catalog, "p", progress=lambda done, total: told.append(done))
    assert report.imported == tuple(range(1, count + 1))
    assert told == list(range(count + 1))
    # Few commits, however many checkpoints: the cost of one does not grow with how many there are.
    assert catalog.engine.version("manifests") < count // 100
    _assert_all_there(tmp_path / "tree", catalog, count)
    assert interop.import_checkpoints(tmp_path / "tree", catalog, "p").already_there == count
