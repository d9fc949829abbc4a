"""Saving frames without a cluster: what is refused beforehand, what a task makes of rows, what the driver does not commit."""

import json
import pickle
import random
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake.transaction import AddAction
from pyspark.errors import PySparkException

import laminar_delta as ld
from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.state.layout import Layout
from laminar_delta.catalog.state.policy import DEFAULT_POLICY, StatePolicy
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.distributed import loading
from laminar_delta.distributed.cutting import Order, cut_rows, write_parts
from laminar_delta.distributed.plainly import plain_errors
from laminar_delta.distributed.saving import check_there, stage_frame
from laminar_delta.distributed.sharing import each_state, packs
from laminar_delta.engine import open_engine
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, InvalidInputError, StorageError
from tests.support.counting import rows_read
from tests.support.gathered import gathered

TABLE = OPERATOR_SNAPSHOTS.name
POLICY = DEFAULT_POLICY
ATTEMPT = Attempt(pipeline="orders", checkpoint_id=1, attempt_id="a", generation=1, owner="job")


def test_an_engine_that_executors_cannot_write_for_is_refused() -> None:
    frame = cast("Any", None)  # not looked at
    with pytest.raises(InvalidInputError, match="executors cannot write to a catalog of the engine 'memory'") as caught:
        stage_frame(open_engine("memory", "here"), ATTEMPT, frame, policy=DEFAULT_POLICY, upon={})
    assert caught.value.found == "memory"
    assert "cp.state" in str(caught.value)


def _order(place: Path, **more: Any) -> Order:
    return Order(attempt=ATTEMPT, policy=POLICY, upon={}, location=str(place), **more)


def _added(name: str, size: int) -> AddAction:
    return AddAction(
        path=name, size=size, partition_values={}, modification_time=int(time.time()), data_change=True, stats="{}"
    )


@pytest.mark.parametrize("size", [None, 9])
def test_files_that_the_driver_does_not_see_whole_are_not_committed(tmp_path: Path, size: int | None) -> None:
    table = tmp_path / TABLE
    table.mkdir()
    (table / "there.parquet").write_bytes(bytes(10))
    if size is not None:
        (table / "part.parquet").write_bytes(bytes(size))
    check_there(_order(tmp_path), TABLE, [_added("there.parquet", 10)])
    with pytest.raises(StorageError, match=r"part\.parquet, which the driver does not see") as caught:
        check_there(_order(tmp_path), TABLE, [_added("there.parquet", 10), _added("part.parquet", 10)])
    assert (caught.value.expected, caught.value.found) == (10, size)


def test_a_task_puts_whole_states_and_deltas_into_their_tables(tmp_path: Path) -> None:
    whole, delta = OPERATOR_SNAPSHOTS.name, OPERATOR_DELTAS.name
    for table in (whole, delta):
        (tmp_path / table).mkdir()
    upon: dict[tuple[str, int], Layout] = {}
    tables = []
    for number in (1, 2, 3):
        attempt = replace(ATTEMPT, checkpoint_id=number, attempt_id=f"a{number}")
        policy = StatePolicy(block_bytes=4, longest_chain=2)
        order = Order(attempt=attempt, policy=policy, upon=upon, location=str(tmp_path))
        # Of one operator the same partition each time, of the other always another.
        rows: dict[str, list[Any]] = {
            "operator": ["a", "b"],
            "partition": [0, number],
            "payload": [b"same%d" % number] * 2,
        }
        said = [row for batch in write_parts(order, [pa.RecordBatch.from_pydict(rows)]) for row in batch.to_pylist()]
        assert all((tmp_path / row["table"] / json.loads(row["action"])["path"]).exists() for row in said)
        layouts = [(row["table"], layout) for row in said for layout in pickle.loads(row["layouts"])]
        assert all(layout.origin is not None and layout.origin.table == table for table, layout in layouts)
        upon = {(layout.operator, layout.partition): layout for _, layout in layouts}
        tables.append({layout.operator: table for table, layout in layouts})
    # The third begins a chain anew.
    assert tables == [{"a": whole, "b": whole}, {"a": delta, "b": whole}, {"a": whole, "b": whole}]


def _last(number: int, payload: bytes, upon: Layout | None) -> Layout:
    """What a task makes of a state in one row, upon the layout of the one before."""
    policy = StatePolicy(block_bytes=1024, chunk_bytes=4096)
    attempt = replace(ATTEMPT, checkpoint_id=number, attempt_id=f"a{number}")
    order = Order(
        attempt=attempt, policy=policy, upon={} if upon is None else {("a", 0): upon}, location="not written to"
    )
    batch = pa.RecordBatch.from_pylist([{"operator": "a", "partition": 0, "payload": payload}])
    (layout,) = [layout for _, _, layout in cut_rows(order, [batch]) if layout is not None]
    return layout


