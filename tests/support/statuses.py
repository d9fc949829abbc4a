"""A process of its own that records sink statuses and says, line by line, what it was told.

    python -m tests.support.statuses '{"place": …, "pipeline": "orders", "sinks": […], "checkpoints": 5}'

It opens the catalog, prints `ready`, waits for a line on standard input, becomes the writer, and marks every sink Committed in
every checkpoint.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import laminar_delta as ld
from laminar_delta.errors import FencedError


def start(place: Path, pipeline: str, sinks: Sequence[str], checkpoints: int) -> "subprocess.Popen[str]":
    """Starts one, and returns when it is ready."""
    order = {"place": str(place), "pipeline": pipeline, "sinks": list(sinks), "checkpoints": checkpoints}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.statuses", json.dumps(order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert hear(process) == "ready"
    return process


def go(process: "subprocess.Popen[str]") -> None:
    """Lets it begin."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.close()


def hear(process: "subprocess.Popen[str]") -> str:
    """Its next line; empty at the end."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def hear_out(process: "subprocess.Popen[str]") -> list[str]:
    """All it still says, once it has ended well."""
    with process:
        said = list(iter(lambda: hear(process), ""))
    assert process.returncode == 0
    return said


def main(argument: str) -> None:
    order = json.loads(argument)
    catalog = ld.open_catalog(order["place"], engine="embedded")
    say("ready")
    sys.stdin.readline()
    writer = catalog.writer(order["pipeline"])
    for checkpoint_id in range(1, order["checkpoints"] + 1):
        for sink in order["sinks"]:
            try:
                writer.sink_committed(checkpoint_id, sink)
            except FencedError:
                say("fenced")
                return
            say(f"{checkpoint_id} {sink}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
