"""State as frames on `local-cluster[2,1,2048]`: executors in JVMs of their own save and load it, beside plain files.

The baseline is what the same executors need, in the same run, to write the same states as files of LZ4 blocks and flush them,
and to read and decompress those. Several processes, one after another, so that other load on the machine falls on both.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

LARGE = int(os.environ.get("BENCH_STATE_MIB", "1024"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))


def run() -> None:
    found = [_job() for _ in range(ROUNDS)]
    table = Table(title=f"{LARGE} MiB of state in executors, median of {ROUNDS} runs")
    for column in ("", "seconds", "ratio to plain files", "driver grown MiB: Python", "JVM"):
        table.add_column(column, justify="left" if not column else "right")
    for name, base, title in (
        ("write", "write", "executors write and flush LZ4 blocks"),
        ("save", "write", "state_frame"),
        ("read", "read", "executors read and decompress LZ4 blocks"),
        ("load", "read", "frame, verified"),
    ):
        seconds = statistics.median(one["seconds"][name] for one in found)
        ratio = statistics.median(one["seconds"][base] / one["seconds"][name] for one in found)
        grown = (
            [str(max(one["driver_grown"][name][of] for one in found)) for of in ("python", "jvm")]
            if name != base
            else ["", ""]
        )
        table.add_row(title, f"{seconds:.1f}", f"{ratio:.2f}", *grown)
    Console(width=110).print(table)
    same = all(one["made"] == one["by_embedded"] == one["by_executors"] for one in found)
    print("read back by the embedded engine and by executors, byte for byte:", "equal" if same else "DIFFERENT")


def _job() -> dict[str, Any]:
    place = Path(tempfile.mkdtemp(prefix="laminar-bench-"))
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "benchmarks.cluster_job", str(place), str(LARGE)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        return said
    finally:
        shutil.rmtree(place)
