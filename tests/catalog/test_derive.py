"""Rewinding, forking, editing offsets, undoing: new checkpoints made from old ones, by reference, with a reason."""

from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_SNAPSHOTS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, CorruptionError, FencedError, InvalidInputError, NotFoundError

Opener = Callable[[], ld.Catalog]

STATE = b"s" * 40_000


def _save(writer: Writer, count: int, *, sink: bool = False) -> None:
    for _ in range(count):
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": str(10 * cp.id), "1": "5"}, watermark=cp.id)
            cp.state("agg", STATE + bytes([cp.id]))
            cp.state("small", b"inline")
            if sink:
                cp.sink("warehouse")


def _ids(catalog: ld.Catalog, pipeline: str = "orders") -> list[int]:
    return [head.checkpoint_id for head in catalog.pipeline(pipeline).list()]


@pytest.mark.also_on_spark
def test_rewinding_makes_the_old_content_the_newest_and_destroys_nothing(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", owner="ops")
    _save(writer, 3)
    chunks = catalog.engine.read(OPERATOR_SNAPSHOTS.name).num_rows
    looked = writer.rewind(1, reason="bad deploy", dry_run=True)
    assert (looked.checkpoint_id, looked.from_id, looked.over_id, looked.dry_run) == (4, 1, 3, True)
    assert _ids(catalog) == [1, 2, 3]
    made = writer.rewind(1, reason="bad deploy")
    assert (made.checkpoint_id, made.how, made.over_id) == (4, "rewind", 3)
    orders = catalog.pipeline("orders")
    latest = orders.latest()
    assert latest is not None
    assert latest.source_offsets["kafka"].offsets == {"0": "10", "1": "5"}
    assert latest.source_watermarks == {"kafka": 1}
    assert (latest.checkpoint_id, latest.epoch) == (4, 4)
    assert orders.state(4).read("agg") == STATE + b"\x01"
    assert orders.state(4).read("small") == b"inline"
    assert orders.state(4).partitions() == {"agg": [0], "small": [0]}
    assert orders.validate(4).valid
    assert orders.recover().chosen_id == 4
    assert _ids(catalog) == [1, 2, 3, 4]
    assert catalog.engine.read(OPERATOR_SNAPSHOTS.name).num_rows == chunks
    (entry,) = [entry for entry in catalog.audit() if entry.operation == "rewind"]
    assert (entry.checkpoint_id, entry.reason, entry.owner) == (4, "bad deploy", "ops")


def test_what_was_derived_can_be_derived_from_and_undone(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _save(writer, 2)
    writer.rewind(1, reason="a")
    edited = writer.edit_offsets({"kafka": {"0": "7", "1": None, "2": "0"}}, reason="skip a poison record")
    assert edited.manifest.source_offsets["kafka"].offsets == {"0": "7", "2": "0"}
    undone = writer.undo(reason="wrong record")
    assert (undone.checkpoint_id, undone.from_id) == (5, 3)
    assert undone.manifest.source_offsets["kafka"].offsets == {"0": "10", "1": "5"}
    again = writer.undo(reason="it was right")
    assert again.manifest.source_offsets["kafka"].offsets == {"0": "7", "2": "0"}
    assert catalog.pipeline("orders").state(again.checkpoint_id).read("agg") == STATE + b"\x01"
    # The state is always where it was brought, however long the line.
    (row,) = catalog.engine.read(MANIFESTS.name, where=col("checkpoint_id").eq(6)).to_pylist()
    assert (row["state_checkpoint_id"], row["derived_from_id"], row["derived_how"]) == (1, 4, "undo")
    _save(writer, 1)
    with pytest.raises(ConflictError, match="nothing to undo"):
        writer.undo(reason="too late")


def test_the_newest_is_not_passed_over_in_silence_when_its_row_is_gone(catalog: ld.Catalog) -> None:
    writer, orders = catalog.writer("orders"), catalog.pipeline("orders")
    _save(writer, 4)
    newest = col("pipeline").eq("orders") & col("checkpoint_id").eq(4)
    catalog.engine.delete(MANIFESTS.name, newest)
    assert orders.recover(dry_run=True).chosen_id == 4
    looked = orders.preview("edit", reason="skip", edits={"kafka": {"0": "99"}})
    assert (looked.from_id, looked.over_id) == (4, 4)
    edited = writer.edit_offsets({"kafka": {"0": "99"}}, reason="skip")
    assert (edited.checkpoint_id, edited.from_id, edited.over_id) == (5, 4, 4)
    assert orders.state(5).read("agg") == STATE + b"\x04"
    # What was derived is undone also when its own row is gone, and not what is listed below it.
    catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").eq(5))
    undone = writer.undo(reason="wrong")
    assert (undone.checkpoint_id, undone.from_id, undone.over_id) == (6, 4, 5)
    assert undone.manifest.source_offsets["kafka"].offsets == {"0": "40", "1": "5"}
    orders.prune(RetentionPolicy(keep_last=1))
    assert orders.preview("edit", reason="skip", edits={}).from_id == 6


def test_another_than_the_newest_has_to_be_named_when_no_version_has_its_row(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    writer, orders = catalog.writer("orders"), catalog.pipeline("orders")
    _save(writer, 3)
    catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").eq(3))
    catalog.engine.vacuum(MANIFESTS.name, older_than_hours=0, dry_run=False)
    assert orders.recover(dry_run=True).chosen_id == 2
    asked: list[Callable[[], object]] = [
        lambda: writer.edit_offsets({"kafka": {"0": "7"}}, reason="skip"),
        lambda: orders.preview("edit", reason="skip", edits={}),
        lambda: writer.undo(reason="wrong"),
    ]
    for ask in asked:
        with pytest.raises(CorruptionError, match="checkpoint 3 of pipeline 'orders', the newest, is lost") as refused:
            ask()
        assert "name the checkpoint" in (refused.value.next_step or "")
    # Whoever says which one means it.
    rewound = writer.rewind(2, reason="it is lost")
    assert rewound.over_id == 2
    assert writer.edit_offsets({"kafka": {"0": "7"}}, reason="skip").from_id == rewound.checkpoint_id


def test_a_fork_uses_the_state_where_it_is_and_keeps_it_from_being_retired(catalog: ld.Catalog) -> None:
    orders = catalog.writer("orders")
    _save(orders, 3, sink=True)
    copy = catalog.writer("copy")
    made = copy.fork("orders", 1, reason="try the new version")
    assert (made.checkpoint_id, made.from_pipeline, made.over_id) == (1, "orders", None)
    forked = catalog.pipeline("copy")
    assert forked.state(1).read("agg") == STATE + b"\x01"
    # Its own sinks have nothing outstanding.
    assert forked.recover().chosen_id == 1
    plan = catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1))
    assert plan.retire == (2,)
    assert plan.keep[0].reason == "its state is used by checkpoint 1 of pipeline 'copy'"
    _save(copy, 1)
    catalog.pipeline("copy").prune(RetentionPolicy(keep_last=1))
    assert catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1)).retire == (1,)


