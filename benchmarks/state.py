"""Operator state: throughput and memory of large saves and loads, bytes stored for small changes, the price of a chain.

Baselines are measured in the same run: plain files of the same LZ4 blocks, written and flushed by Python.
"""

import gc
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import lz4.block
from rich.console import Console
from rich.table import Table

import laminar_delta as ld
from laminar_delta.catalog.state.policy import DEFAULT_POLICY
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.catalog.writer import Writer

MIB = 1 << 20
BLOCK = DEFAULT_POLICY.block_bytes
LARGE = int(os.environ.get("BENCH_STATE_MIB", "1024"))
CHURNED = 64 * MIB


def run() -> None:
    place = Path(tempfile.mkdtemp(prefix="laminar-bench-"))
    try:
        _throughput(place)
        _churn(place)
        _chain(place)
    finally:
        shutil.rmtree(place)


def _throughput(place: Path) -> None:
    catalog = ld.open_catalog(str(place / "large"))
    writer = catalog.writer("p")
    with writer.checkpoint() as warm:
        warm.state("warm", os.urandom(MIB))
    plain, plain_memory = _measured(lambda: _plain_write(place / "plain"))
    saved, save_memory = _measured(lambda: _save(writer, _pieces()))
    read, _ = _measured(lambda: _plain_read(place / "plain"))
    loaded, load_memory = _measured(lambda: _drain(catalog, writer.next_id - 1))
    table = Table(title=f"{LARGE} MiB of state, half of it compressible")
    for column in ("", "seconds", "MiB/s", "ratio to plain files", "memory grown MiB"):
        table.add_column(column, justify="left" if not column else "right")
    for name, seconds, base, memory in (
        ("write and flush LZ4 blocks", plain, plain, plain_memory),
        ("save", saved, plain, save_memory),
        ("read and decompress LZ4 blocks", read, read, 0),
        ("load, verified", loaded, read, load_memory),
    ):
        table.add_row(name, f"{seconds:.2f}", f"{LARGE / seconds:.0f}", f"{base / seconds:.2f}", str(memory))
    Console(width=110).print(table)


def _churn(place: Path) -> None:
    catalog = ld.open_catalog(str(place / "churn"))
    table = Table(title="64 MiB of state, 64 KiB blocks changed")
    for column in ("", "bytes stored", "of a full save"):
        table.add_column(column, justify="left" if not column else "right")
    chance = random.Random(1)
    state = bytearray(chance.randbytes(CHURNED))
    full = 0
    for name, part in (("full", 0.0), ("1 % changed", 0.01), ("10 % changed", 0.1)):
        writer = catalog.writer(name)
        _save_bytes(writer, state)
        before = _bytes_in(catalog)
        full = full or before
        if part:
            for block in chance.sample(range(CHURNED // BLOCK), int(CHURNED // BLOCK * part)):
                state[block * BLOCK : block * BLOCK + 8] = chance.randbytes(8)
            _save_bytes(writer, state)
        stored = _bytes_in(catalog) - before if part else full
        table.add_row(name, str(stored), f"{stored / full:.1%}")
    Console(width=110).print(table)


def _chain(place: Path) -> None:
    catalog = ld.open_catalog(str(place / "chain"))
    writer = catalog.writer("p")
    chance = random.Random(2)
    state = bytearray(chance.randbytes(CHURNED))
    longest, most = 0.0, 0.0
    _save_bytes(writer, state)
    fresh = min(_measured(lambda: _drain(catalog, 1))[0] for _ in range(3))
    for _ in range(100):
        for block in chance.sample(range(CHURNED // BLOCK), CHURNED // BLOCK // 50):
            state[block * BLOCK : block * BLOCK + 8] = chance.randbytes(8)
        number = _save_bytes(writer, state)
        layout = catalog.pipeline("p").state(number).layouts()[0]
        most = max(most, layout.stored_bytes / layout.length)
        if len(layout.stores) == DEFAULT_POLICY.longest_chain:
            longest = max(longest, min(_measured(partial(_drain, catalog, number))[0] for _ in range(3)))
    table = Table(title="64 MiB of state, 2 % changed, 100 saves")
    for column in ("", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("bytes to read at most, to the state's size", f"{most:.2f}")
    table.add_row(
        f"load at the longest chain ({DEFAULT_POLICY.longest_chain}), to a fresh snapshot", f"{longest / fresh:.2f}"
    )
    Console(width=110).print(table)


def _pieces() -> Iterator[bytes]:
    chance = random.Random(3)
    patterns = [chance.randbytes(MIB // 2) + bytes(MIB // 2) for _ in range(16)]
    for number in range(LARGE):
        piece = bytearray(patterns[number % 16])
        for block in range(MIB // BLOCK):
            piece[block * BLOCK : block * BLOCK + 8] = (number * 16 + block).to_bytes(8, "little")
        yield bytes(piece)


def _plain_write(path: Path) -> None:
    with path.open("wb") as file:
        for piece in _pieces():
            packed = lz4.block.compress(piece, store_size=False)
            file.write(len(packed).to_bytes(4, "little") + packed)
        file.flush()
        os.fsync(file.fileno())


def _plain_read(path: Path) -> None:
    with path.open("rb") as file:
        while size := file.read(4):
            lz4.block.decompress(file.read(int.from_bytes(size, "little")), uncompressed_size=MIB)


def _save(writer: Writer, state: Iterator[bytes]) -> None:
    with writer.checkpoint() as cp:
        cp.state("agg", state)


def _save_bytes(writer: Writer, state: bytearray) -> int:
    with writer.checkpoint() as cp:
        cp.state("agg", memoryview(state))
    return cp.id


def _drain(catalog: ld.Catalog, number: int) -> None:
    for _ in catalog.pipeline("p").state(number).pieces("agg"):
        pass


def _bytes_in(catalog: ld.Catalog) -> int:
    tables = [Path(catalog.engine.location) / name for name in (OPERATOR_SNAPSHOTS.name, OPERATOR_DELTAS.name)]
    return sum(path.stat().st_size for table in tables for path in table.rglob("*.parquet"))


def _measured(call: Callable[[], None]) -> tuple[float, int]:
    """Seconds, and by how many MiB the process grew at most."""
    gc.collect()
    base = peak = _resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    return seconds, (peak - base) // MIB


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
