"""State upon state: only what changed is stored, anything that was kept comes back, and a wrong block is never handed out."""

import datetime as dt
import io
import itertools
import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.group import Save
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.state.applying import register_apply
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.state.progress import StateProgress
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import TableSpec
from laminar_delta.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError
from laminar_delta.model import CheckpointManifest

BLOCK = 1024
POLICY = StatePolicy(block_bytes=BLOCK, chunk_bytes=4 * BLOCK, part_bytes=64 * BLOCK, longest_chain=4)
BIG = random.Random(1).randbytes(40 * BLOCK + 7)


def _changed(state: bytes, *blocks: int) -> bytes:
    changed = bytearray(state)
    for block in blocks:
        changed[block * BLOCK] ^= 0xFF
    return bytes(changed)


def _save(writer: Writer, state: bytes | io.BytesIO, *, partition: int = 0) -> int:
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": str(cp.id)})
        cp.state("agg", state, partition=partition)
    return cp.id


def _stored(catalog: ld.Catalog, table: str) -> dict[int, int]:
    """Raw bytes of chunks per checkpoint."""
    found: dict[int, int] = {}
    for row in catalog.engine.read(table, where=col("chunk").ge(0)).to_pylist():
        found[row["checkpoint_id"]] = found.get(row["checkpoint_id"], 0) + row["raw_length"]
    return found


@pytest.mark.also_on_spark
def test_a_save_stores_what_changed(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    states = {_save(writer, BIG): BIG}
    for block in (3, 17):
        changed = _changed(BIG, block)
        states[_save(writer, io.BytesIO(changed))] = changed
    assert _stored(catalog, OPERATOR_SNAPSHOTS.name) == {1: len(BIG)}
    assert _stored(catalog, OPERATOR_DELTAS.name) == {2: BLOCK, 3: 2 * BLOCK}
    orders = catalog.pipeline("orders")
    for number, state in states.items():
        assert orders.state(number).read("agg") == state
        assert orders.validate(number).valid
    with orders.state(3).open("agg") as file:
        assert file.read(10) == states[3][:10]
        assert file.read() == states[3][10:]
    table = orders.state(3).to_arrow()
    assert table.to_pylist() == [{"operator": "agg", "partition": 0, "payload": states[3]}]
    orders.state(3).verify()


def test_blocks_that_are_equal_are_stored_once(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    state = BIG[:BLOCK] * 50
    _save(writer, state)
    assert _stored(catalog, OPERATOR_SNAPSHOTS.name) == {1: BLOCK}
    assert catalog.pipeline("orders").state(1).read("agg") == state


def test_a_chain_is_bounded_by_its_length_and_by_its_bytes(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    state = BIG
    for block in range(9):
        state = _changed(state, block)
        _save(writer, state)
    assert sorted(_stored(catalog, OPERATOR_SNAPSHOTS.name)) == [1, 5, 9]
    # Half of it changes at a time: the chain is stale before it is long.
    for turn in range(4):
        state = _changed(state, *range(turn, 41, 2))
        _save(writer, io.BytesIO(state))
        layout = catalog.pipeline("orders").state(10 + turn).layouts()[0]
        assert layout.stored_bytes <= 1.75 * len(state)
    assert {11, 13} <= _stored(catalog, OPERATOR_SNAPSHOTS.name).keys()
    # More than half, seen beforehand, is not worth a chain.
    _save(writer, _changed(state, *range(30)))
    assert 14 in _stored(catalog, OPERATOR_SNAPSHOTS.name)


def test_a_stream_that_is_wholly_another_needs_nothing_of_the_one_before(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    other = random.Random(2).randbytes(len(BIG))
    _save(writer, BIG)
    for state in (other, b"", other, _changed(other, 1)):
        number = _save(writer, io.BytesIO(state))
        assert catalog.pipeline("orders").state(number).read("agg") == state
    rows = catalog.engine.read(MANIFESTS.name, columns=["checkpoint_id", "state_needs"]).to_pylist()
    assert {row["checkpoint_id"]: row["state_needs"] for row in rows} == {1: [], 2: [], 3: [], 4: [], 5: [4]}
    assert catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1)).retire == (1, 2, 3)


def test_a_state_may_grow_shrink_empty_and_be_divided_anew(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    wanted: dict[int, dict[int, bytes]] = {}
    for partitions in (
        {0: BIG},
        {0: BIG + b"grown"},
        {0: BIG[: 20 * BLOCK]},
        {0: b"", 1: BIG},
        {1: BIG[:-1], 2: BIG[5 * BLOCK :]},
        {0: BIG},
    ):
        with writer.checkpoint() as cp:
            for partition, state in partitions.items():
                cp.state("agg", io.BytesIO(state), partition=partition)
            if 0 in partitions:
                # An operator that comes and goes.
                cp.state("join", io.BytesIO(BIG[: 7 * BLOCK]))
        wanted[cp.id] = partitions
    orders = catalog.pipeline("orders")
    for number, partitions in wanted.items():
        state_of = orders.state(number)
        joined = {"join": [0]} if 0 in partitions else {}
        assert state_of.partitions() == {"agg": sorted(partitions), **joined}
        assert [state_of.read("join", number) for number in joined.get("join", [])] == [BIG[: 7 * BLOCK]] * len(joined)
        assert {partition: state_of.read("agg", partition) for partition in partitions} == partitions
        assert orders.validate(number).valid


@pytest.mark.also_on_spark
def test_what_a_kept_checkpoint_is_stored_upon_is_kept(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    for block in range(6):
        _save(writer, _changed(BIG, block))
    plan = catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1))
    assert plan.retire == (1, 2, 3, 4)
    assert [(kept.checkpoint_id, kept.reason) for kept in plan.keep] == [(5, "needed by 6"), (6, "the newest")]
    catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0), vacuum=False))
    assert catalog.pipeline("orders").state(6).read("agg") == _changed(BIG, 5)
    _save(writer, _changed(BIG, 7))
    assert catalog.pipeline("orders").validate(7).valid


