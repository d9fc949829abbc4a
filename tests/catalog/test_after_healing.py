"""Going on from what was healed: nothing new may rest upon rows that only earlier versions of a table have."""

import random
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.state.applying import register_apply
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS, SOURCE_OFFSETS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError
from laminar_delta.model import CheckpointManifest
from tests.support.catalogs import QUICK_ENGINES, ready_made

STATE = random.Random(4).randbytes(600_000)


@pytest.fixture(params=QUICK_ENGINES)
def quick(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return ready_made(request.param, tmp_path / "catalog", request)()


def _state(number: int) -> bytes:
    return bytes([number]) + STATE[1:]


def _save(writer: Writer, count: int) -> None:
    for _ in range(count):
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": str(100 * cp.id)})
            cp.state("sums", _state(cp.id), inline=False)


def _lose_base(catalog: ld.Catalog) -> None:
    """Somebody deletes by SQL what checkpoint 1 stores: the base of those after it."""
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, col("checkpoint_id").eq(1))


def test_what_is_saved_after_a_healed_recovery_needs_nothing_of_what_was_healed(catalog: ld.Catalog) -> None:
    orders = catalog.pipeline("orders")
    with catalog.writer("orders") as writer:
        _save(writer, 2)
    assert [list(head.state_needs) for head in orders.list()] == [[], [1]]
    _lose_base(catalog)
    with catalog.writer("orders") as writer:
        assert writer.recover().chosen_id == 2
        _save(writer, 2)
    assert [list(head.state_needs) for head in orders.list()] == [[], [1], [], [3]]
    assert [orders.validate(number).valid for number in (2, 3, 4)] == [False, True, True]


@pytest.mark.parametrize("how", ["rewind", "fork"])
def test_deriving_from_what_is_whole_only_as_saved_writes_its_state_anew(catalog: ld.Catalog, how: str) -> None:
    with catalog.writer("orders") as writer:
        _save(writer, 2)
    _lose_base(catalog)
    name = "orders" if how == "rewind" else "copy"
    with catalog.writer(name) as writer:
        if how == "rewind":
            made = writer.rewind(2, reason="only as saved").checkpoint_id
        else:
            made = writer.fork("orders", 2, reason="only as saved").checkpoint_id
        derived = catalog.pipeline(name)
        head = derived.list()[-1]
        assert (head.state_pipeline, list(head.state_needs)) == (None, [])
        assert derived.validate(made).valid
        assert derived.state(made, heal=False).read("sums") == _state(2)
        manifest = derived.get(made)
        assert manifest.state_checksum == catalog.pipeline("orders").get(2).state_checksum
        _save(writer, 1)
    # And the next is stored upon what was written.
    assert list(derived.list()[-1].state_needs) == [made]
    assert derived.validate(made + 1).valid


def test_maintenance_goes_on_after_what_it_says_was_done(quick: ld.Catalog) -> None:
    orders = quick.pipeline("orders")
    policy = MaintenancePolicy()
    with quick.writer("orders") as writer:
        _save(writer, 2)
        orders.pin(1, reason="audit")
        _lose_base(quick)
        with pytest.raises(ConflictError, match="only good copy of checkpoint 1") as caught:
            quick.maintain(policy)
        assert "Derive a checkpoint from it" in str(caught.value)
        made = writer.rewind(1, reason="as the message says").checkpoint_id
    orders.unpin(1)
    quick.maintain(policy)
    assert orders.validate(made).valid
    assert orders.state(made, heal=False).read("sums") == _state(1)


def test_application_deltas_are_applied_when_their_state_is_written_anew(quick: ld.Catalog) -> None:
    register_apply("append", lambda state, delta: state + delta)
    orders = quick.pipeline("orders")
    with quick.writer("orders") as writer:
        with writer.checkpoint() as cp:
            cp.state("sums", b"one", inline=False)
        with writer.checkpoint() as cp:
            cp.state_delta("sums", b", two", apply="append")
        quick.engine.delete(OPERATOR_SNAPSHOTS.name, col("checkpoint_id").eq(1))
        told = writer.rewind(2, reason="only as saved")
    assert orders.state(told.checkpoint_id, heal=False).read("sums") == b"one, two"
    assert orders.validate(told.checkpoint_id).findings == ()
    assert orders.get(told.checkpoint_id) == told.manifest
    assert told.manifest.operator_states["sums"].external_length == len(b"one, two")
    assert quick.engine.read(OPERATOR_DELTAS.name, where=col("checkpoint_id").eq(3)).num_rows == 0


def test_a_sidecar_and_offsets_that_are_whole_only_as_saved_are_derived_from(quick: ld.Catalog) -> None:
    with ld.DeltaCheckpointStore(quick, "orders") as store:
        store.save_with_state(CheckpointManifest(version=1, checkpoint_id=1, epoch=1, timestamp_ms=1), STATE)
    quick.engine.delete(OPERATOR_SNAPSHOTS.name, col("checkpoint_id").eq(1))
    with quick.writer("orders") as writer:
        writer.rewind(1, reason="only as saved")
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": "7"})
        quick.engine.delete(SOURCE_OFFSETS.name, col("checkpoint_id").eq(cp.id))
        told = writer.rewind(cp.id, reason="without state")
    assert told.manifest.source_offsets["kafka"].offsets == {"0": "7"}
    assert quick.pipeline("orders").validate(told.checkpoint_id).valid
    store = ld.DeltaCheckpointStore(quick, "orders")
    assert store.load_state_data(2) == STATE
    assert store.validate_checkpoint(2).valid


def test_a_derived_checkpoint_says_how_the_state_it_uses_is_divided(quick: ld.Catalog) -> None:
    with quick.writer("orders", vnode_count=128) as writer:
        _save(writer, 1)
        with quick.writer("plain") as other:
            _save(other, 1)
        with quick.writer("copy", vnode_count=256) as copy:
            copy.fork("orders", 1, reason="elsewhere")
            copy.fork("plain", 1, reason="it does not say")
            _save(copy, 1)
        _lose_base(quick)
        writer.rewind(1, reason="written anew")
    rows = quick.sql("SELECT pipeline, checkpoint_id, vnode_count FROM checkpoints ORDER BY 1, 2").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("copy", 1, 128),
        ("copy", 2, None),
        ("copy", 3, 256),
        ("orders", 1, 128),
        ("orders", 2, 128),
        ("plain", 1, None),
    ]
