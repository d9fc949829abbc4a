"""Operator state: any kind of source, many partitions, every byte verified."""

import io
import random
from decimal import Decimal

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.state.policy import DEFAULT_POLICY, StatePolicy
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, CorruptionError, ErrorCode, InvalidInputError, NotFoundError

INLINE_STATE_BYTES = DEFAULT_POLICY.inline_bytes
CHUNK_BYTES = DEFAULT_POLICY.chunk_bytes
LARGE = random.Random(5).randbytes(5 * CHUNK_BYTES // 2)


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