def test_a_chain_goes_on_after_recovery_and_only_from_what_proved_valid(catalog: ld.Catalog) -> None:
    _save(catalog.writer("orders", state_policy=POLICY), BIG)
    fresh = catalog.writer("orders", state_policy=POLICY)
    _save(fresh, _changed(BIG, 1))
    # Nobody looked whether the one before is sound: stored whole.
    assert sorted(_stored(catalog, OPERATOR_SNAPSHOTS.name)) == [1, 2]
    resumed = catalog.writer("orders", state_policy=POLICY)
    assert resumed.recover().chosen_id == 2
    _save(resumed, _changed(BIG, 2))
    assert _stored(catalog, OPERATOR_DELTAS.name) == {3: 2 * BLOCK}
    resumed.rewind(1, reason="back")
    _save(resumed, _changed(BIG, 3))
    (row,) = catalog.engine.read(MANIFESTS.name, where=col("checkpoint_id").eq(5)).to_pylist()
    assert row["state_needs"] == [1]
    assert catalog.pipeline("orders").state(5).read("agg") == _changed(BIG, 3)
    forked = catalog.writer("copy", state_policy=POLICY)
    forked.fork("orders", 5, reason="try")
    assert catalog.pipeline("copy").state(1).read("agg") == _changed(BIG, 3)
    _save(forked, _changed(BIG, 3))
    # Chains do not cross pipelines.
    assert catalog.pipeline("copy").state(2).layouts()[0].stores[0].checkpoint_id == 2
    orders = catalog.pipeline("orders")
    assert orders.prune(RetentionPolicy(keep_last=1)).retire == (2, 3, 4)


def test_a_base_that_lost_its_rows_is_healed_from_the_version_that_had_them(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    _save(writer, BIG)
    _save(writer, _changed(BIG, 1))
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, col("pipeline").eq("orders") & col("checkpoint_id").eq(1))
    with pytest.raises(CorruptionError, match="blocks of operator 'agg' partition 0 are missing"):
        catalog.pipeline("orders").state(2, heal=False).read("agg")
    # Also what is stored upon a base whose rows were gone by then.
    _save(writer, _changed(BIG, 1, 2))
    report = catalog.pipeline("orders").recover(dry_run=True)
    assert report.chosen_id == 3
    assert catalog.pipeline("orders").state(3).read("agg") == _changed(BIG, 1, 2)
    forked = catalog.writer("copy")
    forked.fork("orders", 3, reason="try")
    assert forked.recover().chosen_id == 1
    assert {healed.table for healed in report.healed} >= {OPERATOR_SNAPSHOTS.name}


