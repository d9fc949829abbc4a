"""The main demo: a Structured Streaming query is killed in the middle of a batch, twice, and loses and repeats nothing.

The query runs in processes of their own (`laminar_delta.streaming.demo_driver`); everything that is shown here is read from the
catalog and the sink's table, without Spark.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

import laminar_delta as ld
from laminar_delta.catalog.sinks import Step, When
from laminar_delta.cli.demo import print_audit, print_recoveries
from laminar_delta.cli.places import fresh_directory
from laminar_delta.engine import open_engine

if TYPE_CHECKING:
    from rich.console import Console

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.cli.output import Output

PIPELINE = "running-totals"
FIRST_FILE_AT = 1_700_000_000
CUSTOMERS = ("ada", "bob", "cleo", "dan")
KILLS = ((Step.SAVE, When.AFTER, 3), (Step.COMMIT, When.AFTER, 2))
"""Where drivers die: when a checkpoint was saved and nothing delivered; when a batch was delivered and that not recorded."""
HISTORY = """
SELECT o.checkpoint_id, o.epoch, c.generation, o.name AS source, o.partition_key, o.offset_text, c.is_abandoned AS passed_over
FROM offsets_history AS o JOIN checkpoints AS c ON c.pipeline = o.pipeline AND c.checkpoint_id = o.checkpoint_id
WHERE o.pipeline = 'running-totals' ORDER BY o.checkpoint_id
"""


def run_spark_demo(out: Output, directory: Path | None, files: int, per_file: int = 250) -> bool:
    """Runs the query with its deaths, proves what came out, and goes back three checkpoints. Whether all of it was exact."""
    console = out.console
    with fresh_directory(directory) as place:
        console.rule(
            "Events in, running totals per customer out: Structured Streaming with a checkpoint per micro-batch"
        )
        events = list(_make_events(place, files, per_file))
        console.print(f"{len(events)} events of {len(CUSTOMERS)} customers in {files} files, one file per micro-batch.")
        for number, kill in enumerate([*KILLS, None], 1):
            _drive(console, place, number, kill)
        catalog = ld.open_catalog(str(place / "catalog"), create=False)
        exact = _prove(console, place, catalog, events, f"through {len(KILLS)} kills")
        _print_history(out, catalog)
        print_recoveries(out, catalog)
        print_audit(out, catalog, PIPELINE)
        console.rule("Rewind: query, pipeline and table go back three checkpoints and run again")
        _drive(console, place, len(KILLS) + 2, back_to=_back(catalog, 3))
        exact = _prove(console, place, catalog, events, "also after the rewind") and exact
        if directory is not None:
            console.print(f"Everything is kept in {escape(str(directory))}.")
        return exact


def _make_events(place: Path, files: int, per_file: int) -> Iterator[tuple[int, str, int]]:
    chance = random.Random(7)
    (place / "events").mkdir(parents=True)
    for file in range(files):
        made = [
            (number, chance.choice(CUSTOMERS), chance.randint(1, 100))
            for number in range(file * per_file, (file + 1) * per_file)
        ]
        lines = (json.dumps(dict(zip(("id", "customer", "amount"), event, strict=True))) for event in made)
        path = place / "events" / f"{file:03}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (FIRST_FILE_AT + file,) * 2)  # Spark reads files in the order of their times
        yield from made


def _drive(
    console: Console,
    place: Path,
    number: int,
    kill: tuple[Step, When, int] | None = None,
    back_to: int | None = None,
) -> None:
    """One life of a driver, which dies or goes back to a checkpoint first if that is said."""
    arguments = [] if kill is None else [kill[0].value, kill[1].value, str(kill[2])]
    if back_to is not None:
        arguments = ["rewind", str(back_to)]
    console.print(f"Driver {number} starts Spark ...")
    code = _run(console, place, *arguments)
    if kill is not None and code == -9:
        console.print(
            f"Driver {number} was [red]killed with SIGKILL[/red] right after step '{kill[0].value}' of a batch."
        )
    elif code == 0:
        console.print(f"Driver {number} has read everything.")
    else:
        raise SystemExit(f"driver {number} ended with {code}: see the messages above")


def _run(console: Console, place: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "laminar_delta.streaming.demo_driver", str(place), *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    # What Spark says at its start (which jars, which address) is kept with the rest.
    with (
        (place / "spark.log").open("ab") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            console.print(line.rstrip(), markup=False, highlight=False)
    if process.returncode > 0:
        sys.stderr.write((place / "spark.log").read_text(errors="replace")[-3000:])
    return process.returncode


def _back(catalog: Catalog, steps: int) -> int:
    """The checkpoint so many before the newest, of those that were not passed over."""
    query = f"SELECT checkpoint_id FROM checkpoints WHERE pipeline = '{PIPELINE}' AND NOT is_abandoned ORDER BY checkpoint_id"
    numbers = catalog.sql(query)["checkpoint_id"].to_pylist()
    return int(str(numbers[-1 - steps]))


def _prove(console: Console, place: Path, catalog: Catalog, events: list[tuple[int, str, int]], when: str) -> bool:
    """Holds the sink's table and the state against the input. Whether they are equal."""
    expected, totals = [], dict.fromkeys(sorted({event[1] for event in events}), 0)
    for number, customer, amount in events:
        totals[customer] += amount
        expected.append((number, customer, amount, totals[customer]))
    rows = open_engine("embedded", str(place / "tables")).read("totals").to_pylist()
    found = sorted((row["id"], row["customer"], row["amount"], row["total"]) for row in rows)
    pipeline = catalog.pipeline(PIPELINE)
    chosen = pipeline.recover(dry_run=True).chosen_id
    state = {} if chosen is None else json.loads(pipeline.state(chosen).read("totals"))
    if found != expected or state != totals:
        console.print(f"[red]The output differs from the input: {len(found)} rows, {len(expected)} events.[/red]")
        return False
    console.print(
        f"[green]No gap, no repeat[/green] {when}: {len(expected)} events in, {len(found)} rows out, each once, every running "
        f"total right; the state of checkpoint {chosen} says {state}."
    )
    return True


def _print_history(out: Output, catalog: Catalog) -> None:
    rows = catalog.sql(HISTORY)
    out.table(
        rows.column_names,
        (list(row.values()) for row in rows.to_pylist()),
        title="SQL: where the source was, checkpoint by checkpoint (offsets_history)",
        most=None,
    )
