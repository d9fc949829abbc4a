"""A catalog with a past: everything the SQL views have to tell apart happened in it."""

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import laminar_delta as ld
from laminar_delta.catalog.attempt import Attempt, stage_offsets
from laminar_delta.catalog.decision_rows import application_of, digest_of
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.state.staging import stage_state
from laminar_delta.catalog.tables import MANIFESTS, RETENTION
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence, TableSpec

HOSTILE = ('it\'s "quoted" `and` \\slashed\\ ', "日本😀 é", "x'; DROP TABLE manifests; --")
LARGE = b"large" * 10_000


def fill(catalog: ld.Catalog) -> None:
    """Two writers of `orders`, retired, restored, pinned and abandoned checkpoints, orphans, recoveries, hostile names."""
    with catalog.writer("orders", owner="job-7") as writer:
        for number in range(1, 5):
            with writer.checkpoint(epoch=10 * number) as cp:
                _describe(cp, number)
        for number in (1, 2):
            writer.sink_committed(number, "warehouse")
        writer.sink_failed(3, "warehouse", "disk 'full'")
        writer.sink_committed(3, "warehouse")
        writer.sink_failed(4, "warehouse", "timeout")
        _leave_orphans(writer, catalog)
    with catalog.writer("orders", owner="job-8") as writer:
        writer.recover()
        with writer.checkpoint(epoch=50) as cp:
            cp.source("kafka", {"0": "5000"})
    with catalog.writer("forked", owner="job-9") as writer:
        writer.fork("orders", 2, reason="a try")
        writer.edit_offsets({"kafka": {"0": "1", "1": None}}, reason="read again")
    orders = catalog.pipeline("orders")
    orders.pin(2, reason="audit", owner="ops")
    orders.pin(3, reason="audit", owner="ops")
    orders.unpin(3, owner="ops")
    assert orders.prune(RetentionPolicy(keep_last=1), owner="ops").retire == (1, 3, 4)
    orders.restore(3, owner="ops")
    orders.recover(owner="ops")
    for name in HOSTILE:
        with catalog.writer(name, owner=name) as writer, writer.checkpoint() as cp:
            cp.source(name, {name: name, "big": str(2**64), "number": "-7"}, watermark=-5)
            cp.state(name, b"\x00")
            cp.sink(name)


def _describe(cp: Any, number: int) -> None:
    cp.source("kafka", {"0": str(1000 * number), "1": str(7 * number)}, watermark=number)
    cp.source("files", {"file": f"part-{number}.csv"})
    cp.source("quiet", {})
    cp.table("rates", {"lsn": f"0/{number:X}"})
    cp.sink("warehouse")
    cp.state("small", b"s" * number)
    cp.state("empty", b"")
    for partition in (0, 3):
        cp.state("large", LARGE * number + bytes([partition]), partition=partition)


def _leave_orphans(writer: Any, catalog: ld.Catalog) -> None:
    """Children of an attempt that never commits, and a part that came too late for one that did."""
    manifest = catalog.pipeline("orders").get(3)
    fields = {"pipeline": "orders", "checkpoint_id": 3, "generation": writer.generation, "owner": "late"}
    (row,) = rows_of(catalog, MANIFESTS, "orders", 3)
    for attempt_id in ("01900000-0000-7000-8000-000000000000", row["attempt_id"]):
        attempt = Attempt(attempt_id=attempt_id, **fields)
        stage_offsets(catalog.engine, attempt, manifest)
        stage_state(catalog.engine, attempt, {("late", 0): LARGE})


def rows_of(catalog: ld.Catalog, spec: TableSpec, pipeline: str, checkpoint_id: int) -> list[dict[str, Any]]:
    where = col("pipeline").eq(pipeline) & col("checkpoint_id").eq(checkpoint_id)
    return catalog.engine.read(spec.name, where=where).to_pylist()


def append(catalog: ld.Catalog, spec: TableSpec, *rows: dict[str, Any], fences: Sequence[Fence] = ()) -> None:
    catalog.engine.append(spec.name, pa.Table.from_pylist(list(rows), schema=spec.schema), fences=fences)


def add_delta(catalog: ld.Catalog) -> None:
    """Checkpoints 8 and 9 of pipeline `changing`: the state of the second is a delta of two chunks upon the first."""
    policy = StatePolicy(block_bytes=1024, chunk_bytes=1024)
    state = random.Random(9).randbytes(50_000)
    with catalog.writer("changing", owner="job-9", state_policy=policy) as writer:
        with writer.checkpoint(checkpoint_id=8) as cp:
            cp.state("agg", state, partition=1)
        with writer.checkpoint(checkpoint_id=9) as cp:
            cp.state("agg", b"x" + state[1:2000] + b"y" + state[2001:], partition=1)
        late = Attempt(
            pipeline="changing", checkpoint_id=9, attempt_id=_attempt_of(catalog), generation=1, owner="late"
        )
        stage_state(catalog.engine, late, {("agg", 1): b"a part that came too late"}, upon=writer.layouts())


def _attempt_of(catalog: ld.Catalog) -> str:
    (row,) = rows_of(catalog, MANIFESTS, "changing", 9)
    return str(row["attempt_id"])


def decide(catalog: ld.Catalog, pipeline: str, checkpoint_id: int, *words: str, generation: int = 1) -> None:
    """Decisions as rows, whether or not anyone would be let make them."""
    last = standing(catalog.reading, pipeline).last
    empty = dict.fromkeys(RETENTION.schema.names)
    own = {**empty, "pipeline": pipeline, "checkpoint_id": checkpoint_id, "generation": generation}
    rows = [{**own, "ordinal": last + number, "decision": word} for number, word in enumerate(words, 1)]
    # By the fence others see that there is something new.
    fence = Fence(application_of(pipeline), last + 1)
    append(catalog, RETENTION, *({**row, "digest": digest_of(row)} for row in rows), fences=[fence])
