"""Importing, exporting and batching on every engine: the same comes in, and the same goes out."""

import hashlib
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.catalog.batches import StateBatches
from laminar_delta.model import CheckpointManifest
from laminar_delta.stores import CatalogTarget, CheckpointBatcher, DeltaCheckpointStore
from tests.interop.support import GOLDEN, expected, fingerprint
from tests.support.catalogs import ENGINES_SPARK_IN_SOAK, ready_made


@pytest.fixture(params=ENGINES_SPARK_IN_SOAK)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return ready_made(request.param, tmp_path / "catalog", request)()


def test_a_tree_comes_in_and_goes_out(catalog: ld.Catalog, tmp_path: Path) -> None:
    report = interop.import_checkpoints(GOLDEN / "fs" / "full", catalog, "p")
    assert report.imported == (1, 2, 3, 4, 5, 6, 7, 8, 9, 1234567)
    assert interop.import_checkpoints(GOLDEN / "fs" / "full", catalog, "p").already_there == 10
    seen = expected("fs")["full"]["observed"]["by_id"]
    store = DeltaCheckpointStore(catalog, "p")
    for number in (7, 8):
        assert catalog.pipeline("p").get(number) == CheckpointManifest.from_dict(seen[str(number)]["load_by_id"]["ok"])
        data = store.load_state_data(number)
        assert data is not None
        assert hashlib.sha256(data).hexdigest() == seen[str(number)]["load_state_data"]["ok"]["sha256"]
    interop.export_checkpoints(catalog, "p", tmp_path / "out", checkpoints=[4, 5, 7, 8])
    ours, theirs = fingerprint(tmp_path / "out"), fingerprint(GOLDEN / "fs" / "full")
    states = {name for name in ours if name.endswith("state.bin")}
    assert len(states) == 4
    assert {name: ours[name] for name in states} == {name: theirs[name] for name in states}


def test_deltas_and_batches(catalog: ld.Catalog) -> None:
    assert interop.import_checkpoints(GOLDEN / "v2" / "default", catalog, "q").imported == (1, 2, 3)
    assert len(interop.state_chain(catalog.pipeline("q"), 3, "window-agg", 2)) == 3
    batcher = CheckpointBatcher(CatalogTarget(catalog, "q"))
    for number in range(2):
        batcher.add("k", str(number).encode())
        batcher.flush(3)
    again = CheckpointBatcher(CatalogTarget(catalog, "q"))  # one that does not know how far the other is
    again.add("k", b"2")
    again.flush(3)
    batches = StateBatches(catalog.pipeline("q"))
    assert [head.ordinal for head in batches.heads()] == [1, 2, 3]
    assert batches.read(3, "k") == b"2"
