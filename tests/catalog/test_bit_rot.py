"""Rotten disks: one byte flipped in any file of a catalog. What is used is what was saved, or the file is named."""

import random
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import laminar_delta as ld
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.engine.predicate import MAX_BIGINT
from laminar_delta.errors import LaminarDeltaError, StorageError

SAVED = 10
"""The last of them is a rewind."""
STORED_UPON, BACK_TO = 7, 8
"""The state of the second is stored upon that of the first, and the last one goes back to it: it needs the rows of both."""
LARGE = random.Random(8).randbytes(200_000)
NEEDED = ("manifests", "source_offsets", "sink_statuses", "operator_snapshots", "operator_deltas", "retention")
"""The tables without which recovery does not do: of all others it does not even need the log."""
COMPACTED = ("manifests", "source_offsets", "sink_statuses", "operator_snapshots", "retention")
REWRITTEN = ("manifests", "source_offsets", "sink_statuses")
"""Where compaction wrote what was there once more: state has a file for each checkpoint, and stays as it is."""
COLUMNS_AND_PROPERTIES = f"{0:020}.json"
"""Where a changed letter can leave everything well-formed, in names and settings that nothing else repeats."""


@dataclass(frozen=True)
class Outcome:
    """What recovery came to."""

    used: int | None
    """The checkpoint used, proved to be the one saved."""
    told: str
    """Everything it said about others, or the words of the refusal."""
    kept_out: str | None = None
    """What keeps a writer out."""


def _saved_as(number: int) -> int:
    return BACK_TO if number == SAVED else number


def _state(number: int) -> bytes:
    number = _saved_as(number)
    return bytes([number]) + LARGE if number in (STORED_UPON, BACK_TO) else bytes([number]) * 40_000


def _make(place: Path, *, compacted: bool) -> None:
    catalog = ld.open_catalog(str(place))
    with catalog.writer("orders", owner="job") as writer:
        for _ in range(SAVED - 1):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": str(cp.id)})
                cp.state("agg", _state(cp.id))
                cp.sink("warehouse")
            writer.sink_committed(cp.id, "warehouse")
        writer.rewind(BACK_TO, reason="wrong")
    assert [tuple(head.state_needs) for head in catalog.pipeline("orders").list()][BACK_TO - 1] == (STORED_UPON,)
    catalog.pipeline("orders").pin(1, reason="audit")
    catalog.pipeline("orders").prune(RetentionPolicy(keep_last=SAVED - 2))
    if compacted:
        for table in COMPACTED:
            catalog.engine.optimize(table)
            catalog.engine.log_checkpoint(table)


def _recover(place: Path, *, saved: int = SAVED, writing: bool = True) -> Outcome:
    """Recovers. With `writing` a writer has to get in as well: without one nothing goes on."""
    try:
        orders = ld.open_catalog(str(place)).pipeline("orders")
        report = orders.recover(dry_run=True)
    except LaminarDeltaError as error:
        return Outcome(None, str(error))
    assert not report.is_fresh_start
    told = "; ".join([*(skipped.reason for skipped in report.skipped), *report.notes])
    if report.manifest is None:
        return Outcome(None, told)
    number = report.manifest.checkpoint_id
    assert report.manifest.source_offsets["kafka"].offsets == {"0": str(_saved_as(number))}
    if "agg" in report.manifest.operator_states:
        assert orders.state(number).read("agg") == _state(number)
    return Outcome(number, told, _kept_out(place, saved) if writing else None)


def _kept_out(place: Path, saved: int) -> str | None:
    """What keeps a writer out, in a copy: takeovers write. None when it came in, and gives out no id again."""
    copy = place.with_name("copy")
    shutil.copytree(place, copy)
    try:
        assert ld.open_catalog(str(copy)).writer("orders").next_id > saved
    except LaminarDeltaError as error:
        return str(error)
    finally:
        shutil.rmtree(copy)
    return None


def _state_of_newest(place: Path) -> set[Path]:
    """The files of the state that the newest checkpoint uses."""
    wanted = [("checkpoint_id", "in", [str(STORED_UPON), str(BACK_TO)])]
    tables = [DeltaTable(str(place / name)) for name in ("operator_snapshots", "operator_deltas")]
    return {Path(uri) for table in tables for uri in table.file_uris(partition_filters=wanted)}


def _holds_newest(path: Path) -> bool:
    """Whether a data file has rows of the newest checkpoint itself."""
    if "_delta_log" in path.parts or path.suffix != ".parquet":
        return False
    file = pq.ParquetFile(path)
    if "checkpoint_id" not in file.schema_arrow.names:
        return False
    return SAVED in file.read(columns=["checkpoint_id"]).column(0).to_pylist()


def _is_covered(path: Path) -> bool:
    """Whether a log checkpoint says what a log entry says."""
    checkpoints = [int(found.name[:20]) for found in path.parent.glob("*.checkpoint.parquet")]
    return path.suffix == ".json" and int(path.stem) < max(checkpoints, default=0)