def test_what_is_beneath_an_application_delta_is_needed_and_healed_too(catalog: ld.Catalog) -> None:
    register_apply("put-behind", lambda state, delta: state + delta)
    writer = catalog.writer("orders", state_policy=POLICY)
    _save(writer, BIG)
    _save(writer, _changed(BIG, 1))
    for turn in range(4):
        if turn == 2:
            # Also when what the next one is stored upon is read back.
            writer = catalog.writer("orders", state_policy=POLICY)
            assert writer.recover().chosen_id == 4
        with writer.checkpoint() as cp:
            cp.state_delta("agg", b"%d" % turn, apply="put-behind")
    rows = catalog.engine.read(MANIFESTS.name, columns=["checkpoint_id", "state_needs", "children"]).to_pylist()
    needs = {row["checkpoint_id"]: row["state_needs"] for row in rows}
    assert needs == {1: [], 2: [1], 3: [1, 2], 4: [1, 2, 3], 5: [1, 2, 3, 4], 6: [1, 2, 3, 4, 5]}
    tables = [{child["table"] for child in row["children"]} for row in rows if row["checkpoint_id"] > 1]
    assert all(found >= {OPERATOR_SNAPSHOTS.name, OPERATOR_DELTAS.name} for found in tables)
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, col("checkpoint_id").eq(1))
    orders = catalog.pipeline("orders")
    assert orders.recover(dry_run=True).chosen_id == 6
    assert orders.state(3).read("agg") == _changed(BIG, 1) + b"0"
    assert orders.state(6).read("agg") == _changed(BIG, 1) + b"0123"


def _flipped(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


@pytest.mark.parametrize("chunk", [-1, 0, 2])
@pytest.mark.parametrize("table", [OPERATOR_SNAPSHOTS, OPERATOR_DELTAS], ids=lambda table: table.name)
def test_a_wrong_row_anywhere_is_never_handed_out(catalog: ld.Catalog, table: TableSpec, chunk: int) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    states = {_save(writer, BIG): BIG}
    states[_save(writer, _changed(BIG, *range(10)))] = _changed(BIG, *range(10))
    number = 1 if table is OPERATOR_SNAPSHOTS else 2
    where = col("checkpoint_id").eq(number) & col("chunk").eq(chunk)
    (row,) = catalog.engine.read(table.name, where=where).to_pylist()
    length = row["raw_length"]
    wrong: list[dict[str, object]] = [
        {"raw_length": value} for value in (length - 1, length + 1, 1000 * length, 2**62, -1, None)
    ]
    wrong += [{"names": _flipped(row["names"])}, {"names": None}, {"xxh3": None}]
    # A layout, which is chunk -1, has no data.
    wrong += [{"data": _flipped(row["data"])}, {"data": None}] if chunk >= 0 else [{"stores": None}]
    orders = catalog.pipeline("orders")
    for change in wrong:
        catalog.engine.delete(table.name, where)
        catalog.engine.append(table.name, pa.Table.from_pylist([{**row, **change}], schema=table.schema))
        with pytest.raises(CorruptionError):
            assert orders.state(number, heal=False).read("agg") != states[number]
        assert orders.state(number).read("agg") == states[number]
    assert orders.recover(dry_run=True).chosen_id == 2


def test_policies_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"block_bytes": 0},
        {"chunk_bytes": 1},
        {"most_stale": -1.0},
        {"most_changed": 2.0},
        {"inline_bytes": -1},
    ):
        with pytest.raises(InvalidInputError):
            StatePolicy(**wrong)


