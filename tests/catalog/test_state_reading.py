"""Reading state: what fails goes on failing, what changed is never handed out, and how far it is is told to the end."""

import io
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.pipeline import Pipeline
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.state.progress import StateProgress
from laminar_delta.catalog.state.streaming import PieceFile
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, InvalidInputError

BLOCK = 1024
POLICY = StatePolicy(block_bytes=BLOCK, chunk_bytes=4 * BLOCK, part_bytes=64 * BLOCK)
BIG = random.Random(3).randbytes(100 * BLOCK)


def _saved(catalog: ld.Catalog, *states: bytes, policy: StatePolicy = POLICY) -> Pipeline:
    with catalog.writer("orders", state_policy=policy) as writer:
        for state in states:
            with writer.checkpoint() as cp:
                cp.state("op", state, inline=False)
    return catalog.pipeline("orders")


def test_a_file_that_failed_goes_on_failing(catalog: ld.Catalog) -> None:
    orders = _saved(catalog, BIG)
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, col("chunk").eq(20))
    file = orders.state(1, heal=False).open("op")
    for _ in range(2):
        with pytest.raises(CorruptionError, match="are missing"):
            while file.read(1000):
                pass


def test_a_file_that_somebody_cancelled_does_not_end_there(catalog: ld.Catalog) -> None:
    large = random.Random(4).randbytes(3 << 20)
    orders = _saved(catalog, large, policy=StatePolicy())

    def cancel(progress: StateProgress) -> None:
        raise OSError(f"cancelled at {progress.done}")

    file = orders.state(1).open("op", tell=cancel)
    for _ in range(2):
        with pytest.raises(OSError, match="cancelled"):
            while file.read(1 << 20):
                pass


