"""What tests of the command line have in common."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import laminar_delta as ld
from laminar_delta.catalog.attempt import Attempt

ORDERS, PAYMENTS = "orders", "payments"


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout)
        return found


class Run(Protocol):
    def __call__(self, *arguments: object) -> Done: ...


def fill(catalog: ld.Catalog) -> None:
    """Two pipelines.

    `orders`: 1 to 3 delivered, 4 not; a second writer recovered from 3, passing over 4, and saved 5. 2 is pinned; an attempt
    of the first writer was left behind. `payments`: 1 retired, 2 and 3 there, its writer still holds it.
    """
    writer = catalog.writer(ORDERS, owner="job-7", reason="start")
    # All but its end stays as it is: each save stores a little, upon what is there.
    block = bytes(range(256)) * 800
    for number in range(1, 5):
        with writer.checkpoint() as cp:
            cp.source("kafka", offsets={"0": str(number * 100), "1": str(number * 10)}, watermark=number)
            cp.state("agg", block + bytes([number]) * 1000)
            cp.sink("warehouse")
        if number < 4:
            writer.sink_committed(cp.id, "warehouse")
    writer.sink_failed(4, "warehouse", "disk full")
    writer.stage(Attempt.new(writer.held, 4), _manifest(4))
    with catalog.writer(ORDERS, owner="job-8", reason="restart") as successor:
        successor.recover()
        with successor.checkpoint() as cp:
            cp.source("kafka", offsets={"0": "350", "1": "35"}, watermark=5)
            cp.state("agg", block + b"x" * 1000)
            cp.sink("warehouse")
        successor.sink_committed(cp.id, "warehouse")
    catalog.pipeline(ORDERS).pin(2, reason="audit", owner="ann")
    holder = catalog.writer(PAYMENTS, owner="job-9")
    for number in range(1, 4):
        with holder.checkpoint() as cp:
            cp.source("files", offsets={"": str(number)})
    catalog.pipeline(PAYMENTS).prune(ld.RetentionPolicy(keep_last=2), owner="ann")


def _manifest(number: int) -> ld.CheckpointManifest:
    from laminar_delta.model import ConnectorCheckpoint

    return ld.CheckpointManifest(
        version=1,
        checkpoint_id=number,
        epoch=number,
        timestamp_ms=1,
        source_offsets={"kafka": ConnectorCheckpoint(offsets={"0": "1"}, epoch=1)},
    )


def paths(value: object, declared: Mapping[str, str], at: str = "") -> Iterator[str]:
    """The paths of a document as commands declare them; below one that is declared without inner ones nothing is told."""
    if at:
        yield at
        if at in declared and not any(path.startswith((f"{at}.", f"{at}[]")) for path in declared):
            return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, declared, f"{at}.{name}" if at else name)
    elif isinstance(value, list):
        for inner in value:
            for name, found in inner.items() if isinstance(inner, dict) else ():
                yield from paths(found, declared, f"{at}[].{name}")
