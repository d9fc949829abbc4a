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
from rich.table import Table

from laminar_delta.cli.places import fresh_directory
from laminar_delta.engine import open_engine
from laminar_delta.engine.request import Fence, TableSpec
from laminar_delta.errors import FencedError

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS: dict[str, pa.DataType] = {"number": pa.int64(), "writer": pa.string(), "attempt": pa.string()}
RACE = TableSpec(
    name="race",
    schema=pa.schema(_COLUMNS),
    properties={"delta.dataSkippingStatsColumns": "number,attempt", "delta.checkpointInterval": "50"},
)
APPLICATION = "laminar:demo"
WRITERS = ("blue", "green")


def run_race(console: Console, directory: Path | None, rounds: int) -> bool:
    """Runs the race and prints it; whether the table holds exactly what the writers were told."""
    with fresh_directory(directory) as place:
        engine = open_engine("embedded", str(place))
        engine.create(RACE)
        with console.status(f"Two processes race for {rounds} commits on {place} ..."):
            told = _race(place, rounds)
        _print_race(console, told, rounds)
        _print_history(console, engine.history(RACE.name, limit=rounds))
        stored = sorted(engine.read(RACE.name).to_pylist(), key=lambda row: row["number"])
        return _print_verdict(console, told, stored)


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


def _print_race(console: Console, told: dict[str, dict[int, dict[str, Any]]], rounds: int) -> None:
    table = Table(title="What each writer was told")
    table.add_column("commit", justify="right")
    for name in WRITERS:
        table.add_column(name, style=name)
    for number in range(1, rounds + 1):
        cells = []
        for name in WRITERS:
            answer = told[name].get(number)
            if answer is None:
                cells.append("")
            elif "version" in answer:
                cells.append(f"committed as version {answer['version']}")
            else:
                cells.append(f"[dim]fenced: {answer['fenced']} stands[/dim]")
        table.add_row(str(number), *cells)
    console.print(table)


def _print_history(console: Console, entries: list[Any]) -> None:
    table = Table(title="What the table's log says")
    for column in ("version", "operation", "owner", "checkpoint", "fence"):
        table.add_column(column, justify="right" if column in ("version", "checkpoint", "fence") else "left")
    for entry in entries:
        metadata = entry.metadata
        table.add_row(
            str(entry.version),
            str(metadata.get("operation", entry.operation)),
            str(metadata.get("owner", "")),
            str(metadata.get("checkpoint", "")),
            str(dict(metadata.get("fences") or {}).get(APPLICATION, "")),
        )
    console.print(table)


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
