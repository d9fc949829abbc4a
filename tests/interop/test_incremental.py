"""Directories of the incremental manager of LaminarDB 0.18."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.stores import DeltaCheckpointStore
from tests.interop.support import fingerprint, memory_catalog


@pytest.fixture
def catalog() -> ld.Catalog:
    return memory_catalog()


def _write(root: Path, number: int, state: bytes | None = None, **fields: Any) -> Path:
    """As the manager writes it; its field order, and hexadecimal names."""
    metadata = {
        "id": number,
        "epoch": number * 10,
        "timestamp": 1_773_000_000 + number,
        "wal_position": number * 100,
        "source_offsets": {},
        "watermark": None,
        "size_bytes": len(state or b""),
        "key_count": 0,
        "is_incremental": number > 1,
        "parent_id": number - 1 or None,
        "sst_files": [],
    }
    directory = root / f"checkpoint_{number:016x}"
    directory.mkdir(parents=True)
    (directory / "metadata.json").write_text(json.dumps({**metadata, **fields}, indent=2))
    if state is not None:
        (directory / "state.bin").write_bytes(state)
    return directory


def test_every_checkpoint_comes_in_with_its_state(tmp_path: Path, catalog: ld.Catalog) -> None:
    for number in (9, 10, 0x1A):
        offsets = {"orders": number, "users": 2**64 - 1}
        _write(tmp_path / "old", number, b"state" * number, source_offsets=offsets, watermark=-number, key_count=3)
    before = fingerprint(tmp_path / "old")
    seen = interop.inspect_source(tmp_path / "old")
    assert (seen.kind, seen.intact, seen.chosen) == ("laminardb-incremental", True, "26")
    report = interop.import_checkpoints(tmp_path / "old", catalog, "p")
    assert (report.imported, report.skipped) == ((9, 10, 26), ())
    found = catalog.pipeline("p").get(10)
    assert (found.epoch, found.timestamp_ms, found.wal_position, found.watermark) == (100, 1_773_000_010_000, 1000, -10)
    assert found.source_offsets["orders"].offsets == {"offset": "10"}
    assert found.source_offsets["users"].offsets == {"offset": str(2**64 - 1)}
    assert DeltaCheckpointStore(catalog, "p").load_state_data(10) == b"state" * 10
    kept = json.loads(catalog.pipeline("p").state(10).read("__laminardb_incremental__"))
    assert kept == json.loads((tmp_path / "old" / "checkpoint_000000000000000a" / "metadata.json").read_text())
    assert catalog.pipeline("p").recover(dry_run=True).chosen_id == 26
    again = interop.import_checkpoints(tmp_path / "old", catalog, "p")
    assert (again.already_there, again.imported, again.skipped) == (3, (), ())
    assert fingerprint(tmp_path / "old") == before
    # Out as LaminarDB's other store has it, and in again.
    interop.export_checkpoints(catalog, "p", tmp_path / "out")
    other = memory_catalog()
    interop.import_checkpoints(tmp_path / "out", other, "p")
    assert [other.pipeline("p").get(n) for n in (9, 10, 26)] == [catalog.pipeline("p").get(n) for n in (9, 10, 26)]
    assert DeltaCheckpointStore(other, "p").load_state_data(26) == b"state" * 26


def test_none_depends_on_one_that_the_manager_removed(tmp_path: Path, catalog: ld.Catalog) -> None:
    for number in (1, 2, 3):
        _write(tmp_path, number, b"%d" % number)
    shutil.rmtree(tmp_path / "checkpoint_0000000000000001")
    assert interop.import_checkpoints(tmp_path, catalog, "p").imported == (2, 3)
    # Nor is one kept here because a later one names it.
    assert catalog.pipeline("p").prune(RetentionPolicy(keep_last=1)).retire == (2,)
    assert DeltaCheckpointStore(catalog, "p").load_state_data(3) == b"3"


def test_what_a_crash_or_a_copy_left_is_skipped_by_name(tmp_path: Path, catalog: ld.Catalog) -> None:
    _write(tmp_path, 1, b"one")
    (_write(tmp_path, 2) / "metadata.json").unlink()
    (_write(tmp_path, 3, b"three") / "state.bin").write_bytes(b"thr")
    (_write(tmp_path, 4, b"four") / "state.bin").unlink()
    _write(tmp_path, 5).rename(tmp_path / "checkpoint_0000000000000006")
    (_write(tmp_path, 7) / "metadata.json").write_text('{"id": 7, "epoch"')
    _write(tmp_path, 8, parent_id=-1)
    _write(tmp_path, 9, timestamp=2**64 - 1)
    _write(tmp_path, 10).rename(tmp_path / "checkpoint_A")
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert report.imported == (1,)
    reasons = {one.name: one.reason for one in report.skipped}
    assert reasons["2"] == "metadata.json is not there: the checkpoint was never completed"
    assert reasons["3"] == "state.bin has 3 bytes, 5 were written"
    assert reasons["4"] == "state.bin is not there, 4 were written"
    assert reasons["6"].startswith("the document is of checkpoint 5, its name says 6: copied or renamed")
    assert "syntax error" in reasons["7"]
    assert ".parent_id: expected" in reasons["8"]
    assert "timestamp_ms" in reasons["9"]
    assert reasons["checkpoint_A"] == "LaminarDB does not look for a checkpoint under checkpoint_A"
    assert len(reasons) == 8


def test_no_state_and_no_epoch_are_said(tmp_path: Path, catalog: ld.Catalog) -> None:
    _write(tmp_path, 1, epoch=0)
    _write(tmp_path, 2, epoch=0)
    report = interop.import_checkpoints(tmp_path, catalog, "p")
    assert report.imported == (1, 2)
    assert report.notes == (
        "checkpoint 1 and 1 more, up to 2: it holds no state: LaminarDB wrote none, and replays its log from wal_position",
        "checkpoint 1 and 1 more, up to 2: LaminarDB was told of no epoch: its id is taken for one",
    )
    assert catalog.pipeline("p").get(2).epoch == 2
    assert catalog.pipeline("p").recover(dry_run=True).chosen_id == 2


def test_the_directory_above_will_do_and_names_alone_do_not_make_it_one(tmp_path: Path) -> None:
    _write(tmp_path / "data" / "checkpoints", 1, b"x")
    assert interop.inspect_source(tmp_path / "data").kind == "laminardb-incremental"
    # The file-system store reads such a name as a decimal number of its own; it has manifests, not metadata.
    other = tmp_path / "other" / "checkpoints" / "checkpoint_0000000000000001"
    other.mkdir(parents=True)
    (other / "manifest.json").write_text("{}")
    assert interop.inspect_source(tmp_path / "other").kind == "laminardb-files"
