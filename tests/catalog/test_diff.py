"""The difference between two checkpoints: every field, nothing that is equal, and no state read without need."""

import json
import random
from collections.abc import Callable
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import laminar_delta as ld
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.diff import Change, CheckpointDiff
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.catalog.state.policy import DEFAULT_POLICY
from laminar_delta.errors import InvalidInputError, NotFoundError
from laminar_delta.model.manifest import CheckpointManifest, InFlightRecord
from laminar_delta.testing.strategies import manifests, ordering_numbers
from tests.support.catalogs import ENGINES_SPARK_IN_SOAK, ready_made

LARGE = random.Random(7).randbytes(2 * DEFAULT_POLICY.chunk_bytes)
"""Two chunks."""


@pytest.fixture(params=ENGINES_SPARK_IN_SOAK)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return ready_made(request.param, tmp_path / "catalog", request)()


def _told(diff: CheckpointDiff, kind: str) -> list[tuple[Any, ...]]:
    return [(c.name, c.detail, c.change, c.before, c.after, c.difference) for c in diff.of(kind)]


def _save(catalog: ld.Catalog, fill: Callable[[Any], None], pipeline: str = "orders") -> int:
    with catalog.writer(pipeline) as writer, writer.checkpoint() as cp:
        fill(cp)
    return cp.id