def test_a_state_in_one_row_that_shrank_or_is_another_is_stored_whole() -> None:
    chance = random.Random(1)
    state = chance.randbytes(256 << 10)
    before = _last(1, state, None)
    shrunk = _last(2, state[: 4 << 10], before)
    assert (shrunk.stored_bytes, shrunk.needs) == (4 << 10, {2})
    another = state[:1024] + chance.randbytes(255 << 10)
    assert (changed := _last(2, another, before)).needs == {2}
    assert changed.stored_bytes == 256 << 10
    # And a delta where little changed.
    assert _last(2, state[:-1024] + another[-1024:], before).needs == {1, 2}


def test_a_load_of_states_in_rows_reads_no_more_than_a_chain_may_hold() -> None:
    chance = random.Random(2)
    state = bytearray(chance.randbytes(100 << 10))
    layout = _last(1, bytes(state), None)
    for number in range(2, 30):
        # Now and then nearly all of it, after saves of which little was expected.
        for block in chance.sample(range(100), 99 if number % 8 == 0 else 9):
            state[block << 10 : (block << 10) + 8] = chance.randbytes(8)
        layout = _last(number, bytes(state), layout)
        assert layout.stored_bytes <= 1.75 * layout.length


def test_errors_of_tasks_are_raised_as_what_they_are() -> None:
    text = """An exception was thrown from the Python worker. Please see the stack trace below.
    Traceback (most recent call last):
      File "x.py", line 1, in raw_of
    laminar_delta.errors.FormatError: too long
    The above exception was the direct cause of the following exception:
    laminar_delta.errors.CorruptionError: chunk 3 of operator 'agg' is not whole. Restore it.
    """
    with pytest.raises(CorruptionError) as caught, plain_errors():
        raise PySparkException(text)
    assert str(caught.value) == "chunk 3 of operator 'agg' is not whole. Restore it."
    other = PySparkException("org.apache.spark.SparkException: Job aborted")
    with pytest.raises(PySparkException) as kept, plain_errors():
        raise other
    assert kept.value is other


def test_a_state_in_several_rows_that_shrank_is_stored_anew_by_the_task(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path))
    state = random.Random(3).randbytes(64 << 10)
    policy = StatePolicy(block_bytes=1024, chunk_bytes=4096)
    with catalog.writer("orders", state_policy=policy) as writer, writer.checkpoint() as cp:
        cp.state("a", state, inline=False)
    (before,) = catalog.pipeline("orders").state(cp.id).layouts()
    order = Order(
        attempt=replace(ATTEMPT, checkpoint_id=2, attempt_id="b"),
        policy=policy,
        upon={("a", 0): before},
        location=str(tmp_path),
    )
    rows = [
        {"operator": "a", "partition": 0, "payload": state[:2048], "sequence": 0},
        {"operator": "a", "partition": 0, "payload": b"other", "sequence": 1},
    ]
    said = [row for made in write_parts(order, [pa.RecordBatch.from_pylist(rows)]) for row in made.to_pylist()]
    (layout,) = [layout for row in said for layout in pickle.loads(row["layouts"])]
    assert layout.needs == {2}
    assert layout.stored_bytes == layout.length == 2053


def test_states_are_packed_into_few_tasks_by_their_length() -> None:
    small = {("agg", number): 20_000 for number in range(13_421)}
    found = packs(small, 8)
    assert len(found) == 8
    assert [key for pack in found for key in pack] == sorted(small)
    assert max(map(len, found)) - min(map(len, found)) <= 1
    mixed = {**small, ("large", 0): 1 << 30, ("large", 1): 1 << 30}
    alone = packs(mixed, 16)
    assert len(alone) <= 16
    assert [("large", 0)] in alone
    assert packs({("a", 0): 0}, 8) == [[("a", 0)]]
    assert packs({}, 8) == []


@pytest.mark.parametrize("rotten", [False, True])
def test_a_task_reads_small_states_together_and_names_the_one_that_is_damaged(tmp_path: Path, rotten: bool) -> None:
    catalog = ld.open_catalog(str(tmp_path))
    states = {("agg", number): random.Random(number).randbytes(3000) for number in range(40)}
    states["large", 0] = random.Random(50).randbytes(3 << 20)
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("inline", b"inline")
        for (operator, partition), content in states.items():
            cp.state(operator, content, partition=partition)
    if rotten:
        catalog.engine.delete(TABLE, col("operator").eq("agg") & col("partition").eq(7) & col("chunk").ge(0))
    state = catalog.pipeline("orders").state(cp.id, heal=False)
    found: dict[tuple[str, int], bytes] = {}
    with rows_read(catalog.engine, TABLE) as looks:
        for key, pieces in each_state(state, sorted([*states, ("inline", 0)])):
            if rotten and key == ("agg", 7):
                with pytest.raises(CorruptionError, match="operator 'agg' partition 7"):
                    list(pieces)
            else:
                found[key] = b"".join(pieces)
    expected = {**states, ("inline", 0): b"inline"}
    assert found == {key: content for key, content in expected.items() if not (rotten and key == ("agg", 7))}
    assert len(looks) < 10


