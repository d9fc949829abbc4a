"""A large state taken out and brought in again in every way, in a process of its own: says by how much its memory grew.

python -m tests.interop.mover DIRECTORY MEBIBYTES
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import laminar_delta as ld
from laminar_delta import interop

MIB = 1 << 20


def state(mebibytes: int) -> Iterator[bytes]:
    """Bytes that do not compress, a mebibyte at a time; the same each time."""
    chance = random.Random(7)
    for _ in range(mebibytes):
        yield chance.randbytes(MIB)


def move(root: Path, mebibytes: int) -> None:
    """Out as one sidecar, in, out as a file of its own, in."""
    saved, moved = ld.open_catalog(str(root / "saved")), ld.open_catalog(str(root / "moved"))
    with saved.writer("p") as writer, writer.checkpoint() as cp:
        cp.state("agg", state(mebibytes))
        cp.state("small", b"small")
    interop.export_checkpoints(saved, "p", root / "files")
    interop.import_checkpoints(root / "files", moved, "p")
    interop.export_checkpoints(moved, "p", root / "distributed", layout="distributed")
    interop.import_checkpoints(root / "distributed", moved, "q")


def _peak_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    place, size = Path(sys.argv[1]), int(sys.argv[2])
    move(place / "warm-up", 2)
    before = _peak_kib()
    move(place / "measured", size)
    sys.stdout.write(f"{(_peak_kib() - before) // 1024}\n")