def test_what_sinks_never_got_is_not_gone_back_to_by_accident(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _save(writer, 2, sink=True)
    writer.sink_committed(1, "warehouse")
    with pytest.raises(ConflictError, match="sink 'warehouse' is Pending") as refused:
        writer.rewind(2, reason="?")
    assert "accept_undelivered" in refused.value.next_step
    assert writer.recover().chosen_id == 1
    with pytest.raises(ConflictError, match="a recovery passed over it"):
        writer.edit_offsets({"kafka": {"0": "1"}}, reason="?")
    assert writer.rewind(2, reason="given up", accept_undelivered=True).checkpoint_id > 2
    assert writer.recover().chosen_id == writer.next_id - 1


@pytest.mark.parametrize("abandoned", [False, True], ids=["pending", "abandoned"])
def test_undoing_does_not_deliver_what_sinks_never_got(catalog: ld.Catalog, abandoned: bool) -> None:
    writer, orders = catalog.writer("orders"), catalog.pipeline("orders")
    _save(writer, 2, sink=True)
    writer.sink_committed(1, "warehouse")
    if abandoned:
        assert writer.recover().chosen_id == 1
        # A late word does not bring it back, and neither does undoing.
        writer.sink_committed(2, "warehouse")
    edited = writer.edit_offsets({"kafka": {"0": "3"}}, checkpoint_id=1, reason="again")
    assert edited.over_id == 2
    with pytest.raises(ConflictError, match="a recovery passed over it" if abandoned else "is Pending") as refused:
        writer.undo(reason="as it was")
    assert "accept_undelivered" in refused.value.next_step
    with pytest.raises(ConflictError, match="was not delivered"):
        orders.preview("undo", reason="as it was")
    assert orders.recover(dry_run=True).chosen_id == edited.checkpoint_id
    undone = writer.undo(reason="given up", accept_undelivered=True)
    assert orders.recover(dry_run=True).chosen_id == undone.checkpoint_id


def test_wrong_asks_are_refused_and_leave_nothing_behind(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    with pytest.raises(NotFoundError):
        writer.undo(reason="?")
    with pytest.raises(NotFoundError):
        writer.edit_offsets({}, reason="?")
    _save(writer, 2)
    with pytest.raises(InvalidInputError):
        writer.rewind(1, reason=" ")
    with pytest.raises(NotFoundError):
        writer.rewind(9, reason="?")
    with pytest.raises(NotFoundError, match="no source 'kafak'"):
        writer.edit_offsets({"kafak": {"0": "1"}}, reason="?")
    with pytest.raises(InvalidInputError):
        catalog.writer("copy").fork("", 1, reason="?")
    catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1))
    with pytest.raises(NotFoundError, match="retired"):
        writer.rewind(1, reason="?")
    assert _ids(catalog) == [2]


def test_a_damaged_checkpoint_is_not_handed_on(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _save(writer, 2)
    of_first = col("pipeline").eq("orders") & col("checkpoint_id").eq(1)
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, of_first)
    # The version before still has the rows: what is derived gets rows of its own, and has nothing to heal.
    made = writer.rewind(1, reason="back")
    report = writer.recover()
    assert (report.chosen_id, report.healed) == (made.checkpoint_id, ())
    catalog.engine.delete(MANIFESTS.name, of_first)
    assert writer.rewind(1, reason="back").manifest.source_offsets["kafka"].offsets["0"] == "10"


def test_only_the_holder_of_the_generation_derives(open_again: Opener) -> None:
    old = open_again().writer("orders")
    _save(old, 2)
    open_again().writer("orders")
    with pytest.raises(FencedError):
        old.rewind(1, reason="zombie")
    assert _ids(open_again()) == [1, 2]


def test_damage_beyond_healing_is_named(catalog: ld.Catalog) -> None:
    from dataclasses import replace

    writer = catalog.writer("orders")
    _save(writer, 1)
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
    # As an import takes it.
    save_all(writer, [BulkSave(manifest=replace(catalog.pipeline("orders").get(2), checkpoint_id=3, epoch=0))])
    with pytest.raises(CorruptionError, match="is damaged"):
        writer.rewind(3, reason="?")
