"""Every commit says what it was for: the history of any table is an audit log, with no entry left out."""

import datetime as dt
import os
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.attempt import stage_offsets
from laminar_delta.catalog.later import present
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.tables import MANIFESTS
from tests.support.catalogs import QUICK_ENGINES, ready_made


@pytest.fixture(params=QUICK_ENGINES)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return ready_made(request.param, tmp_path / "catalog", request)()


def _everything(catalog: ld.Catalog) -> None:
    """One of each thing that commits."""
    orders = catalog.pipeline("orders")
    writer = catalog.writer("orders", owner="job")
    for _ in range(4):
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": str(cp.id)})
            cp.state("sums", os.urandom(50_000), inline=False)
            cp.sink("lake")
        writer.sink_committed(cp.id, "lake")
    writer.sink_failed(4, "lake", "too late")
    writer.rewind(2, reason="bad deploy")
    writer.edit_offsets({"kafka": {"0": "7"}}, reason="skip")
    writer.undo(reason="no")
    with catalog.writer("copy", owner="job") as copy:
        copy.fork("orders", 1, reason="try")
    orders.pin(2, reason="audit", owner="ops")
    orders.unpin(2, owner="ops")
    retired = orders.prune(ld.RetentionPolicy(keep_last=2), owner="ops").retire
    orders.restore(retired[0], owner="ops")
    orders.prune(ld.RetentionPolicy(keep_last=1), owner="ops")
    with pytest.raises(ZeroDivisionError), writer.attempting(writer.next_id) as attempt:
        began = writer.checkpoint(checkpoint_id=attempt.checkpoint_id)
        began.source("kafka", {"0": "lost"})
        stage_offsets(catalog.engine, attempt, began.manifest())
        raise ZeroDivisionError
    assert orders.remove_orphans(aborted=writer.aborted, owner="ops")
    writer.recover()
    writer.close()
    with catalog.writer("orders", owner="successor") as successor:
        successor.recover()
    with ld.SourceCheckpointStore(catalog, "orders", owner="job") as sources:
        sources.stage_checkpoint("kafka", 1, b"there")
    unused = Path(catalog.engine.location) / MANIFESTS.name / "part-00000-unused.parquet"
    if unused.parent.is_dir():
        unused.write_bytes(b"left by a write that never committed")
        os.utime(unused, (0, 0))
    policy = MaintenancePolicy(grace=dt.timedelta(0), compact_after=1)
    report = catalog.maintain(policy, owner="ops")
    assert (bool(report.removed), bool(report.compacted)) == (True, True)
    assert bool(report.vacuumed) == unused.parent.is_dir()


def test_every_commit_says_what_it_was_for_and_who_made_it(catalog: ld.Catalog) -> None:
    _everything(catalog)
    silent = []
    for spec in present(catalog.engine):
        for entry in catalog.engine.history(spec.name):
            told = entry.metadata.get("operation")
            # A table is made by whoever opens the catalog first: nobody has said who they are by then.
            said = [entry.metadata, *entry.metadata.get("members", [])]  # type: ignore[misc]
            if told is None or (told != "create" and not any(one.get("owner") for one in said)):
                silent.append((spec.name, entry.version, entry.operation, dict(entry.metadata)))
    assert silent == []
    operations = {entry.operation for entry in catalog.audit()}
    assert operations >= {
        "create", "claim", "takeover", "stage", "save", "status", "rewind", "edit", "undo", "fork", "decide", "remove-orphans",
        "recover", "release", "session", "remove", "compact",
    }  # fmt: skip
    on_disk = (Path(catalog.engine.location) / MANIFESTS.name).is_dir()
    assert ("vacuum" in operations) == on_disk