@pytest.mark.parametrize("compacted", [False, True], ids=["fresh", "compacted"])
@pytest.mark.parametrize("places", [2, pytest.param(12, marks=pytest.mark.soak)])
def test_a_flipped_byte_anywhere_never_gives_a_wrong_checkpoint(tmp_path: Path, compacted: bool, places: int) -> None:
    place = tmp_path / "catalog"
    _make(place, compacted=compacted)
    state = _state_of_newest(place)
    assert len(state) == 2
    chance = random.Random(7)
    files = sorted(path for path in place.rglob("*") if path.is_file() and not path.name.startswith("."))
    used = 0
    for path in files:
        whole = path.read_bytes()
        holds_newest = path in state or _holds_newest(path)
        for nth, position in enumerate([len(whole) // 2, *(chance.randrange(len(whole)) for _ in range(places - 1))]):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            outcome = _recover(place, writing=nth == 0)
            used += outcome.used is not None
            table, where = path.relative_to(place).parts[0], f"{path} at {position}: {outcome}"
            is_log = "_delta_log" in path.parts
            if not is_log and (compacted or table != "retention"):
                # One data file holds at most one checkpoint, or all of them in a version that was compacted later.
                # Only what holds some of the newest costs it, and only where no compaction left it in another file as well.
                only_copy = holds_newest and not (compacted and table in REWRITTEN)
                assert outcome.used == SAVED or (outcome.used and only_copy), where
                # Positions have no other copy; who the writers were is known without the file.
                assert outcome.kept_out is None or table == "source_checkpoints", where
            if is_log and (table not in NEEDED or _is_covered(path)):
                assert outcome.used == SAVED, where
            for said in (outcome.told if outcome.used != SAVED else None, outcome.kept_out):
                if said is not None:
                    known_by_table = path.name == COLUMNS_AND_PROPERTIES or path.suffixes[-2:] == [
                        ".checkpoint",
                        ".parquet",
                    ]
                    assert path.name in said or (known_by_table and table in said), where
        path.write_bytes(whole)
    assert _recover(place).used == SAVED
    assert used > len(files)


@pytest.mark.parametrize("table", ["manifests", "source_offsets", "operator_snapshots", "sink_statuses"])
def test_a_missing_data_file_is_survived(tmp_path: Path, table: str) -> None:
    place = tmp_path / "catalog"
    _make(place, compacted=False)
    for path in sorted((place / table).rglob("*.parquet")):
        if "_delta_log" in path.parts:
            continue
        whole = path.read_bytes()
        path.unlink()
        assert _recover(place).used
        path.write_bytes(whole)


def test_an_id_whose_only_trace_cannot_be_read_is_not_given_out_again(tmp_path: Path) -> None:
    place = tmp_path / "catalog"
    catalog = ld.open_catalog(str(place))
    writer = catalog.writer("orders")
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
    before = set((place / "source_offsets").glob("*.parquet"))
    with writer.attempting(17) as attempt:
        writer.stage(attempt, replace(cp.manifest(), checkpoint_id=17))
    (burned,) = set((place / "source_offsets").glob("*.parquet")) - before
    burned.unlink()
    assert catalog.writer("orders").next_id == 18


@pytest.mark.parametrize(
    ("table", "name"), [("manifests", b"content_digest"), ("source_offsets", b"watermark"), ("retention", b"decision")]
)
def test_a_column_renamed_in_the_log_is_damage_of_that_table(tmp_path: Path, table: str, name: bytes) -> None:
    place = tmp_path / "catalog"
    with ld.open_catalog(str(place)).writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"}, watermark=7)
    first = place / table / "_delta_log" / f"{0:020}.json"
    whole = first.read_bytes()
    assert name in whole
    first.write_bytes(whole.replace(name, name[:-1] + b"~"))
    assert table in _recover(place, saved=1).told
    first.write_bytes(whole)
    assert _recover(place, saved=1).used == 1


def test_a_partition_renamed_in_an_entry_is_damage_of_that_entry(tmp_path: Path) -> None:
    place = tmp_path / "catalog"
    with ld.open_catalog(str(place)).writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
        cp.state("agg", _state(1))
    entry = place / "operator_snapshots" / "_delta_log" / f"{1:020}.json"
    whole = entry.read_bytes()
    renamed = re.sub(rb'("partitionValues":\{[^}]*)checkpoint_id', rb"\1checkpoinv_id", whole)
    assert renamed != whole
    entry.write_bytes(renamed)
    assert str(entry) in _recover(place, saved=1).told
    entry.write_bytes(whole)
    assert _recover(place, saved=1).used == 1


def test_damage_of_what_the_state_of_a_rewind_is_stored_upon_is_named(tmp_path: Path) -> None:
    place = tmp_path / "catalog"
    _make(place, compacted=False)
    for path in _state_of_newest(place):
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        outcome = _recover(place, writing=False)
        assert outcome.used == SAVED - 1
        assert path.name in outcome.told
        path.write_bytes(whole)


def test_manifests_that_are_gone_altogether_are_an_error_and_no_fresh_start(tmp_path: Path) -> None:
    place = tmp_path / "catalog"
    _make(place, compacted=False)
    orders = ld.open_catalog(str(place)).pipeline("orders")
    for path in (place / "manifests").glob("*.parquet"):
        path.unlink()
    report = orders.recover(dry_run=True)
    assert report.chosen_id is None
    assert not report.is_fresh_start
    assert len(report.skipped) == SAVED - 1
    shutil.rmtree(place / "manifests")
    with pytest.raises(LaminarDeltaError):
        orders.recover(dry_run=True)
    with pytest.raises(StorageError, match="was written to"):
        ld.open_catalog(str(place))
    assert not (place / "manifests").exists()


def test_manifests_are_read_around_damage_up_to_the_largest_id(tmp_path: Path) -> None:
    place = tmp_path / "catalog"
    with ld.open_catalog(str(place)).writer("orders") as writer:
        for number in (1, MAX_BIGINT - 1, MAX_BIGINT):
            writer.save(ld.CheckpointManifest(version=1, checkpoint_id=number, epoch=1, timestamp_ms=1))
            newest = max((place / "manifests").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(b"rotten")
    orders = ld.open_catalog(str(place)).pipeline("orders")
    report = orders.recover(dry_run=True)
    assert report.chosen_id == MAX_BIGINT - 1
    assert newest.name in report.skipped[0].reason
    with ld.open_catalog(str(place)).writer("orders") as writer:
        assert writer.recover().chosen_id == MAX_BIGINT - 1
