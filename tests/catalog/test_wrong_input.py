"""Wrong input: refused in our own words, before anything is written or taken."""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.group import Save
from laminar_delta.catalog.tables import TABLES
from laminar_delta.catalog.writer import Writer
from laminar_delta.errors import InvalidInputError
from laminar_delta.model import OperatorCheckpoint

BIG = b"x" * 300_000
TOO_LARGE = 2**63
NO_IDS: list[Any] = ["7", -1, TOO_LARGE, 2**64, 1.5, None, True, "\ud800"]


def _manifest(number: int = 1, **fields: Any) -> ld.CheckpointManifest:
    given: dict[str, Any] = {"version": 1, "checkpoint_id": number, "epoch": number, "timestamp_ms": 1}
    return ld.CheckpointManifest(**{**given, **fields})


@contextmanager
def _refused(catalog: ld.Catalog) -> Iterator[None]:
    """Within: `InvalidInputError`, and no table is committed to."""
    before = {spec.name: catalog.engine.version(spec.name) for spec in TABLES}
    with pytest.raises(InvalidInputError):
        yield
    assert {spec.name: catalog.engine.version(spec.name) for spec in TABLES} == before


@pytest.fixture
def writer(catalog: ld.Catalog) -> Writer:
    writer = catalog.writer("orders")
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
        cp.state("window", BIG)
        cp.sink("warehouse")
    writer.sink_committed(1, "warehouse")
    return writer


def test_what_no_column_can_hold_leaves_no_state_behind(catalog: ld.Catalog, writer: Writer) -> None:
    state = {("window", 0): BIG}
    store = ld.DeltaCheckpointStore(catalog, "bills")
    store.save(_manifest(1))
    wrong: Any = 7
    tries: list[Callable[[], object]] = [
        lambda: writer.save(_manifest(2, epoch=TOO_LARGE), state),
        lambda: writer.save(_manifest(2, timestamp_ms=TOO_LARGE), state),
        lambda: writer.save(_manifest(2, parent_id=TOO_LARGE), state),
        lambda: writer.save(_manifest(2), state, external_id=wrong),
        lambda: writer.save(_manifest(2), state, external_id="\ud800"),
        lambda: writer.save(None, state),  # type: ignore[arg-type]
        lambda: writer.checkpoint(epoch=TOO_LARGE),
        lambda: store.save_with_state(_manifest(2, epoch=TOO_LARGE), BIG),
        lambda: store.save(None),  # type: ignore[arg-type]
        lambda: store.update_manifest({}),  # type: ignore[arg-type]
    ]
    for attempt in tries:
        with _refused(catalog):
            attempt()
    attempt_token = writer.committer.begin(2)
    with _refused(catalog):
        writer.stage(attempt_token, _manifest(2, epoch=TOO_LARGE), state)
    assert writer.checkpoint().id == 3


@pytest.mark.parametrize("vnode_count", [-1, 0, 2**16, 2**40, "3", True, 1.5])
def test_what_is_no_number_of_vnodes_takes_no_generation(catalog: ld.Catalog, vnode_count: Any) -> None:
    with _refused(catalog):
        catalog.writer("orders", vnode_count=vnode_count)
    with _refused(catalog):
        ld.DeltaCheckpointStore(catalog, "orders", vnode_count=vnode_count)


def test_what_recovery_passes_over_by_rule_is_not_saved(catalog: ld.Catalog, writer: Writer) -> None:
    first = catalog.pipeline("orders").get(1)
    named = {"window": OperatorCheckpoint.external_at(0, 10), "other": OperatorCheckpoint.external_at(10, 10)}
    tries: list[Callable[[], object]] = [
        lambda: writer.checkpoint(epoch=0),
        lambda: writer.checkpoint(checkpoint_id=0),
        lambda: writer.save(_manifest(0, epoch=1)),
        lambda: writer.save(_manifest(2, epoch=0)),
        lambda: writer.save(replace(first, checkpoint_id=2)),
        lambda: writer.save(_manifest(2, state_checksum="sha256:00")),
        lambda: writer.save(_manifest(2, operator_states=named), {("window", 0): BIG}),
    ]
    for attempt in tries:
        with _refused(catalog):
            attempt()
    before = catalog.engine.version("manifests")
    for made in catalog.save_together([Save(writer=writer, manifest=replace(first, checkpoint_id=2))]):
        assert isinstance(made, InvalidInputError)
    assert catalog.engine.version("manifests") == before
    # The same content again is no new save.
    assert writer.save(first).replayed
    # LaminarDB's store takes what its callers give it, and an import what there was.
    ld.DeltaCheckpointStore(catalog, "bills").save(_manifest(2, epoch=0))
    save_all(writer, [BulkSave(manifest=_manifest(5, epoch=0))])
    assert catalog.pipeline("orders").recover(dry_run=True).chosen_id == 1


