"""The race: two processes offer numbered commits to one table; each number goes to exactly one of them.

Both are ordinary processes on the embedded engine, started at once and not told of each other. What is shown is what they were
told and what the table holds: a commit is acknowledged to one, the other is fenced off and knows by whom.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.cli.places import fresh_directory
from laminar_delta.engine import open_engine
from laminar_delta.engine.request import Fence, TableSpec
from laminar_delta.errors import FencedError

if TYPE_CHECKING:
    from rich.console import Console

    from laminar_delta.cli.output import Output

_COLUMNS: dict[str, pa.DataType] = {"number": pa.int64(), "writer": pa.string(), "attempt": pa.string()}
RACE = TableSpec(
    name="race",
    schema=pa.schema(_COLUMNS),
    properties={"delta.dataSkippingStatsColumns": "number,attempt", "delta.checkpointInterval": "50"},
)
APPLICATION = "laminar:demo"
WRITERS = ("blue", "green")


def run_race(out: Output, directory: Path | None, rounds: int) -> bool:
    """Runs the race and prints it; whether the table holds exactly what the writers were told."""
    with fresh_directory(directory) as place:
        engine = open_engine("embedded", str(place))
        engine.create(RACE)
        with out.console.status(f"Two processes race for {rounds} commits on {place} ..."):
            told = _race(place, rounds)
        _print_race(out, told, rounds)
        _print_history(out, engine.history(RACE.name, limit=rounds))
        stored = sorted(engine.read(RACE.name).to_pylist(), key=lambda row: row["number"])
        return _print_verdict(out.console, told, stored)


def _race(place: Path, rounds: int) -> dict[str, dict[int, dict[str, Any]]]:
    """Starts both writers, lets them go at once, and collects what each was told, by number."""
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "laminar_delta.cli.demo_race", str(place), name, str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt is for the one that started them
        )
        for name in WRITERS
    }
    told: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in WRITERS}
    try:
        for process in processes.values():
            assert process.stdout is not None
            process.stdout.readline()  # "ready"
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for name, process in processes.items():
            output, _ = process.communicate()
            for line in output.splitlines():
                answer = json.loads(line)
                told[name][answer["number"]] = answer
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    return told


def race_as(place: str, name: str, rounds: int) -> None:
    """One writer: offers every number in turn and prints what it was told."""
    engine = open_engine("embedded", place)
    engine.version(RACE.name)
    print("ready", flush=True)
    sys.stdin.readline()
    number = 0
    while number < rounds:
        number += 1
        time.sleep(random.uniform(0, 0.05))  # the work between two checkpoints
        attempt = f"{name}-{number}"
        rows = pa.Table.from_pylist([{"number": number, "writer": name, "attempt": attempt}], schema=RACE.schema)
        answer: dict[str, Any] = {"number": number}
        try:
            made = engine.append(
                RACE.name,
                rows,
                fences=[Fence(APPLICATION, number)],
                metadata={"operation": "save", "owner": name, "checkpoint": number},
                key={"attempt": attempt},
            )
            answer["version"] = made.version
        except FencedError as error:
            # Told who stands where, the loser goes on from there.
            number = answer["fenced"] = error.found[APPLICATION] if isinstance(error.found, dict) else number
        print(json.dumps(answer), flush=True)


def _print_race(out: Output, told: dict[str, dict[int, dict[str, Any]]], rounds: int) -> None:
    rows = [[number, *(_told(told[name].get(number)) for name in WRITERS)] for number in range(1, rounds + 1)]
    out.table(["commit", *WRITERS], rows, title="What each writer was told", right=("commit",), most=None)


def _told(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return ""
    if "version" in answer:
        return f"committed as version {answer['version']}"
    return f"fenced: {answer['fenced']} stands"


def _print_history(out: Output, entries: list[Any]) -> None:
    rows = [
        [
            entry.version,
            entry.metadata.get("operation", entry.operation),
            entry.metadata.get("owner"),
            entry.metadata.get("checkpoint"),
            dict(entry.metadata.get("fences") or {}).get(APPLICATION),
        ]
        for entry in entries
    ]
    out.table(
        ["version", "operation", "who", "checkpoint", "fence"],
        rows,
        title="What the table's log says",
        right=("version", "checkpoint", "fence"),
        most=None,
    )


def _print_verdict(console: Console, told: dict[str, dict[int, dict[str, Any]]], stored: list[dict[str, Any]]) -> bool:
    acknowledged = sorted(
        (number, name) for name, answers in told.items() for number, answer in answers.items() if "version" in answer
    )
    found = [(row["number"], row["writer"]) for row in stored]
    wins = ", ".join(f"{name} {sum(1 for _, winner in acknowledged if winner == name)}" for name in WRITERS)
    if acknowledged != found:
        console.print(f"[red]The table holds {found}, but the writers were told {acknowledged}.[/red]")
        return False
    console.print(
        f"Acknowledged: {wins}. The table holds exactly those {len(found)} rows, each number once, and every loser was told."
    )
    return True


if __name__ == "__main__":
    race_as(sys.argv[1], sys.argv[2], int(sys.argv[3]))
