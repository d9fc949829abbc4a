"""State on a disk: which files a save writes, which row groups a read touches, and what damage to them comes to."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import laminar_delta as ld
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.state.progress import StateProgress
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.embedded.payloads import files_of, write_files
from laminar_delta.errors import CorruptionError, InvalidInputError, StorageError
from tests.support.catalogs import ready_made

MIB = 1 << 20
POLICY = StatePolicy(part_bytes=2 * MIB)
STATE = random.Random(11).randbytes(9 * MIB + 5)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "catalog"


@pytest.fixture
def catalog(place: Path, request: pytest.FixtureRequest) -> ld.Catalog:
    return ready_made("embedded", place, request)()


def _save(writer: Writer, state: bytes) -> int:
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": str(cp.id)})
        cp.state("agg", (state[at : at + 300_000] for at in range(0, len(state), 300_000)))
    return cp.id


def _files(place: Path, table: str = OPERATOR_SNAPSHOTS.name) -> set[Path]:
    return set((place / table).rglob("*.parquet")) - set((place / table / "_delta_log").rglob("*.parquet"))


def test_a_large_state_is_many_files_and_one_commit(catalog: ld.Catalog, place: Path) -> None:
    with catalog.writer("orders", state_policy=POLICY) as writer:
        number = _save(writer, STATE)
    assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 1
    # The rest too is written while others are: the commit itself writes nothing.
    assert len(_files(place)) == 5
    # Small ones: of a long chain each window of a load needs a chunk or two of every checkpoint.
    files = [pq.read_metadata(path) for path in _files(place)]
    groups = [file.row_group(number).total_byte_size for file in files for number in range(file.num_row_groups)]
    assert max(groups) < 2 * MIB
    orders = catalog.pipeline("orders")
    assert orders.state(number).read("agg") == STATE
    assert orders.validate(number).valid


def test_what_is_written_ahead_is_flushed_once_and_named_before_the_log_says_so(
    catalog: ld.Catalog, place: Path
) -> None:
    """Which paths reach the real fsync, in order: no file twice, and the commit behind all of them."""
    flushed: list[Path] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    writer = catalog.writer("orders", state_policy=POLICY)
    with patch("os.fsync", note):
        _save(writer, STATE)
    table = place / OPERATOR_SNAPSHOTS.name
    entry = table / "_delta_log" / f"{1:020}.json"
    files = _files(place)
    assert files
    assert sorted(path for path in flushed if path in files) == sorted(files)
    after = [flushed.index(table), flushed.index(entry), flushed.index(entry.parent, flushed.index(entry))]
    assert after == sorted(after)
    assert max(flushed.index(path) for path in files) < after[0]
    # The manifest, which makes all of it count, comes last.
    assert after[-1] < flushed.index(place / MANIFESTS.name)


def _save_small(writer: Writer, count: int, tell: Callable[[StateProgress], None] | None = None) -> int:
    with writer.checkpoint(tell=tell) as cp:
        for number in range(count):
            cp.state("agg", random.Random(number).randbytes(20_000), partition=number, inline=False)
    return cp.id


def test_small_state_is_grouped_into_few_files_and_one_commit(catalog: ld.Catalog, place: Path) -> None:
    with catalog.writer("orders", state_policy=POLICY) as writer:
        number = _save_small(writer, 500)
    assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 1
    assert len(_files(place)) == 6
    orders = catalog.pipeline("orders")
    assert orders.state(number).read("agg", 7) == random.Random(7).randbytes(20_000)
    assert orders.validate(number).valid


def test_cancelling_among_small_states_leaves_neither_rows_nor_files(catalog: ld.Catalog, place: Path) -> None:
    seen: set[Path] = set()

    def cancel(progress: StateProgress) -> None:
        seen.update(_files(place))
        if seen and progress.partition > 400:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _save_small(catalog.writer("orders", state_policy=POLICY), 500, cancel)
    assert seen
    assert _files(place) == set()
    assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 0


def test_cancelling_leaves_neither_rows_nor_files(catalog: ld.Catalog, place: Path) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    _save(writer, STATE)
    before, version = _files(place), catalog.engine.version(OPERATOR_SNAPSHOTS.name)
    seen: set[Path] = set()

    def cancel(progress: StateProgress) -> None:
        seen.update(_files(place) - before)
        if seen and progress.done > 6 * MIB:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), writer.checkpoint(tell=cancel) as cp:
        cp.state("other", random.Random(12).randbytes(9 * MIB))
    assert seen
    assert _files(place) == before
    assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == version
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1]
    _save(writer, STATE + b"more")
    assert catalog.pipeline("orders").state(writer.next_id - 1).read("agg") == STATE + b"more"


def _row_groups(path: Path) -> list[tuple[set[tuple[str, int]], int]]:
    """For each row group whose states are in it, and where the header of its data's first page is."""
    file = pq.ParquetFile(path)
    found = []
    for number in range(file.num_row_groups):
        rows = file.read_row_group(number, columns=["operator", "partition"]).to_pylist()
        group = file.metadata.row_group(number)
        data = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "data")
        found.append(({(row["operator"], row["partition"]) for row in rows}, int(data.data_page_offset)))
    return found