@pytest.mark.parametrize("inline", [True, False])
def test_the_name_of_sidecars_is_no_operators(catalog: ld.Catalog, writer: Writer, inline: bool) -> None:
    cp = writer.checkpoint()
    with pytest.raises(InvalidInputError, match="__sidecar__"):
        cp.state("__sidecar__", b"x", inline=inline)
    with pytest.raises(InvalidInputError, match="__sidecar__"):
        cp.state_delta("__sidecar__", b"x", apply="add")
    with _refused(catalog):
        writer.save(_manifest(9), {("__sidecar__", 0): BIG})


@pytest.mark.parametrize("wrong", NO_IDS)
def test_what_is_no_id_is_refused(catalog: ld.Catalog, writer: Writer, wrong: Any) -> None:
    orders = catalog.pipeline("orders")
    tries: list[Callable[[], object]] = [
        *(lambda ask=ask: ask(wrong) for ask in (orders.get, orders.validate, orders.describe, orders.state)),
        lambda: orders.restore(wrong),
        lambda: orders.pin(wrong, reason="audit"),
        lambda: orders.unpin(wrong),
        lambda: orders.diff(1, wrong),
        lambda: writer.rewind(wrong, reason="back"),
        lambda: writer.sink_committed(wrong, "warehouse"),
    ]
    for attempt in tries:
        with _refused(catalog):
            attempt()


def test_what_is_not_of_its_kind_is_refused(catalog: ld.Catalog, writer: Writer) -> None:
    orders: Any = catalog.pipeline("orders")
    hand: Any = writer
    anything: Any = catalog
    store: Any = ld.DeltaCheckpointStore
    policy: Any = ld.RetentionPolicy
    upkeep: Any = ld.MaintenancePolicy
    cp: Any = writer.checkpoint()
    tries: list[Callable[[], object]] = [
        lambda: policy(keep_last="3"),
        lambda: policy(keep_last=1.5),
        lambda: policy(keep_for_ms="1"),
        lambda: upkeep(compact_after="x"),
        lambda: upkeep(grace=1),
        lambda: store(catalog, "orders", max_retained="3"),
        lambda: store(catalog, "orders", owner=7),
        lambda: store(catalog, "orders").prune("1"),
        lambda: orders.pin(1, reason=None),
        lambda: orders.pin(1, reason="audit", owner=7),
        lambda: orders.restore(1, reason=7),
        lambda: orders.at("noon"),
        lambda: orders.recover(failed_sinks="zap"),
        lambda: orders.recover(pipeline_hash=-1),
        lambda: orders.preview("zap", 1, reason="try"),
        lambda: orders.preview("edit", 1, reason="try", edits={"kafka": "x"}),
        lambda: hand.recover(failed_sinks="zap"),
        lambda: hand.set_sink_statuses(1, {"warehouse": "Committed"}),
        lambda: hand.edit_offsets({"kafka": "x"}, reason="move"),
        lambda: hand.edit_offsets([("kafka", {})], reason="move"),
        lambda: hand.edit_offsets({"kafka": {"0": 5}}, reason="move"),
        lambda: hand.rewind(1, reason=None),
        lambda: anything.writer("orders", owner=7),
        lambda: anything.writer("orders", owner="job", reason=7),
        lambda: anything.as_of(timestamp_ms="noon"),
        lambda: anything.as_of(versions={"manifests": "1"}),
        lambda: anything.audit(limit=-1),
        lambda: anything.overview("orders"),
        lambda: cp.describe(source_names="abc"),
        lambda: cp.describe(sink_names="abc"),
        lambda: ld.Coordinator(writer, ["a"]),  # type: ignore[list-item]
    ]
    for attempt in tries:
        with _refused(catalog):
            attempt()
    orders.at(dt.datetime.now(dt.timezone.utc))


def test_a_dry_run_promises_nothing_that_cannot_be_done(catalog: ld.Catalog, writer: Writer) -> None:
    with writer.checkpoint(checkpoint_id=TOO_LARGE - 1) as cp:
        cp.source("kafka", {"0": "2"})
    with _refused(catalog):
        writer.rewind(1, reason="back", dry_run=True)
    with _refused(catalog):
        catalog.pipeline("orders").preview("rewind", 1, reason="back")
    with _refused(catalog):
        writer.rewind(1, reason="back")
