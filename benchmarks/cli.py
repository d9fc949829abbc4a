"""How long the command line takes to start and to answer, against a Python that does nothing; wall clock and processor time."""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import laminar_delta as ld
from benchmarks.measure import Measured, measure, show

TIMES = 10


def run() -> None:
    with tempfile.TemporaryDirectory() as place:
        where = str(Path(place) / "catalog")
        catalog = ld.open_catalog(where)
        with catalog.writer("orders") as writer:
            for _ in range(20):
                with writer.checkpoint() as cp:
                    cp.source("kafka", offsets={"0": str(cp.id)})
        commands = {
            "--help": ["--help"],
            "show --help": ["show", "--help"],
            "latest": ["latest", "orders", "--catalog", where, "--json"],
            "ls": ["ls", "--catalog", where],
            "sql": ["sql", "SELECT COUNT(*) AS n FROM checkpoints", "--catalog", where, "--json"],
            "recover": ["recover", "orders", "--catalog", where, "--json"],
            "metrics": ["metrics", "--catalog", where],
        }
        nothing, nothing_cpu = _both("python -c pass", ["-c", "pass"])
        found = [_both(name, ["-m", "laminar_delta.cli.main", *words]) for name, words in commands.items()]
        show(f"{TIMES} starts, wall clock", nothing, [wall for wall, _ in found])
        show(f"{TIMES} starts, processor time", nothing_cpu, [cpu for _, cpu in found])


def _both(name: str, arguments: list[str]) -> tuple[Measured, Measured]:
    taken: list[float] = []

    def start(_: int) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)

    wall = measure(name, start, TIMES)
    return wall, Measured(name, taken[-TIMES:])
