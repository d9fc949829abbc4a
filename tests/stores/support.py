"""What the tests of the stores share: manifests, and ways to hurt a catalog from below."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import laminar_delta as ld
from laminar_delta.catalog.statuses import digest_of
from laminar_delta.catalog.tables import SINK_STATUSES
from laminar_delta.engine.predicate import Predicate, col
from laminar_delta.engine.request import TableSpec
from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint, SinkCommitStatus
from laminar_delta.stores import DeltaCheckpointStore

PIPELINE = "orders"
PENDING = SinkCommitStatus.pending()
COMMITTED = SinkCommitStatus.committed()

Opener = Callable[[], ld.Catalog]
StoreOpener = Callable[..., DeltaCheckpointStore]


def manifest(number: int, *, epoch: int | None = None, **fields: Any) -> CheckpointManifest:
    """A manifest with an offset that tells it from others."""
    given: dict[str, Any] = {
        "version": 1,
        "checkpoint_id": number,
        "epoch": number if epoch is None else epoch,
        "timestamp_ms": 1_700_000_000_000,
        "source_offsets": {"kafka": ConnectorCheckpoint.with_offsets(number, {"0": str(100 * number)})},
    }
    return CheckpointManifest(**{**given, **fields})


def with_sinks(number: int, **statuses: SinkCommitStatus) -> CheckpointManifest:
    """A manifest with exactly-once sinks."""
    return manifest(number, sink_epochs=dict.fromkeys(statuses, number), sink_commit_statuses=statuses)


def overwrite(catalog: ld.Catalog, spec: TableSpec, where: Predicate, change: dict[str, Any]) -> None:
    """What a careless UPDATE does: the row goes, another takes its place."""
    rows = catalog.engine.read(spec.name, where=where).to_pylist()
    assert rows
    catalog.engine.delete(spec.name, where)
    catalog.engine.append(spec.name, pa.Table.from_pylist([{**row, **change} for row in rows], schema=spec.schema))


def spoil_status(catalog: ld.Catalog, number: int) -> None:
    """A status that no version of ours ever wrote, which no earlier version of a table makes good."""
    (status,) = catalog.engine.read(SINK_STATUSES.name, where=col("checkpoint_id").eq(number)).to_pylist()
    rotten = {**status, "status": "Delivered?", "ordinal": status["ordinal"] + 1}
    rotten["digest"] = digest_of(rotten)
    catalog.engine.append(SINK_STATUSES.name, pa.Table.from_pylist([rotten], schema=SINK_STATUSES.schema))


def destroy(catalog: ld.Catalog, table: str) -> None:
    """What `rm -rf` does."""
    engine: Any = catalog.engine
    if engine.name == "memory":
        del engine._tables[table]
    else:
        shutil.rmtree(Path(engine.location) / table)
