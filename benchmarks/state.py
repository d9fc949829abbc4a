"""Operator state: throughput and memory of large saves and loads, bytes stored for small changes, the price of a chain.

Baselines are measured in the same run: plain files of the same LZ4 blocks, written and flushed by Python.
"""

import gc
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lz4.block
from rich.console import Console
from rich.table import Table

import laminar_delta as ld
from laminar_delta.catalog.state.policy import DEFAULT_POLICY, StatePolicy
from laminar_delta.catalog.state.streaming import WHOLE_BYTES
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.catalog.writer import Writer

MIB = 1 << 20
BLOCK = DEFAULT_POLICY.block_bytes
LARGE = int(os.environ.get("BENCH_STATE_MIB", "1024"))
CHURNED = 64 * MIB
WINDOWED = 192 * MIB
MANY = LARGE * MIB // 4
SMALL = 20_000
ROUNDS = 5
SMALL_SAVES = 15
WRITE, SAVE = "write and flush LZ4 blocks", "save"
READ, LOAD = "read and decompress LZ4 blocks", "load, verified"


@dataclass(frozen=True)
class Measured:
    seconds: float
    cpu: float
    grown: int
    """MiB, at most."""
    read: int
    """Bytes of files, by whatever library: from the kernel's own count."""


def run() -> None:
    place = Path(tempfile.mkdtemp(prefix="laminar-bench-"))
    try:
        _throughput(place)
        _compressible(place)
        _churn(place)
        _chain(place)
        _windowed_chain(place)
        _many(place)
        _inline(place)
    finally:
        shutil.rmtree(place)


