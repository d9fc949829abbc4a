"""A process of its own that works on a catalog and says, line by line, what it was told: to be fought with, and to be killed.

    python -m laminar_delta.testing.lives '{"location": …, "engine": "embedded", "role": "fight", "name": "w1", "seconds": 10}'

It opens the catalog, prints `ready`, waits for a line on standard input, and then lives its role. What it printed is what an
application would have been told before being killed.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.opening import open_catalog
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.tables import MANIFESTS, WRITERS
from laminar_delta.errors import ConflictError, LaminarDeltaError, NotFoundError
from laminar_delta.testing.invariants import assert_sound, holdings
from laminar_delta.testing.scenarios import PIPELINE, SINK
from laminar_delta.testing.workers import Worker, say

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.writer import Writer

SOURCE = "kafka"
KEPT = 4
"""How many checkpoints pruning leaves."""


def start(
    location: str, role: str, name: str, *, engine: str = "embedded", seconds: float = 3600, seed: int = 0
) -> Worker:
    """Starts one; it waits for `go`."""
    order = {
        "location": location,
        "engine": engine,
        "role": role,
        "name": name,
        "seconds": seconds,
        "seed": seed,
    }
    return Worker.start_module(__name__, order)


def fight(catalog: Catalog, order: dict[str, Any]) -> None:
    """Takes the pipeline from whoever has it, saves until it is taken away, and takes it again; until it has saved at all."""
    chance = random.Random(order["name"])
    saved = 0
    end = time.monotonic() + order["seconds"]
    while time.monotonic() < end or not saved:
        began = time.monotonic()
        pause = 0.0
        try:
            writer = catalog.writer(PIPELINE, owner=order["name"])
            say({"told": "generation", "generation": writer.generation})
            # So long that others come to save something, however slow the machine or the engine is.
            pause = chance.random() * min(order["seconds"] / 10, 6 * (time.monotonic() - began))
            while time.monotonic() < end or not saved:
                _save(writer, f"{order['name']}-{saved}")
                saved += 1
        except LaminarDeltaError as error:
            say({"told": type(error).__name__, "text": str(error)})
            time.sleep(pause)


def mixed(catalog: Catalog, order: dict[str, Any]) -> None:
    """One writer and everything it may do, in any order."""
    chance = random.Random(order["seed"])
    writer = catalog.writer(PIPELINE, owner=order["name"])
    say({"told": "generation", "generation": writer.generation})
    writer.recover()
    operations: Sequence[Callable[[], None]] = [
        lambda: _save(writer, f"{order['name']}-{chance.random()}", state=chance.choice([0, 100, 20_000])),
        lambda: _settle(catalog, writer),
        lambda: _prune(catalog),
        lambda: _pin(catalog, chance),
        lambda: _clean(catalog, writer),
        lambda: _maintain(catalog),
        lambda: _derive(writer, chance),
    ]
    while True:
        chance.choices(operations, weights=[6, 4, 1, 1, 1, 1, 1])[0]()


def _save(writer: Writer, token: str, *, state: int = 0) -> None:
    with writer.checkpoint() as cp:
        cp.source(SOURCE, {"token": token})
        cp.sink(SINK)
        if state:
            cp.state("window", token[:1].encode() * state)
    say({"told": "saved", "id": cp.id, "token": token, "generation": writer.generation})


def _settle(catalog: Catalog, writer: Writer) -> None:
    latest = catalog.pipeline(PIPELINE).latest()
    if latest is not None:
        writer.sink_committed(latest.checkpoint_id, SINK)
        say({"told": "settled", "id": latest.checkpoint_id})


def _derive(writer: Writer, chance: random.Random) -> None:
    try:
        made = writer.edit_offsets(
            {SOURCE: {"partition": "1"}}, reason="soak", accept_undelivered=chance.random() < 0.5
        )
    except (ConflictError, NotFoundError):
        return  # there is none, or its sink does not have it
    token = made.manifest.source_offsets[SOURCE].offsets["token"]
    say({"told": "saved", "id": made.checkpoint_id, "token": token, "generation": writer.generation})


def _prune(catalog: Catalog) -> None:
    retired = catalog.pipeline(PIPELINE).prune(RetentionPolicy(keep_last=KEPT)).retire
    say({"told": "retired", "ids": retired})


def _pin(catalog: Catalog, chance: random.Random) -> None:
    found = catalog.pipeline(PIPELINE).list()
    if found:
        number = chance.choice(found).checkpoint_id
        catalog.pipeline(PIPELINE).pin(number, reason="soak")
        say({"told": "pinned", "id": number})


def _clean(catalog: Catalog, writer: Writer) -> None:
    catalog.pipeline(PIPELINE).remove_orphans(aborted=writer.aborted)
    say({"told": "cleaned"})


def _maintain(catalog: Catalog) -> None:
    report = catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0), compact_after=10))
    say({"told": "maintained", "removed": report.removed.get(PIPELINE, ())})


ROLES: dict[str, Callable[[Catalog, dict[str, Any]], None]] = {"fight": fight, "mixed": mixed}


def assert_all_there(catalog: Catalog, workers: Sequence[Worker]) -> None:
    """Every acknowledged generation and checkpoint is there exactly once, and everything else that was told still holds."""
    said = [line for worker in workers for line in worker.said]
    assert_sound(catalog)
    held = holdings(catalog).get(PIPELINE, {"manifests": {}, "pinned": [], "retired": [], "removed": []})
    stored = Counter(row["checkpoint_id"] for row in catalog.reading.rows(MANIFESTS))
    generations = {row["generation"] for row in catalog.reading.rows(WRITERS)}
    assert {line["generation"] for line in said if "generation" in line} <= generations
    for line in said:
        if line["told"] == "saved":
            times = stored[line["id"]]
            assert times == 1 or (times == 0 and line["id"] in held["removed"]), (
                f"checkpoint {line} is there {times} times"
            )
            manifest = held["manifests"].get(str(line["id"]))
            assert (manifest is None) == (line["id"] in held["retired"]), f"{line} is visible and retired, or neither"
            assert manifest is None or manifest["source_offsets"][SOURCE]["offsets"]["token"] == line["token"]
        elif line["told"] == "settled" and str(line["id"]) in held["manifests"]:
            assert held["manifests"][str(line["id"])]["sink_commit_statuses"][SINK] == "Committed"
        elif line["told"] == "retired":
            assert set(line["ids"]) <= set(held["retired"])
        elif line["told"] == "pinned":
            assert line["id"] in held["pinned"]
            assert str(line["id"]) in held["manifests"]


def main(argument: str) -> None:
    """Runs one life."""
    order = json.loads(argument)
    catalog = open_catalog(order["location"], engine=order["engine"])
    say({"ready": order["name"]})
    sys.stdin.readline()
    ROLES[order["role"]](catalog, order)


if __name__ == "__main__":
    main(sys.argv[1])