def test_a_diff_tells_what_changed_and_what_came_and_went(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        with writer.checkpoint(epoch=1) as cp:
            cp.source("kafka", {"0": "1500", "1": "980", "same": "1"}, watermark=7, metadata={"group": "a"})
            cp.source("files", {"name": "a.csv"})
            cp.table("rates", {"lsn": "18446744073709551615"})
            cp.sink("warehouse")
            cp.sink("dropped")
            cp.describe(pipeline_hash=2**64 - 1, watermark=10)
        with writer.checkpoint(epoch=3) as cp:
            cp.source("kafka", {"0": "1620", "2": "5", "same": "1"}, watermark=4, metadata={"group": "b"})
            cp.source("queue", {})
            cp.table("rates", {"lsn": "-1"})
            cp.sink("warehouse")
            cp.describe(pipeline_hash=1)
        writer.sink_committed(1, "warehouse")
        writer.sink_failed(2, "warehouse", "disk full")
    diff = catalog.pipeline("orders").diff(1, 2)
    assert _told(diff, "offset") == [
        ("kafka", "0", "changed", "1500", "1620", 120),
        ("kafka", "1", "removed", "980", None, None),
        ("kafka", "2", "added", None, "5", None),
        ("files", "name", "removed", "a.csv", None, None),
        ("rates", "lsn", "changed", "18446744073709551615", "-1", -(2**64)),
    ]
    assert _told(diff, "source") == [
        ("kafka", "epoch", "changed", 1, 3, 2),
        ("kafka", "metadata group", "changed", "a", "b", None),
        ("files", None, "removed", 1, None, None),
        ("queue", None, "added", None, 3, None),
    ]
    assert _told(diff, "table") == [("rates", "epoch", "changed", 1, 3, 2)]
    assert _told(diff, "watermark") == [("", None, "removed", 10, None, None), ("kafka", None, "changed", 7, 4, -3)]
    assert _told(diff, "sink") == [
        ("warehouse", "epoch", "changed", 1, 3, 2),
        ("dropped", "epoch", "removed", 1, None, None),
        ("warehouse", "status", "changed", "Committed", "Failed: disk full", None),
        ("dropped", "status", "removed", "Pending", None, None),
    ]
    told = {c.name: (c.before, c.after) for c in diff.of("field")}
    told.pop("timestamp_ms", None)  # the two may be of one millisecond
    assert told == {
        "epoch": (1, 3),
        "source_names": (["files", "kafka"], ["kafka", "queue"]),
        "sink_names": (["dropped", "warehouse"], ["warehouse"]),
        "pipeline_hash": (2**64 - 1, 1),
    }
    back = catalog.pipeline("orders").diff(2, 1)
    swapped = {"added": "removed", "removed": "added", "changed": "changed"}
    assert sorted(
        repr((c.kind, c.name, c.detail, swapped[c.change], c.after, c.before)) for c in back.changes
    ) == sorted(repr((c.kind, c.name, c.detail, c.change, c.before, c.after)) for c in diff.changes)


def test_state_is_compared_without_reading_it(catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(cp: Any) -> None:
        cp.state("same", LARGE)
        cp.state("tail", LARGE)
        cp.state("inside", LARGE)
        cp.state("empty", b"")
        cp.state("parts", b"a" * 70_000, partition=0)
        cp.state("parts", b"b" * 70_000, partition=1)
        cp.state("gone", b"bye")
        cp.in_flight("join", [InFlightRecord(input_id=1, data_b64="AA==")])

    def second(cp: Any) -> None:
        cp.state("same", LARGE)
        cp.state("tail", LARGE + b"!")
        cp.state("inside", LARGE[:-1] + b"?")
        cp.state("empty", b"")
        cp.state("parts", b"a" * 70_000, partition=0)
        cp.state("parts", b"c" * 70_000, partition=1)
        cp.state("parts", b"new", partition=2)
        cp.in_flight("join", [InFlightRecord(input_id=2, data_b64="AA==")])

    _save(catalog, first)
    _save(catalog, second)
    read: list[tuple[str, int]] = []
    whole = CheckpointState.read

    def watched(self: CheckpointState, operator: str, partition: int = 0) -> bytes:
        found = whole(self, operator, partition)
        if len(found) > DEFAULT_POLICY.inline_bytes:
            read.append((operator, partition))
        return found

    monkeypatch.setattr(CheckpointState, "read", watched)
    diff = catalog.pipeline("orders").diff(1, 2)
    assert not read
    size = len(LARGE)
    assert _told(diff, "operator") == [
        ("gone", "partition 0", "removed", 3, None, None),
        ("inside", "partition 0", "changed", size, size, 0),
        ("parts", "partition 1", "changed", 70_000, 70_000, 0),
        ("parts", "partition 2", "added", None, 3, None),
        ("tail", "partition 0", "changed", size, size + 1, 1),
    ]
    assert _told(diff, "inflight") == [("join", None, "changed", 1, 1, 0)]
    assert f"operator inside partition 0: other content, {size} as before" in str(diff)


def test_the_same_state_kept_in_another_place_is_no_difference(catalog: ld.Catalog) -> None:
    """Alone it is in the manifest row; together with a large one it may be in the table."""
    with catalog.writer("orders") as writer:
        inline = CheckpointManifest.new(1, 1, 1)
        writer.save(inline, {("op", 0): b"tiny", ("nothing", 0): b""})
        with writer.checkpoint(checkpoint_id=2) as cp:
            cp.state("op", b"tiny")
            cp.state("nothing", b"")
    rows = {number: catalog.pipeline("orders").state(number).row for number in (1, 2)}
    assert bool(rows[1]["children"]) is not bool(rows[2]["children"])
    assert catalog.pipeline("orders").diff(1, 2).of("operator") == ()


def test_a_diff_is_a_table_a_dictionary_and_a_text(catalog: ld.Catalog) -> None:
    name = "it's 日本"
    _save(catalog, lambda cp: cp.source("kafka", {"0": "5"}), name)
    _save(catalog, lambda cp: cp.source("kafka", {"0": "8"}), name)
    diff = catalog.pipeline(name).diff(1, 2)
    rows = diff.rows().to_pylist()
    assert len(rows) == len(diff.changes)
    assert {
        "kind": "offset",
        "name": "kafka",
        "detail": "0",
        "change": "changed",
        "before": "5",
        "after": "8",
        "difference": Decimal(3),
    } in rows
    plain = json.loads(json.dumps(diff.to_dict()))
    assert (plain["pipeline"], plain["before"], plain["after"]) == (name, 1, 2)
    assert [Change(**change) for change in plain["changes"]] == list(diff.changes)
    lines = str(diff).splitlines()
    assert lines[0] == f"{name} 1 → 2: {len(diff.changes)} differences"
    assert "  offset kafka 0: 5 → 8 (+3)" in lines
    same = catalog.pipeline(name).diff(2, 2)
    assert (same.changes, same.rows().num_rows) == ((), 0)
    assert str(same) == f"{name} 2 → 2: 0 differences"


def test_checkpoints_of_two_pipelines_can_be_compared(catalog: ld.Catalog) -> None:
    _save(catalog, lambda cp: cp.source("kafka", {"0": "5"}), "blue")
    _save(catalog, lambda cp: cp.source("kafka", {"0": "9"}), "green")
    diff = catalog.pipeline("blue").diff(1, 1, other_pipeline="green")
    assert _told(diff, "offset") == [("kafka", "0", "changed", "5", "9", 4)]
    assert str(diff).startswith("blue 1 → green 1: ")
    with pytest.raises(NotFoundError):
        catalog.pipeline("blue").diff(1, 1, other_pipeline="red")
    with pytest.raises(InvalidInputError):
        catalog.pipeline("blue").diff(1, 1, other_pipeline="")
    with pytest.raises(NotFoundError):
        catalog.pipeline("blue").diff(1, 2)


_COPIED = [
    field.name
    for field in fields(CheckpointManifest)
    if field.name not in ("checkpoint_id", "operator_states", "state_checksum", "size_bytes")
]


@pytest.mark.parametrize("name", _COPIED)
@settings(max_examples=8)
@given(old=manifests(ordering=ordering_numbers()), new=manifests(ordering=ordering_numbers()))
def test_no_difference_of_any_two_manifests_goes_untold(
    old: CheckpointManifest, new: CheckpointManifest, name: str
) -> None:
    """With one field of the other's, the diff is empty exactly when that changed nothing."""
    catalog = ld.open_catalog("memory", engine="memory", store={})
    base = replace(old, checkpoint_id=1, operator_states={}, state_checksum=None, size_bytes=0)
    other = replace(base, **{name: getattr(new, name)})
    with catalog.writer("p") as writer:
        # As an import takes them: also those that recovery would pass over.
        save_all(writer, [BulkSave(manifest=base), BulkSave(manifest=replace(other, checkpoint_id=2))])
    diff = catalog.pipeline("p").diff(1, 2)
    assert bool(diff.changes) is (other != base)
    assert diff.rows().num_rows == len(diff.changes)
    json.dumps(diff.to_dict())