def _throughput(place: Path) -> None:
    """Each measured several times in turn with its baseline, so that whatever else runs on the machine falls on both.

    What a round wrote is removed before the next, of both sides alike: files are written in half the time where the machine has
    had their memory before.
    """
    source = _make(place / "source")
    found: dict[str, list[Measured]] = {}
    for number in range(-1, ROUNDS):
        home = place / f"round {number}"
        plain = home / "plain"
        catalog = ld.open_catalog(str(home / "catalog"))
        calls: tuple[tuple[str, Callable[[], None]], ...] = (
            (WRITE, partial(_plain_write, source, plain)),
            (SAVE, partial(_save, catalog.writer("p"), source)),
            (READ, partial(_plain_read, plain)),
            (LOAD, partial(_drain, catalog, 1)),
        )
        # Who comes first has the fresher memory: in turn.
        for name, call in calls if number % 2 else (calls[1], calls[0], calls[3], calls[2]):
            measured = _measured(call)
            if number >= 0:
                found.setdefault(name, []).append(measured)
        shutil.rmtree(home)
    table = Table(title=f"{LARGE} MiB of state, half of it compressible, median of {ROUNDS} rounds")
    for column in ("", "seconds", "MiB/s", "ratio to plain files", "CPU seconds", "memory grown MiB"):
        table.add_column(column, justify="left" if not column else "right")
    for name, base in ((WRITE, WRITE), (SAVE, WRITE), (READ, READ), (LOAD, READ)):
        seconds = statistics.median(one.seconds for one in found[name])
        ratio = statistics.median(b.seconds / n.seconds for b, n in zip(found[base], found[name], strict=True))
        cpu = statistics.median(one.cpu for one in found[name])
        grown = max(one.grown for one in found[name])
        table.add_row(name, f"{seconds:.2f}", f"{LARGE / seconds:.0f}", f"{ratio:.2f}", f"{cpu:.2f}", str(grown))
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
    base = _save_bytes(writer, state)
    most = 0.0
    fresh: list[Measured] = []
    longest: list[Measured] = []
    fresh_recovered: list[Measured] = []
    longest_recovered: list[Measured] = []
    for _ in range(100):
        for block in chance.sample(range(CHURNED // BLOCK), CHURNED // BLOCK // 50):
            state[block * BLOCK : block * BLOCK + 8] = chance.randbytes(8)
        number = _save_bytes(writer, state)
        layout = catalog.pipeline("p").state(number).layouts()[0]
        most = max(most, layout.stored_bytes / layout.length)
        if len(layout.stores) == 1:
            base = number
        if len(layout.stores) == DEFAULT_POLICY.longest_chain:
            for _ in range(ROUNDS):
                # In turn with the snapshot this very chain began with.
                fresh.append(_measured(partial(_drain, catalog, base)))
                longest.append(_measured(partial(_drain, catalog, number)))
            # The same state in the same tables, as a snapshot.
            whole = f"whole {number}"
            _save_bytes(catalog.writer(whole), state)
            for _ in range(ROUNDS):
                fresh_recovered.append(_measured(partial(_recover, catalog, whole)))
                longest_recovered.append(_measured(partial(_recover, catalog, "p")))
    table = Table(title="64 MiB of state, 2 % changed, 100 saves")
    for column in ("", "ratio", "ratio of CPU time"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("raw bytes stored of it at most, to the state's size", f"{most:.2f}", "")
    table.add_row("bytes read at the longest chain, to the state's size", f"{_read(longest, CHURNED):.2f}", "")
    at = f"at the longest chain ({DEFAULT_POLICY.longest_chain}), to a fresh snapshot"
    for name, ours, theirs in (("load", longest, fresh), ("recover", longest_recovered, fresh_recovered)):
        table.add_row(f"{name} {at}", *_ratios(ours, theirs))
    Console(width=110).print(table)


def _read(found: list[Measured], length: int) -> float:
    return max(one.read for one in found) / length


def _ratios(ours: list[Measured], theirs: list[Measured]) -> tuple[str, str]:
    """Of seconds, and of CPU time."""
    ratio = statistics.median(one.seconds / other.seconds for one, other in zip(ours, theirs, strict=True))
    cpu = statistics.median(one.cpu / other.cpu for one, other in zip(ours, theirs, strict=True))
    return f"{ratio:.2f}", f"{cpu:.2f}"


def _windowed_chain(place: Path) -> None:
    """A state that does not fit into memory at once is read window by window, each of them from all of its chain."""
    catalog = ld.open_catalog(str(place / "windows"))
    writer = catalog.writer("p")
    chance = random.Random(6)
    state = bytearray(b"".join(chance.randbytes(MIB) for _ in range(WINDOWED // MIB)))
    base = number = _save_bytes(writer, state)
    for _ in range(DEFAULT_POLICY.longest_chain - 1):
        # As much in all as a chain may grow.
        for block in chance.sample(range(WINDOWED // BLOCK), int(WINDOWED // BLOCK * 0.047)):
            state[block * BLOCK : block * BLOCK + 8] = chance.randbytes(8)
        number = _save_bytes(writer, state)
    layout = catalog.pipeline("p").state(number).layouts()[0]
    assert len(layout.stores) == DEFAULT_POLICY.longest_chain
    assert layout.length > WHOLE_BYTES
    fresh: list[Measured] = []
    longest: list[Measured] = []
    for _ in range(ROUNDS):
        fresh.append(_measured(partial(_drain, catalog, base)))
        longest.append(_measured(partial(_drain, catalog, number)))
    table = Table(title=f"{WINDOWED // MIB} MiB of state, 4.7 % changed, the longest chain ({len(layout.stores)})")
    for column in ("", "bytes read to the state's size", "seconds", "CPU seconds", "memory grown MiB"):
        table.add_column(column, justify="left" if not column else "right")
    for name, found in (("load of a fresh snapshot", fresh), ("load of the longest chain", longest)):
        seconds, cpu = (statistics.median(getattr(one, of) for one in found) for of in ("seconds", "cpu"))
        grown = max(one.grown for one in found)
        table.add_row(name, f"{_read(found, WINDOWED):.2f}", f"{seconds:.2f}", f"{cpu:.2f}", str(grown))
    seconds_ratio, cpu_ratio = _ratios(longest, fresh)
    table.add_row("ratio", "", seconds_ratio, cpu_ratio, "")
    Console(width=110).print(table)


def _compressible(place: Path) -> None:
    """Memory is bounded by what is stored, so state that compresses well must not take more of it."""
    catalog = ld.open_catalog(str(place / "compressible"))
    chance = random.Random(7)
    patterns = [chance.randbytes(MIB // 16) + bytes(MIB - MIB // 16) for _ in range(16)]

    def pieces() -> Iterator[bytes]:
        for number in range(LARGE):
            yield number.to_bytes(8, "little") + patterns[number % 16][8:]

    def save() -> None:
        with catalog.writer("p") as writer, writer.checkpoint() as cp:
            cp.state("agg", pieces())

    table = Table(title=f"{LARGE} MiB of state, a sixteenth of it random")
    for column in ("", "seconds", "CPU seconds", "memory grown MiB"):
        table.add_column(column, justify="left" if not column else "right")
    for name, call in (("save", save), ("load, verified", partial(_drain, catalog, 1))):
        one = _measured(call)
        table.add_row(name, f"{one.seconds:.2f}", f"{one.cpu:.2f}", str(one.grown))
    Console(width=110).print(table)


def _many(place: Path) -> None:
    """States of many small partitions are written together: as few files as one large state, in as much memory."""
    catalog = ld.open_catalog(str(place / "many"))
    writer = catalog.writer("p")
    _save_bytes(writer, random.Random(4).randbytes(MIB))
    chance = random.Random(5)
    # At once it would be more bits than `randbytes` can count.
    data = memoryview(b"".join(chance.randbytes(MIB) for _ in range(MANY // MIB)))
    saved = _measured(partial(_save_many, writer, data))
    files, versions = len(_files_in(catalog, OPERATOR_SNAPSHOTS.name)), catalog.engine.version(OPERATOR_SNAPSHOTS.name)
    verified = _measured(catalog.pipeline("p").state(2).verify)
    table = Table(title=f"{MANY // MIB} MiB of state in {MANY // SMALL:,} partitions of {SMALL // 1000} kB")
    for column in ("", "seconds", "MiB/s", "CPU seconds", "memory grown MiB", "files", "versions"):
        table.add_column(column, justify="left" if not column else "right")
    for name, one, made in (("save", saved, (str(files - 1), str(versions - 1))), ("verify", verified, ("", ""))):
        speed = f"{MANY / MIB / one.seconds:.0f}"
        table.add_row(name, f"{one.seconds:.2f}", speed, f"{one.cpu:.2f}", str(one.grown), *made)
    Console(width=110).print(table)


def _save_many(writer: Writer, data: memoryview) -> None:
    with writer.checkpoint() as cp:
        for number in range(MANY // SMALL):
            cp.state("agg", data[number * SMALL : (number + 1) * SMALL], partition=number, inline=False)


def _inline(place: Path) -> None:
    """Where state in the manifest row stops being faster than state in a table of its own: one bound is chosen from this."""
    table = Table(title=f"a save with small state, in the manifest row or staged, p50 of {SMALL_SAVES}")
    for column in ("bytes", "inline ms", "staged ms", "staged to inline", "latest: inline ms", "staged ms"):
        table.add_column(column, justify="right")
    for size in (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20):
        catalog = ld.open_catalog(str(place / f"inline{size}"))
        writers = {
            bound: catalog.writer(f"up to {bound}", state_policy=StatePolicy(inline_bytes=bound)) for bound in (size, 0)
        }
        taken: dict[str, list[float]] = {}
        for number in range(SMALL_SAVES):
            for bound, writer in writers.items():
                state = random.Random(number).randbytes(size)
                taken.setdefault(f"save {bound}", []).append(_measured(partial(_save_bytes, writer, state)).seconds)
                latest = catalog.pipeline(f"up to {bound}").latest
                taken.setdefault(f"latest {bound}", []).append(_measured(latest).seconds)
        ms = {name: statistics.median(found) * 1000 for name, found in taken.items()}
        row = [
            ms[f"save {size}"],
            ms["save 0"],
            ms["save 0"] / ms[f"save {size}"],
            ms[f"latest {size}"],
            ms["latest 0"],
        ]
        table.add_row(str(size), *(f"{one:.1f}" for one in row))
    Console(width=110).print(table)


def _make(path: Path) -> Path:
    """A state as a job has one: in a file. Both sides read it as they go."""
    with path.open("wb") as file:
        file.writelines(_pieces())
    return path


def _pieces() -> Iterator[bytes]:
    chance = random.Random(3)
    patterns = [chance.randbytes(MIB // 2) + bytes(MIB // 2) for _ in range(16)]
    for number in range(LARGE):
        piece = bytearray(patterns[number % 16])
        for block in range(MIB // BLOCK):
            piece[block * BLOCK : block * BLOCK + 8] = (number * 16 + block).to_bytes(8, "little")
        yield bytes(piece)


def _plain_write(source: Path, place: Path) -> None:
    """The same LZ4 blocks in plain files of the same size, each flushed: safe as far as it got, as ours are."""
    place.mkdir()
    with source.open("rb") as state:
        piece = state.read(MIB)
        while piece:
            with (place / f"{state.tell():016}").open("wb") as file:
                while piece and file.tell() < DEFAULT_POLICY.part_bytes:
                    packed = lz4.block.compress(piece, store_size=False)
                    file.write(len(packed).to_bytes(4, "little") + packed)
                    piece = state.read(MIB)
                file.flush()
                os.fsync(file.fileno())


def _plain_read(place: Path) -> None:
    for path in sorted(place.iterdir()):
        with path.open("rb") as file:
            while size := file.read(4):
                lz4.block.decompress(file.read(int.from_bytes(size, "little")), uncompressed_size=MIB)


def _save(writer: Writer, source: Path) -> None:
    with source.open("rb") as state, writer.checkpoint() as cp:
        cp.state("agg", state)


def _save_bytes(writer: Writer, state: bytes | bytearray) -> int:
    with writer.checkpoint() as cp:
        cp.state("agg", memoryview(state))
    return cp.id


def _drain(catalog: ld.Catalog, number: int, pipeline: str = "p") -> None:
    for _ in catalog.pipeline(pipeline).state(number).pieces("agg"):
        pass


def _recover(catalog: ld.Catalog, pipeline: str) -> None:
    assert catalog.pipeline(pipeline).recover(dry_run=True).chosen_id


def _bytes_in(catalog: ld.Catalog) -> int:
    tables = (OPERATOR_SNAPSHOTS.name, OPERATOR_DELTAS.name)
    return sum(path.stat().st_size for table in tables for path in _files_in(catalog, table))


def _files_in(catalog: ld.Catalog, table: str) -> list[Path]:
    return list((Path(catalog.engine.location) / table).glob("*.parquet"))


def _measured(call: Callable[[], object]) -> Measured:
    gc.collect()
    base = peak = _resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start, cpu, read = time.perf_counter(), time.process_time(), _bytes_read()
    call()
    seconds, cpu, read = time.perf_counter() - start, time.process_time() - cpu, _bytes_read() - read
    done.set()
    watcher.join()
    return Measured(seconds, cpu, (peak - base) // MIB, read)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])
