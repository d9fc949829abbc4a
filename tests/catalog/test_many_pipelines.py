"""One pipeline among a thousand: reading it opens the files that may have it, and no others."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import laminar_delta as ld
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.tables import MANIFESTS, SOURCE_OFFSETS
from laminar_delta.engine.embedded import upkeep
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ErrorCode, StorageError
from laminar_delta.model import ConnectorCheckpoint
from laminar_delta.testing.scenarios import save
from tests.support.harnesses import sorted_uris

PIPELINES = 1_000
CHECKPOINTS = 100
COMMITS = 10
READ = ["pipeline-0000", "pipeline-0500", "pipeline-0999"]
"""Pipelines that are read and have one checkpoint; the others' are copies of theirs, in bulk."""
LONG = "pipeline-0250"
"""One that is read and has as many checkpoints as the others, of its own."""
OWN = {**dict.fromkeys(READ, 1), LONG: CHECKPOINTS}
TABLES = [MANIFESTS.name, SOURCE_OFFSETS.name]

SOME = 100
"""So many pipelines with so many checkpoints, and files that much smaller, show the same of other names."""
SOME_FILE_BYTES = 64 << 10
NAMES = {
    "that begin differently": "{:04}-of-production-orders-eu-west-1-and-more",
    "alike": "production-orders-eu-west-1-and-so-on-{:04}",
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> ld.Catalog:
    """Everything in any order, as pipelines that save at the same time leave it, then compacted."""
    catalog = ld.open_catalog(str(tmp_path_factory.mktemp("many") / "catalog"), engine="embedded")
    for name in READ:
        with catalog.writer(name) as writer:
            save(writer)
    with catalog.writer(LONG) as writer:
        save_all(writer, [BulkSave(manifest=_manifest(number)) for number in range(1, CHECKPOINTS + 1)])
    _fill(catalog, [name for number in range(PIPELINES) if (name := f"pipeline-{number:04}") not in OWN])
    return catalog


def _fill(catalog: ld.Catalog, pipelines: list[str]) -> None:
    """Checkpoints of these pipelines, then what maintenance makes of all."""
    for table in TABLES:
        for part in _many(catalog.engine.read(table), pipelines):
            catalog.engine.append(table, part)
    done = catalog.maintain(MaintenancePolicy(vacuum=False, compact_after=COMMITS))
    assert done.compacted.keys() == set(TABLES)


def _manifest(number: int) -> ld.CheckpointManifest:
    offsets = {"kafka": ConnectorCheckpoint(offsets={"0": str(number)}, epoch=number)}
    return ld.CheckpointManifest(version=1, checkpoint_id=number, epoch=number, timestamp_ms=1, source_offsets=offsets)


def _many(rows: pa.Table, pipelines: list[str]) -> Iterator[pa.Table]:
    """Copies of a checkpoint, in a few appends that each have some of every pipeline. Their children are not what they say."""
    copied = rows.slice(0, 1)
    for commit in range(COMMITS):
        keys = [
            (pipeline, checkpoint)
            for checkpoint in range(2 + commit, 2 + CHECKPOINTS, COMMITS)
            for pipeline in pipelines
        ]
        part = copied.take(pa.array([0] * len(keys)))
        changed: dict[str, pa.Array[Any]] = {
            "pipeline": pa.array([pipeline for pipeline, _ in keys]),
            "checkpoint_id": pa.array([checkpoint for _, checkpoint in keys]),
            # As long and as hard to compress as real ones.
            **{
                name: pa.array([os.urandom(18).hex() for _ in keys])
                for name in ("attempt_id", "content_digest", "part_id")
            },
        }
        for name in changed.keys() & set(rows.column_names):
            part = part.set_column(part.column_names.index(name), name, changed[name])
        yield part


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("table", TABLES)
def test_latest_opens_only_the_files_whose_statistics_match(catalog: ld.Catalog, table: str, name: str) -> None:
    files = _files(catalog, table)
    matching = [path for path, (lowest, highest) in files.items() if lowest <= name <= highest]
    others = [path for path in files if path not in matching]
    assert 1 <= len(matching) <= 2
    assert len(others) >= 4
    with _away(others):
        latest = catalog.pipeline(name).latest()
        assert latest is not None
        assert latest.checkpoint_id == OWN[name]
    # Asked of the engine: the catalog would go back to the files from before the compaction.
    with _away(matching), pytest.raises(StorageError) as caught:
        catalog.engine.read(table, where=col("pipeline").eq(name))
    assert caught.value.code is ErrorCode.FILE_MISSING


@pytest.mark.parametrize("names", NAMES)
def test_pipelines_whose_first_bytes_differ_are_told_apart_and_others_are_not(tmp_path: Path, names: str) -> None:
    """See `docs/adr/0013`: who finds a way to put names in order that are alike for longer changes the second half of this."""
    catalog = ld.open_catalog(str(tmp_path / "catalog"), engine="embedded")
    name = NAMES[names].format(SOME // 2)
    with catalog.writer(name) as writer:
        save(writer)
    with patch.object(upkeep, "ORDERED_FILE_BYTES", SOME_FILE_BYTES):
        _fill(catalog, [other for number in range(SOME) if (other := NAMES[names].format(number)) != name])
    for table in TABLES:
        files = _files(catalog, table)
        matching = [path for path, (lowest, highest) in files.items() if lowest <= name <= highest]
        assert len(files) >= 4
        assert 1 <= len(matching) <= 2 if names == "that begin differently" else matching == [*files]
        with _away([path for path in files if path not in matching]):
            latest = catalog.pipeline(name).latest()
            assert latest is not None
            assert latest.checkpoint_id == 1


def test_the_catalog_is_as_large_as_it_should_be(catalog: ld.Catalog) -> None:
    rows = catalog.engine.read(MANIFESTS.name, columns=["pipeline"])
    assert rows.num_rows == (PIPELINES - len(OWN)) * CHECKPOINTS + sum(OWN.values())
    assert len(catalog.pipelines()) == PIPELINES


def _files(catalog: ld.Catalog, table: str) -> Mapping[Path, tuple[str, str]]:
    """The live files, with the lowest and the highest pipeline that their statistics name."""
    handle = DeltaTable(str(Path(catalog.engine.location) / table))
    actions = pa.table(handle.get_add_actions(flatten=True)).to_pylist()
    return {
        Path(uri): (action["min.pipeline"], action["max.pipeline"])
        for uri, action in zip(sorted_uris(handle, actions), actions, strict=True)
    }


@contextmanager
def _away(files: list[Path]) -> Iterator[None]:
    """Within: these files are not there."""
    for path in files:
        path.rename(path.with_suffix(".away"))
    try:
        yield
    finally:
        for path in files:
            path.with_suffix(".away").rename(path)