def test_a_batch_of_rows_is_not_held_a_second_time() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"operator": "a", "partition": number, "payload": bytes(1 << 20)} for number in range(32)]
    )
    tracemalloc.start()
    try:
        assert sum(layout is not None for _, _, layout in cut_rows(_order(Path()), [batch])) == 32
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


WHOLE = ("operator", "partition", "payload")
IN_PIECES = ("operator", "partition", "sequence", "payload")


def _states(names: tuple[str, ...], *batches: list[tuple[object, ...]]) -> dict[tuple[str, int], bytes]:
    """What a task makes of its batches of a frame."""
    kinds: dict[str, pa.DataType] = {
        "operator": pa.string(),
        "partition": pa.int32(),
        "sequence": pa.int64(),
        "payload": pa.binary(),
    }
    schema = pa.schema({name: kinds[name] for name in names})
    given = (
        pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=schema)
        for rows in batches
    )
    made = list(cut_rows(_order(Path()), given))
    layouts = [layout for _, _, layout in made if layout is not None]
    return gathered(layouts, [row for _, row, layout in made if layout is None])


def test_a_task_makes_one_state_of_a_row_or_of_pieces_in_order() -> None:
    assert _states(WHOLE, [("a", 0, b"x"), ("a", 1, b"y")], [("b", 0, b"")]) == {
        ("a", 0): b"x",
        ("a", 1): b"y",
        ("b", 0): b"",
    }
    # Also across batches.
    assert _states(IN_PIECES, [("a", 0, 0, b"x")], [("a", 0, 1, b"y"), ("a", 1, 0, b"z")]) == {
        ("a", 0): b"xy",
        ("a", 1): b"z",
    }


@pytest.mark.parametrize(
    ("names", "rows", "words"),
    [
        (WHOLE, [("a", 0, b"x"), ("a", 0, b"y")], "partition 0 of operator 'a' comes more than once"),
        (IN_PIECES, [("a", 0, 0, b"x"), ("a", 0, 0, b"y")], "partition 0 of operator 'a' comes more than once"),
        (IN_PIECES, [("a", 0, 0, b"x"), ("a", 0, 2, b"y")], "pieces of partition 0 of operator 'a' are missing"),
        (IN_PIECES, [("a", 0, None, b"x"), ("a", 0, 1, b"y")], "no sequence"),
        (IN_PIECES, [("a", 0, 3, b"x"), ("a", 0, 4, b"y")], "the beginning of partition 0 of operator 'a' is missing"),
        (IN_PIECES, [("a", 0, -1, b"x"), ("a", 0, 0, b"y")], "the beginning of partition 0 of operator 'a' is missing"),
        (WHOLE, [("a", None, b"x")], "no operator, partition or payload"),
        (WHOLE, [("", 0, b"x")], "an operator has no name"),
        (WHOLE, [("a", -1, b"x")], "partition: expected an integer from 0"),
    ],
)
def test_rows_that_do_not_make_one_state_are_refused(
    names: tuple[str, ...], rows: list[tuple[object, ...]], words: str
) -> None:
    for batches in ([rows], [[row] for row in rows]):
        with pytest.raises(InvalidInputError, match=words):
            _states(names, *batches)


@pytest.mark.parametrize("size", [0, -1])
def test_pieces_of_nothing_are_refused(size: int) -> None:
    catalog = ld.open_catalog("pieces", engine="memory", store={})
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("agg", b"x")
    with pytest.raises(InvalidInputError, match="piece_bytes is too small"):
        catalog.pipeline("orders").state(cp.id).frame(None, piece_bytes=size)


def test_a_catalog_that_executors_cannot_read_is_refused() -> None:
    catalog = ld.open_catalog("frames", engine="memory", store={})
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("agg", b"x")
    with pytest.raises(InvalidInputError, match="executors cannot read from a catalog of the engine 'memory'"):
        catalog.pipeline("orders").state(cp.id).frame(None)


def test_a_state_that_deltas_made_too_long_for_a_cell_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LARGEST_CELL", 10)
    key = {"operator": "agg", "partition": 0}
    assert len(list(loading._batches(key, iter([b"12345", b"67890"]), None))) == 1
    with pytest.raises(InvalidInputError, match="11 bytes does not fit into one cell"):
        list(loading._batches(key, iter([b"12345", b"678901"]), None))
    assert len(list(loading._batches(key, iter([b"12345", b"678901"]), 6))) == 2