def test_a_closed_file_lets_go_of_what_it_read_ahead(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    large = random.Random(4).randbytes(70 << 20)
    orders = _saved(catalog, large, policy=StatePolicy())
    before = set(threading.enumerate())
    file = orders.state(1).open("op")
    assert file.read(10) == large[:10]
    assert set(threading.enumerate()) - before
    file.close()
    assert not set(threading.enumerate()) - before
    file.close()


def test_pieces_are_closed_with_the_file() -> None:
    ended: list[str] = []

    def pieces() -> Any:
        try:
            yield b"one"
            yield b"two"
        finally:
            ended.append("closed")

    kept = pieces()
    with io.BufferedReader(PieceFile(kept), buffer_size=2) as file:
        assert file.read(1) == b"o"
    assert ended == ["closed"]


def test_inline_state_that_was_changed_is_not_handed_out(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("op", b"inline state")
    table = catalog.engine.read(MANIFESTS.name)
    rows = table.to_pylist()
    rows[0]["operators"][0]["state"] = b"TAMPERED !!!"
    catalog.engine.delete(MANIFESTS.name, col("pipeline").eq("orders"))
    catalog.engine.append(MANIFESTS.name, pa.Table.from_pylist(rows, schema=table.schema), metadata={"operation": "x"})
    orders = catalog.pipeline("orders")
    assert orders.state(cp.id).read("op") == b"inline state"
    with pytest.raises(CorruptionError, match="not the one that was committed"):
        orders.state(cp.id, heal=False)


def test_progress_is_told_of_every_kind_of_state(catalog: ld.Catalog) -> None:
    ld.register_apply("append", lambda state, delta: state + delta)
    with catalog.writer("orders") as writer:
        with writer.checkpoint() as cp:
            cp.state("op", b"BASE", inline=False)
            cp.state("empty", b"", inline=False)
            cp.state("small", b"inline")
        with writer.checkpoint() as delta:
            delta.state_delta("op", b"z" * 3_000_000, apply="append")
    for number, operator, length in (
        (cp.id, "op", 4),
        (cp.id, "empty", 0),
        (cp.id, "small", 6),
        (delta.id, "op", 3_000_004),
    ):
        told: list[StateProgress] = []
        catalog.pipeline("orders").state(number).read(operator, tell=told.append)
        assert told[-1] == StateProgress(operator, 0, length, length)
        assert all(progress.total in (None, length) for progress in told)


@pytest.mark.parametrize("made", [5, None, "text"])
def test_a_function_that_gives_no_state_is_refused(catalog: ld.Catalog, made: Any) -> None:
    ld.register_apply("wrong", lambda state, delta: made)
    with catalog.writer("orders") as writer:
        with writer.checkpoint() as cp:
            cp.state("op", b"BASE", inline=False)
        with writer.checkpoint() as cp:
            cp.state_delta("op", b"+", apply="wrong")
    with pytest.raises(InvalidInputError, match="'wrong' gave no state"):
        catalog.pipeline("orders").state(cp.id).read("op")


@pytest.mark.parametrize("apply", [None, "", 5, b"append", "\ud800"])
def test_a_delta_names_its_function(catalog: ld.Catalog, apply: Any) -> None:
    with catalog.writer("orders") as writer, pytest.raises(InvalidInputError, match="apply function"):
        writer.checkpoint().state_delta("op", b"+", apply=apply)


@pytest.mark.parametrize(("name", "function"), [("x", None), (5, bytes), ("", bytes), (None, bytes)])
def test_only_functions_with_names_are_registered(name: Any, function: Any) -> None:
    with pytest.raises(InvalidInputError):
        ld.register_apply(name, function)


@pytest.mark.parametrize(
    "fields",
    [
        {"block_bytes": 65536.0},
        {"block_bytes": "64k"},
        {"block_bytes": True},
        {"longest_chain": None},
        {"part_bytes": float("inf")},
        {"inline_bytes": 1e9},
        {"inline_bytes": -1},
        {"most_stale": float("nan")},
        {"most_stale": "much"},
        {"most_changed": None},
        {"most_changed": float("nan")},
        {"chunk_bytes": 3 << 30},
        {"block_bytes": 1 << 31, "chunk_bytes": 1 << 31},
    ],
)
def test_a_policy_of_what_are_no_numbers_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        StatePolicy(**fields)


@pytest.mark.parametrize("number", ["x", None, 1.0, True, -1, 2**70])
def test_a_checkpoint_is_asked_for_by_its_number(catalog: ld.Catalog, number: Any) -> None:
    for heal in (True, False):
        with pytest.raises(InvalidInputError):
            catalog.pipeline("orders").state(number, heal=heal)


SOURCES = pytest.mark.parametrize("source", [bytes, io.BytesIO])


@SOURCES
def test_a_state_that_shrank_does_not_keep_what_it_was(catalog: ld.Catalog, source: Callable[[bytes], Any]) -> None:
    with catalog.writer("orders", state_policy=POLICY) as writer:
        for length in (100, 5, 5):
            with writer.checkpoint() as cp:
                cp.state("op", source(BIG[: length * BLOCK]), inline=False)
    orders = catalog.pipeline("orders")
    assert orders.state(2).layouts()[0].needs == {2}
    assert orders.state(3).layouts()[0].stored_bytes == 5 * BLOCK


def test_a_frame_of_lost_rows_is_of_what_was_saved(catalog: ld.Catalog) -> None:
    orders = _saved(catalog, BIG, bytes([BIG[0] ^ 1]) + BIG[1:])
    state = orders.state(2)
    assert state.with_all_chunks(state.layouts())[0] is state
    for table in (OPERATOR_SNAPSHOTS, OPERATOR_DELTAS):
        catalog.engine.delete(table.name, col("chunk").eq(0))
        healed, layouts = state.with_all_chunks(state.layouts())
        assert healed is not state
        assert [layout.length for layout in layouts] == [len(BIG)]
        assert healed.read("op")[1:] == BIG[1:]
    unhealed = orders.state(2, heal=False)
    assert unhealed.with_all_chunks(unhealed.layouts())[0] is unhealed


def test_a_delta_stands_upon_the_part_that_its_checkpoint_accepted(catalog: ld.Catalog) -> None:
    ld.register_apply("append", lambda state, delta: state + delta)
    writer = catalog.writer("orders")
    manifest = ld.CheckpointManifest.new(1, 1)
    with writer.attempting(1) as attempt:
        # Twice under one attempt, as a step that is repeated does: only one is accepted.
        accepted = writer.stage(attempt, manifest, {("op", 0): b"ACCEPTED"})
        writer.stage(attempt, manifest, {("op", 0): b"NOT ACCEPTED"})
        writer.commit(attempt, accepted.manifest, accepted.parts, state=accepted.state)
    with writer.checkpoint() as cp:
        cp.state_delta("op", b"+1", apply="append")
    state = catalog.pipeline("orders").state(cp.id)
    (base,) = state.line(state.layouts()[0])
    assert base.length == len(b"ACCEPTED")