def test_state_is_stored_upon_what_is_kept_while_it_was_inline(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    with writer.checkpoint() as large:
        large.state("agg", BIG)
    with writer.checkpoint() as small:
        small.state("agg", b"x")
    with writer.checkpoint() as again:
        again.state("agg", _changed(BIG, 3))
    state = catalog.pipeline("orders").state(again.id)
    assert state.read("agg") == _changed(BIG, 3)
    assert state.layouts()[0].needs == {large.id, again.id}


def _add_up(state: bytes, delta: bytes) -> bytes:
    total = Counter(json.loads(state or b"{}"))
    total.update(json.loads(delta))
    return json.dumps(total, sort_keys=True).encode()


def test_an_application_says_itself_what_changed(catalog: ld.Catalog) -> None:
    register_apply("add-up", _add_up)
    unknown = f"known-to-nobody-on-{catalog.engine.name}"
    writer = catalog.writer("orders", state_policy=POLICY)
    with pytest.raises(InvalidInputError, match="no state of operator 'agg' partition 0"), writer.checkpoint() as cp:
        cp.state_delta("agg", b"{}", apply="add-up")
    with writer.checkpoint() as base:
        base.state("agg", b'{"a": 1}', inline=False)
    numbers = []
    for change in (b'{"a": 2}', b'{"b": 5}'):
        with writer.checkpoint() as cp:
            cp.state_delta("agg", io.BytesIO(change), apply="add-up")
        numbers.append(cp.id)
    orders = catalog.pipeline("orders")
    assert [json.loads(orders.state(number).read("agg")) for number in numbers] == [{"a": 3}, {"a": 3, "b": 5}]
    assert all(orders.validate(number).valid for number in numbers)
    assert orders.prune(RetentionPolicy(keep_last=1)).retire == ()
    resumed = catalog.writer("orders", state_policy=POLICY)
    assert resumed.recover().chosen_id == numbers[-1]
    for _ in range(2):
        with resumed.checkpoint() as cp:
            cp.state_delta("agg", b'{"c": 1}', apply="add-up")
    assert json.loads(orders.state(cp.id).read("agg")) == {"a": 3, "b": 5, "c": 2}
    with pytest.raises(InvalidInputError, match="4 deltas stand upon"), resumed.checkpoint() as late:
        late.state_delta("agg", b'{"c": 1}', apply="add-up")
    with resumed.checkpoint() as full:
        full.state("agg", b'{"z": 1}', inline=False)
    with resumed.checkpoint() as last:
        last.state_delta("agg", b'{"z": 1}', apply=unknown)
    with pytest.raises(NotFoundError, match=unknown):
        orders.state(last.id).read("agg")
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, col("checkpoint_id").eq(full.id))
    with pytest.raises(CorruptionError, match=f"stands upon checkpoint {full.id}"):
        orders.state(last.id).verify()
    assert orders.recover(dry_run=True).chosen_id == last.id
    register_apply(unknown, _add_up)
    assert json.loads(orders.state(last.id).read("agg")) == {"z": 2}


def test_long_work_tells_how_far_it_is_and_can_be_cancelled(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    told: list[StateProgress] = []
    with writer.checkpoint(tell=told.append) as cp:
        cp.state("agg", BIG)
    assert told[-1] == StateProgress("agg", 0, len(BIG), None)
    assert [progress.done for progress in told] == sorted(progress.done for progress in told)

    def cancel(progress: StateProgress) -> None:
        if progress.done > (200 * BLOCK if progress.total is None else BLOCK):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), writer.checkpoint(tell=cancel) as cancelled:
        cancelled.state("agg", random.Random(2).randbytes(300 * BLOCK))
    assert 2 in _stored(catalog, OPERATOR_SNAPSHOTS.name)
    orders = catalog.pipeline("orders")
    assert [head.checkpoint_id for head in orders.list()] == [1]
    orders.remove_orphans(aborted=writer.aborted)
    assert sorted(_stored(catalog, OPERATOR_SNAPSHOTS.name)) == [1]
    _save(writer, _changed(BIG, 1))
    told.clear()
    assert orders.state(3).read("agg", tell=told.append) == _changed(BIG, 1)
    assert told[-1] == StateProgress("agg", 0, len(BIG), len(BIG))
    with pytest.raises(KeyboardInterrupt):
        orders.state(3).read("agg", tell=cancel)