def test_reading_one_partition_touches_only_its_row_groups(catalog: ld.Catalog, place: Path) -> None:
    """All others are made unreadable."""
    states = {
        (operator, partition): random.Random(f"{operator}{partition}").randbytes(9 * MIB)
        for operator in ("agg", "join")
        for partition in (0, 1)
    }
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        for (operator, partition), state in states.items():
            cp.state(operator, state, partition=partition)
    wanted = ("agg", 1)
    broken: set[tuple[str, int]] = set()
    kept = 0
    for path in _files(place):
        whole = bytearray(path.read_bytes())
        for present, header in _row_groups(path):
            if wanted in present:
                kept += 1
                continue
            broken |= present
            whole[header : header + 8] = b"\xff" * 8
        path.write_bytes(whole)
    assert kept
    assert broken == states.keys() - {wanted}
    saved = catalog.pipeline("orders").state(cp.id, heal=False)
    assert saved.read(*wanted) == states[wanted]
    for operator, partition in sorted(broken):
        with pytest.raises((CorruptionError, StorageError)):
            saved.read(operator, partition)


def test_partitions_can_be_read_side_by_side(catalog: ld.Catalog) -> None:
    states = {partition: random.Random(partition).randbytes(MIB + partition) for partition in range(6)}
    with catalog.writer("orders", state_policy=POLICY) as writer, writer.checkpoint() as cp:
        for partition, content in states.items():
            cp.state("agg", content, partition=partition)
    state = catalog.pipeline("orders").state(cp.id)
    with ThreadPoolExecutor(4) as threads:
        assert dict(zip(states, threads.map(lambda number: state.read("agg", number), states), strict=True)) == states


def _rot(place: Path) -> None:
    for path in _files(place):
        whole = bytearray(path.read_bytes())
        for _, header in _row_groups(path):
            # Not in what holds layouts only.
            if header + MIB // 4 < len(whole):
                whole[header + MIB // 4] ^= 1
        path.write_bytes(whole)


def test_upon_a_base_that_rotted_nothing_is_handed_out_and_the_next_state_is_whole(
    catalog: ld.Catalog, place: Path
) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    _save(writer, STATE)
    changed = STATE[:100] + b"changed" + STATE[107:]
    assert _save(writer, changed) == 2
    assert len(_files(place, OPERATOR_DELTAS.name)) == 1
    _rot(place)
    orders = catalog.pipeline("orders")
    with pytest.raises(CorruptionError, match="operator 'agg' partition 0 in checkpoint 1"):
        orders.state(2).read("agg")
    resumed = catalog.writer("orders", state_policy=POLICY)
    with pytest.raises(CorruptionError, match="none of them can be used"):
        resumed.recover()
    report = resumed.recover(start_over=True)
    assert report.chosen_id is None
    assert [skipped.checkpoint_id for skipped in report.skipped] == [2, 1]
    number = _save(resumed, changed)
    assert orders.state(number).read("agg") == changed
    assert orders.state(number).layouts()[0].needs == {number}


def test_a_recovery_that_finds_nothing_to_use_leaves_nothing_to_store_upon(catalog: ld.Catalog, place: Path) -> None:
    """Also for the writer that runs, and knows the blocks of its base by name."""
    ld.register_apply("append", lambda state, delta: state + delta)
    writer = catalog.writer("orders", state_policy=POLICY)
    for turn in range(3):
        _save(writer, STATE + bytes(turn))
    _rot(place)
    with pytest.raises(CorruptionError, match="none of them can be used"):
        writer.recover()
    with pytest.raises(InvalidInputError, match="no state of operator 'agg'"), writer.checkpoint() as cp:
        cp.state_delta("agg", b"+", apply="append")
    number = _save(writer, STATE + b"more")
    orders = catalog.pipeline("orders")
    assert orders.state(number).layouts()[0].needs == {number}
    assert orders.validate(number).valid
    assert writer.recover().chosen_id == number


def test_a_source_that_fails_leaves_no_file(catalog: ld.Catalog, place: Path) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)

    def pieces() -> Iterator[bytes]:
        yield from (STATE[at : at + MIB] for at in range(0, 8 * MIB, MIB))
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"), writer.checkpoint() as cp:
        cp.state("agg", pieces())
    assert _files(place) == set()
    assert catalog.pipeline("orders").list() == []


