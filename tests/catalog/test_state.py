"""Operator state: any kind of source, many partitions, every byte verified."""

import io
import random
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.group import Save
from laminar_delta.catalog.staged import Saved
from laminar_delta.catalog.state.policy import DEFAULT_POLICY, StatePolicy
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, CorruptionError, ErrorCode, InvalidInputError, NotFoundError
from laminar_delta.model import OperatorCheckpoint

INLINE_STATE_BYTES = DEFAULT_POLICY.inline_bytes
CHUNK_BYTES = DEFAULT_POLICY.chunk_bytes
LARGE = random.Random(5).randbytes(5 * CHUNK_BYTES // 2)


@pytest.mark.also_on_spark
def test_state_of_every_kind_comes_back(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("small", b"\x00tiny")
        cp.state("empty", b"")
        cp.state("view", memoryview(LARGE))
        cp.state("file", io.BytesIO(LARGE))
        cp.state("pieces", (LARGE[n : n + 70_000] for n in range(0, len(LARGE), 70_000)))
        for partition in (0, 3):
            cp.state("many", b"p%d" % partition, partition=partition)
        with pytest.raises(InvalidInputError):
            cp.state("small", b"twice")
    state = catalog.pipeline("orders").state(cp.id)
    assert state.partitions() == {
        "empty": [0],
        "file": [0],
        "many": [0, 3],
        "pieces": [0],
        "small": [0],
        "view": [0],
    }
    assert state.read("small") == b"\x00tiny"
    assert state.read("empty") == b""
    for operator in ("view", "file", "pieces"):
        assert state.read(operator) == LARGE
    assert [state.read("many", partition) for partition in (0, 3)] == [b"p0", b"p3"]
    manifest = catalog.pipeline("orders").get(cp.id)
    assert manifest.state_checksum is not None
    assert manifest.state_checksum.startswith("xxh3:")
    assert manifest.size_bytes == 3 * len(LARGE) + 4
    assert catalog.pipeline("orders").validate(cp.id).valid
    with pytest.raises(NotFoundError):
        state.read("nobody")
    with pytest.raises(NotFoundError):
        state.read("many", 1)


def test_small_state_costs_no_commit_of_its_own(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        with writer.checkpoint() as cp:
            cp.state("op", b"x" * INLINE_STATE_BYTES)
        assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 0
        with writer.checkpoint() as larger:
            larger.state("op", b"x" * (INLINE_STATE_BYTES + 1))
        assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 1
    assert catalog.pipeline("orders").state(cp.id).read("op") == b"x" * INLINE_STATE_BYTES
    assert catalog.pipeline("orders").state(larger.id).read("op") == b"x" * (INLINE_STATE_BYTES + 1)
    with catalog.writer("never", state_policy=StatePolicy(inline_bytes=0)) as writer, writer.checkpoint() as own:
        own.state("op", b"x")
        own.state("empty", b"")
    assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 2
    state = catalog.pipeline("never").state(own.id)
    assert (state.read("op"), state.read("empty")) == (b"x", b"")


@pytest.mark.also_on_spark
def test_a_wrong_chunk_is_named_and_recovery_walks_past_it(catalog: ld.Catalog) -> None:
    for _ in range(2):
        # Each by a writer of its own, so that each is stored whole.
        with catalog.writer("orders") as writer, writer.checkpoint() as cp:
            cp.state("agg", LARGE + bytes([cp.id]))
    where = col("checkpoint_id").eq(cp.id) & col("chunk").eq(1)
    (row,) = catalog.engine.read(OPERATOR_SNAPSHOTS.name, where=where).to_pylist()
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, where)
    wrong = {**row, "data": row["data"][:-1] + bytes([row["data"][-1] ^ 1])}
    catalog.engine.append(OPERATOR_SNAPSHOTS.name, pa.Table.from_pylist([wrong], schema=OPERATOR_SNAPSHOTS.schema))
    orders = catalog.pipeline("orders")
    with pytest.raises(CorruptionError) as caught:
        orders.state(cp.id, heal=False).read("agg")
    assert caught.value.details == {"operator": "agg", "partition": 0, "checkpoint_id": cp.id, "chunk": 1}
    assert caught.value.code in (ErrorCode.CHECKSUM_MISMATCH, ErrorCode.CORRUPTION)
    result = orders.validate(cp.id)
    assert not result.valid
    assert "chunk 1 of operator 'agg'" in result.issues[0]
    # The rows as they were right after the save are intact: time travel heals the checkpoint.
    report = orders.recover(dry_run=True)
    assert report.chosen_id == cp.id
    assert orders.state(cp.id).read("agg") == LARGE + bytes([cp.id])
    assert report.healed[0].table == OPERATOR_SNAPSHOTS.name


@pytest.mark.parametrize("checksum", ["ours", "another system's"])
@pytest.mark.parametrize("lost", ["all rows", "the layout"])
def test_an_operator_that_lost_its_rows_is_not_left_out(catalog: ld.Catalog, lost: str, checksum: str) -> None:
    states = {("a", 0): b"A" * 100, ("b", 0): b"B" * 100, ("b", 1): b"", ("c", 0): LARGE}
    with catalog.writer("orders") as writer:
        manifest = ld.CheckpointManifest.new(1, 1)
        attempt = Attempt.new(writer.held, 1)
        staged = writer.stage(attempt, manifest, states)
        other = staged.manifest if checksum == "ours" else replace(staged.manifest, state_checksum="ab" * 32)
        writer.commit(attempt, other, staged.parts, state=staged.state)
    orders = catalog.pipeline("orders")
    assert orders.state(1, heal=False).partitions() == {"a": [0], "b": [0, 1], "c": [0]}
    where = col("operator").eq("b")
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, where if lost == "all rows" else where & col("chunk").eq(-1))
    as_it_is = orders.state(1, heal=False)
    for look in (as_it_is.partitions, as_it_is.layouts, as_it_is.to_arrow, as_it_is.verify, orders.state(1).verify):
        with pytest.raises(CorruptionError, match="operator_snapshots has"):
            look()
    assert orders.recover(dry_run=True).chosen_id == 1
    state = orders.state(1)
    assert state.partitions() == {"a": [0], "b": [0, 1], "c": [0]}
    loaded = {(row["operator"], row["partition"]): row["payload"] for row in state.to_arrow().to_pylist()}
    assert loaded == states
    assert {(layout.operator, layout.partition) for layout in state.layouts()} == set(states)


def test_other_state_under_a_committed_id_is_a_conflict(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        manifest = ld.CheckpointManifest.new(1, 1)
        assert not writer.save(manifest, {("op", 0): LARGE}).replayed
        assert writer.save(manifest, {("op", 0): io.BytesIO(LARGE)}).replayed
        with pytest.raises(ConflictError, match="state_checksum"):
            writer.save(manifest, {("op", 0): LARGE + b"!"})
    (row,) = catalog.engine.read(
        OPERATOR_SNAPSHOTS.name, where=col("chunk").eq(0), columns=["xxh3", "raw_length"]
    ).to_pylist()
    assert row["raw_length"] == CHUNK_BYTES
    assert isinstance(row["xxh3"], Decimal)


@pytest.mark.also_on_spark
@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a group"])
def test_state_in_the_manifest_stays_when_the_operator_has_more_beside_it(catalog: ld.Catalog, together: bool) -> None:
    writer = catalog.writer("orders")
    inline = {name: OperatorCheckpoint.inline(name.encode()) for name in ("agg", "alone")}
    manifest = replace(ld.CheckpointManifest.new(1, 1), operator_states=inline)

    def save(states: dict[tuple[str, int], bytes]) -> Saved:
        if not together:
            return writer.save(manifest, states)
        (answer,) = catalog.save_together([Save(writer, manifest, states)])
        assert isinstance(answer, Saved)
        return answer

    with pytest.raises(InvalidInputError, match="partition 0 of operator 'agg' has its state already"):
        save({("agg", 0): b"other"})
    assert not save({("agg", 1): LARGE}).replayed
    assert save({("agg", 1): LARGE}).replayed
    orders = catalog.pipeline("orders")
    state = orders.state(1)
    assert state.partitions() == {"agg": [0, 1], "alone": [0]}
    assert (state.read("agg", 0), state.read("agg", 1), state.read("alone")) == (b"agg", LARGE, b"alone")
    assert orders.validate(1).valid
    assert orders.get(1).operator_states["alone"] == inline["alone"]
    assert orders.get(1).size_bytes == len(LARGE) + 3


def test_of_all_operators_together_only_so_much_travels_in_the_row(catalog: ld.Catalog) -> None:
    many = DEFAULT_POLICY.inline_together_bytes // INLINE_STATE_BYTES
    writer = catalog.writer("orders")
    ids = []
    for count in (many, many + 1):
        with writer.checkpoint() as cp:
            for number in range(count):
                cp.state(f"op{number}", bytes([number % 256]) * INLINE_STATE_BYTES)
        ids.append(cp.id)
    orders = catalog.pipeline("orders")
    few, all_of_them = map(orders.state, ids)
    assert (len(few.inline()), few.layouts()) == (many, [])
    assert (all_of_them.inline(), len(all_of_them.layouts())) == ({}, many + 1)
    assert all_of_them.read(f"op{many}") == bytes([many % 256]) * INLINE_STATE_BYTES
    policy = StatePolicy(inline_bytes=1 << 20, inline_together_bytes=0)
    with catalog.writer("one", state_policy=policy) as writer, writer.checkpoint() as alone:
        alone.state("op", bytes(1 << 20))
    assert catalog.pipeline("one").state(alone.id).inline() == {"op": bytes(1 << 20)}