class _Counted(io.BytesIO):
    """A file that knows how much of it was read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.taken = 0

    def readinto(self, buffer: Any) -> int:
        found = super().readinto(buffer)
        self.taken += found
        return found

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.taken += len(found)
        return found


@pytest.mark.parametrize("state", ["unchanged", "one block changed", "zeros"])
def test_a_state_of_which_little_is_stored_tells_and_can_be_cancelled_as_any_other(
    catalog: ld.Catalog, state: str
) -> None:
    base = random.Random(3).randbytes(12 << 20)
    content = {"unchanged": base, "one block changed": _changed(base, 1), "zeros": bytes(len(base))}[state]
    writer = catalog.writer("orders")
    with writer.checkpoint() as cp:
        cp.state("agg", base)
    stopped = _Counted(content)

    def cancel(progress: StateProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), writer.checkpoint(tell=cancel) as cp:
        cp.state("agg", stopped)
    assert 0 < stopped.taken <= 3 << 20
    told: list[StateProgress] = []
    with writer.checkpoint(tell=told.append) as cp:
        cp.state("agg", io.BytesIO(content))
    done = [progress.done for progress in told]
    assert done[-1] == len(base)
    assert all(0 <= after - before <= 2 << 20 for before, after in itertools.pairwise([0, *done]))
    assert catalog.pipeline("orders").state(cp.id).read("agg") == content


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a group"])
def test_a_writer_whose_base_was_removed_stores_the_next_state_whole(catalog: ld.Catalog, together: bool) -> None:
    """Saves without state come between, and the one that the next state would be stored upon is pruned and removed."""
    writer = catalog.writer("orders")
    content = bytes(range(256)) * 2_000

    def save(number: int, state: bytes | None) -> None:
        manifest = CheckpointManifest.new(number, number, 1)
        states = {} if state is None else {("agg", 0): state}
        if not together:
            writer.save(manifest, states)
            return
        (answer,) = catalog.save_together([Save(writer=writer, manifest=manifest, state=states)])
        if isinstance(answer, Exception):
            raise answer

    save(1, content)
    save(2, None)
    catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1))
    at_once = MaintenancePolicy(grace=dt.timedelta(0), vacuum=False)
    assert catalog.maintain(at_once).removed == {"orders": (1,)}
    save(3, content + b"3")
    state = catalog.pipeline("orders").state(3)
    assert state.read("agg") == content + b"3"
    assert state.layouts()[0].needs == {3}
    assert writer.recover().chosen_id == 3


def test_a_writer_whose_base_is_removed_before_the_commit_is_told_once_and_goes_on(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    orders = catalog.pipeline("orders")
    writer.save(CheckpointManifest.new(1, 1, 1), {("agg", 0): BIG})
    attempt = Attempt.new(writer.held, 3)
    staged = writer.stage(attempt, CheckpointManifest.new(3, 3, 1), {("agg", 0): _changed(BIG, 3)})
    writer.save(CheckpointManifest.new(2, 2, 1))
    orders.prune(RetentionPolicy(keep_last=1))
    assert catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0), vacuum=False)).removed == {"orders": (1,)}
    with pytest.raises(ConflictError, match="removed"):
        writer.commit(attempt, staged.manifest, staged.parts, state=staged.state)
    writer.save(CheckpointManifest.new(4, 4, 1), {("agg", 0): _changed(BIG, 4)})
    assert [head.checkpoint_id for head in orders.list()] == [2, 4]
    assert orders.state(4).read("agg") == _changed(BIG, 4)
    assert orders.state(4).layouts()[0].needs == {4}


def test_a_state_committed_under_another_attempt_is_not_stored_upon(catalog: ld.Catalog) -> None:
    """Its own copy is an orphan: what stood upon it would lose its blocks."""
    writer = catalog.writer("orders", state_policy=POLICY)
    manifest = ld.CheckpointManifest.new(1, 1)
    states = {("agg", 0): BIG}
    with writer.attempting(1) as late:
        staged = writer.stage(late, manifest, states)
        writer.save(manifest, states)
        assert writer.commit(late, staged.manifest, staged.parts, state=staged.state).replayed
    writer.abort(late)
    catalog.pipeline("orders").remove_orphans(aborted=writer.aborted)
    _save(writer, _changed(BIG, 1))
    assert catalog.pipeline("orders").state(2, heal=False).read("agg") == _changed(BIG, 1)