def test_what_is_written_ahead_is_in_the_append_or_nowhere(catalog: ld.Catalog, place: Path) -> None:
    engine, table = catalog.engine, OPERATOR_SNAPSHOTS.name

    def rows(chunk: int, size: int = 100_000) -> pa.Table:
        row = {"pipeline": "p", "checkpoint_id": 1, "attempt_id": "a", "chunk": chunk, "data": bytes(size)}
        return pa.Table.from_pylist([row], schema=OPERATOR_SNAPSHOTS.schema)

    first, second = engine.write_ahead(table, rows(0)), engine.write_ahead(table, rows(1))
    assert first is not None
    assert second is not None
    # Too small for a file of its own, and an engine that cannot.
    assert engine.write_ahead(table, rows(3, size=10)) is None
    assert ld.open_catalog("ahead", engine="memory", store={}).engine.write_ahead(table, rows(0)) is None
    assert engine.read(table).num_rows == 0
    engine.drop_ahead(table, second)
    made = engine.append(table, rows(2, size=10), ahead=[first], key={"attempt_id": "a"})
    assert made.version == 1
    assert {row["chunk"] for row in engine.read(table, columns=["chunk"]).to_pylist()} == {0, 2}
    assert len(_files(place)) == 2


def test_half_a_file_is_not_left(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    rows = pa.table({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})  # which Parquet cannot hold
    with pytest.raises(pa.ArrowNotImplementedError):
        write_files(files_of(str(tmp_path), "table"), rows, [], [])
    assert list((tmp_path / "table").iterdir()) == []


KILLED = """
import os, signal, sys, time
from pathlib import Path
import laminar_delta as ld

place = Path(sys.argv[1])
table = place / "operator_snapshots"
before = set(table.glob("*.parquet"))

def pieces():
    for _ in range(20):
        yield os.urandom(1 << 20)
    deadline = time.monotonic() + 60
    while set(table.glob("*.parquet")) == before and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
    yield b""

writer = ld.open_catalog(str(place)).writer("orders", state_policy=ld.StatePolicy(part_bytes=2 << 20))
with writer.checkpoint() as cp:
    cp.state("agg", pieces())
"""


def test_a_save_killed_between_its_files_leaves_files_in_no_version(catalog: ld.Catalog, place: Path) -> None:
    _save(catalog.writer("orders", state_policy=POLICY), STATE)
    before = _files(place)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place)], capture_output=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert _files(place) > before
    orders = catalog.pipeline("orders")
    assert [head.checkpoint_id for head in orders.list()] == [1]
    writer = catalog.writer("orders", state_policy=POLICY)
    assert writer.recover().chosen_id == 1
    number = _save(writer, STATE + b"more")
    assert orders.state(number).read("agg") == STATE + b"more"
    catalog.engine.vacuum(OPERATOR_SNAPSHOTS.name, older_than_hours=0, dry_run=False)
    assert _files(place) == before
    assert orders.state(number).read("agg") == STATE + b"more"
