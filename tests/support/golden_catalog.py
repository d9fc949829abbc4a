"""Makes the golden catalog of the current format: a small one with rows in every table, and what reading it must give.

    python -m tests.support.golden_catalog

Run it once when a format is new, commit what it wrote, and never again for that format: the directory stands for all catalogs
that people made with it. A change of the tables needs a new `FORMAT_VERSION` and a new directory beside the old ones.
"""

import hashlib
import json
import random
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import laminar_delta as ld
from laminar_delta.catalog.batches import StateBatches
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.digest import rows_digest
from laminar_delta.catalog.sidecar import SIDECAR
from laminar_delta.catalog.tables import FORMAT_VERSION, TABLES
from laminar_delta.codec import BLOCK_BYTES
from laminar_delta.engine.request import TableSpec
from laminar_delta.model import (
    CheckpointManifest,
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    SinkCommitStatus,
)
from laminar_delta.stores import CatalogTarget, CheckpointBatcher, SourceCheckpointStore
from tests.support.sqltypes import sql_name

DATA = Path(__file__).parents[1] / "data"
CATALOG, EXPECTED, SPECS = "catalog", "expected.json", "tables.json"
OWNER = "golden"


def describe(spec: TableSpec) -> dict[str, Any]:
    """What a reader of a table depends on."""
    return {
        "columns": {field.name: sql_name(field.type) for field in spec.schema},
        "partition_by": list(spec.partition_by),
        "properties": dict(spec.properties),
    }


def observe(catalog: ld.Catalog) -> dict[str, Any]:
    """Everything a catalog says, through the front door and table by table."""
    return {
        "rows": {spec.name: _rows(catalog, spec) for spec in TABLES},
        "pipelines": {name: _pipeline(catalog, name) for name in catalog.pipelines()},
        "positions": _positions(SourceCheckpointStore(catalog, "query")),
    }


def _rows(catalog: ld.Catalog, spec: TableSpec) -> dict[str, Any]:
    rows = catalog.engine.read(spec.name).to_pylist()
    return {"count": len(rows), "digest": rows_digest(rows)}


def _pipeline(catalog: ld.Catalog, name: str) -> dict[str, Any]:
    pipeline = catalog.pipeline(name)
    report = pipeline.recover(dry_run=True)
    batches = StateBatches(pipeline)
    return {
        "chosen": report.chosen_id,
        "skipped": {str(one.checkpoint_id): one.reason for one in report.skipped},
        "checkpoints": {str(head.checkpoint_id): _checkpoint(pipeline, head.checkpoint_id) for head in pipeline.list()},
        "batches": {
            str(epoch): {key: _sha256(data) for key, data in batches.entries(epoch)}
            for epoch in sorted({head.epoch for head in batches.heads()})
        },
    }


def _positions(store: SourceCheckpointStore) -> dict[str, Any]:
    found = store.read_all_checkpoints()
    return {"sources": {name: one.to_dict() for name, one in found.items()}, "config_hash": store.read_config_hash()}


def _checkpoint(pipeline: Any, number: int) -> dict[str, Any]:
    state = pipeline.state(number)
    return {
        "manifest": pipeline.get(number).to_dict(),
        "valid": pipeline.validate(number).valid,
        "state": {
            f"{operator}/{partition}": _sha256(state.read(operator, partition))
            for operator, partitions in state.partitions().items()
            for partition in partitions
        },
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _full(number: int) -> CheckpointManifest:
    """A manifest with something in every field."""
    offsets = ConnectorCheckpoint(offsets={"0": "1500", "ü": "-1"}, epoch=number, metadata={"connector_type": "kafka"})
    return replace(
        CheckpointManifest.new(number, number * 10, 1_773_000_000_000 + number),
        source_offsets={"orders": offsets, "quelle_😀": ConnectorCheckpoint.new(number)},
        sink_epochs={"warehouse": number * 10, "mail": number * 10},
        sink_commit_statuses={"warehouse": SinkCommitStatus.pending(), "mail": SinkCommitStatus.committed()},
        table_offsets={"dim": ConnectorCheckpoint.with_offsets(number, {"lsn": "0/16B3748"})},
        operator_states={"small": OperatorCheckpoint.inline(b"\x00\xff"), "odd": OperatorCheckpoint(state_b64="QR==")},
        table_store_checkpoint_path="store/7",
        wal_position=2**64 - 1,
        per_core_wal_positions=(1, 2**63),
        watermark=-(2**63),
        source_watermarks={"orders": 1_700_000_000_000},
        source_names=("orders", "quelle_😀"),
        sink_names=("mail", "warehouse"),
        pipeline_hash=16_045_690_984_503_054_900,
        inflight_data={"join": (InFlightRecord(input_id=1, data_b64="Yg=="), InFlightRecord(input_id=0, data_b64="!"))},
    )


def fill(catalog: ld.Catalog) -> None:
    """Puts rows into every table that this version writes, in few commits: each is a file or more."""
    sound = {"small": OperatorCheckpoint.inline(b"\x00\xff"), "big": OperatorCheckpoint.external_at(0, 3)}
    state = random.Random(7).randbytes(3 * BLOCK_BYTES // 32) * 32
    with catalog.writer("orders", owner=OWNER, reason="golden") as writer:
        first = BulkSave(
            manifest=replace(_full(1), operator_states=sound),
            states={(SIDECAR, 0): b"BIG"},
            external_id="019cd000-0001-7000-8000-00000000000a",
            vnode_count=256,
        )
        save_all(writer, [first, BulkSave(manifest=_full(2))])
        for changed in (b"", b"changed"):
            with writer.checkpoint(epoch=40) as cp:
                cp.source("orders", {"0": "1600"}, watermark=5)
                cp.state("agg", changed + state[len(changed) :])
                cp.state("agg", b"of another partition", partition=3)
        writer.sink_committed(1, "warehouse")
        writer.recover()
        writer.rewind(1, reason="golden")
    pipeline = catalog.pipeline("orders")
    pipeline.pin(1, reason="golden", owner=OWNER)
    pipeline.prune(ld.RetentionPolicy(keep_last=2), owner=OWNER)
    batcher = CheckpointBatcher(CatalogTarget(catalog, "orders", owner=OWNER))
    for number in (1, 2):
        batcher.add("partition-0/agg", b"blob %d" % number)
        batcher.flush(10)
    with SourceCheckpointStore(catalog, "query", owner=OWNER) as store:
        with store.session() as session:
            session.stage("kafka", 7, b"position")
        store.write_config_hash(2**64 - 1)


def make(directory: Path) -> None:
    """Writes the golden directory of the current format."""
    with patch.object(socket, "gethostname", return_value="golden-host"), patch("os.getpid", return_value=1):
        catalog = ld.open_catalog(str(directory / CATALOG))
        fill(catalog)
    seen = observe(catalog)
    (directory / EXPECTED).write_text(json.dumps(seen, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    specs = {spec.name: describe(spec) for spec in TABLES}
    (directory / SPECS).write_text(json.dumps(specs, indent=1, sort_keys=True) + "\n")
    for path in (directory / CATALOG).glob(".laminar.*"):
        path.unlink()
    for entry in (directory / CATALOG).glob("*/_delta_log/00000000000000000000.json"):
        # The log notes where a table was made, which is this machine's business.
        entry.write_text(entry.read_text().replace((directory / CATALOG).as_uri(), "file:///golden"))


if __name__ == "__main__":
    target = DATA / f"v{FORMAT_VERSION}"
    if target.exists():
        shutil.rmtree(target)
    target.mkdir()
    make(target)
