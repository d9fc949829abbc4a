"""Many small states are read with a few looks at the tables; what is wrong with one of them is said of that one."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import laminar_delta as ld
from laminar_delta.catalog.state import together
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, StorageError
from tests.support.catalogs import ready_made
from tests.support.counting import rows_read

MANY = 60
BLOCK = 256
POLICY = StatePolicy(block_bytes=BLOCK, chunk_bytes=2 * BLOCK, inline_bytes=0)
Key = tuple[str, int]


def _states(seed: int = 1) -> dict[Key, bytes]:
    chance = random.Random(seed)
    keys: list[Key] = [("agg", number) for number in range(MANY)] + [(f"join{number}", 0) for number in range(MANY)]
    return {key: chance.randbytes(chance.choice([0, 1, BLOCK, 5 * BLOCK + 3])) for key in keys}


def _save(catalog: ld.Catalog, states: dict[Key, bytes], policy: StatePolicy = POLICY) -> int:
    with catalog.writer("orders", state_policy=policy) as writer:
        writer.recover()
        with writer.checkpoint() as cp:
            for (operator, partition), state in states.items():
                cp.state(operator, state, partition=partition)
    return cp.id


@contextmanager
def _counted(catalog: ld.Catalog) -> Iterator[list[int]]:
    """Within: the rows that every look at a state table gave."""
    found: list[int] = []
    with ExitStack() as stack:
        tables = [
            stack.enter_context(rows_read(catalog.engine, spec.name)) for spec in (OPERATOR_SNAPSHOTS, OPERATOR_DELTAS)
        ]
        yield found
        found.extend(rows for table in tables for rows in table)


def _given(table: pa.Table) -> dict[Key, bytes]:
    return {(row["operator"], row["partition"]): row["payload"] for row in table.to_pylist()}


def test_many_partitions_cost_a_few_looks(catalog: ld.Catalog) -> None:
    states = _states()
    number = _save(catalog, states)
    rows = catalog.engine.read(OPERATOR_SNAPSHOTS.name, columns=["chunk"]).num_rows
    orders = catalog.pipeline("orders")
    with _counted(catalog) as seen:
        assert _given(orders.state(number).to_arrow()) == states
    # The layouts, then the chunks.
    assert len(seen) <= 3
    assert sum(seen) <= rows
    with _counted(catalog) as seen:
        orders.state(number).verify()
    assert len(seen) <= 3
    with _counted(catalog) as seen:
        assert orders.validate(number).valid
    assert len(seen) <= 4
    with _counted(catalog) as seen:
        assert orders.recover().chosen_id == number
    assert len(seen) <= 4
    with _counted(catalog) as seen:
        state = orders.state(number)
        assert state.with_all_chunks(state.layouts())[0] is state
    assert len(seen) <= 4


def test_so_do_those_of_long_chains_each_stored_by_others(catalog: ld.Catalog) -> None:
    chance = random.Random(2)
    states = {key: chance.randbytes(6 * BLOCK) for key in _states()}
    with catalog.writer("orders", state_policy=POLICY) as writer:
        for _ in range(6):
            for key in chance.sample(sorted(states), len(states) // 5):
                states[key] = chance.randbytes(BLOCK) + states[key][BLOCK:]
            with writer.checkpoint() as cp:
                for (operator, partition), state in states.items():
                    cp.state(operator, state, partition=partition)
    saved = catalog.pipeline("orders").state(cp.id)
    assert len({layout.stores for layout in saved.layouts()}) > 10
    with _counted(catalog) as seen:
        assert _given(saved.to_arrow()) == states
    assert len(seen) <= 4
    with _counted(catalog) as seen:
        saved.verify()
    assert len(seen) <= 4


def test_so_do_application_deltas(catalog: ld.Catalog) -> None:
    ld.register_apply("append", lambda state, delta: state + delta)
    keys = [("agg", number) for number in range(MANY)]
    with catalog.writer("orders", state_policy=POLICY) as writer:
        with writer.checkpoint() as cp:
            for operator, partition in keys:
                cp.state(operator, b"%d" % partition, partition=partition)
        for turn in (1, 2):
            with writer.checkpoint() as cp:
                for operator, partition in keys:
                    if partition % 2:
                        cp.state_delta(operator, b"+%d" % turn, apply="append", partition=partition)
                    else:
                        cp.state(operator, b"whole", partition=partition)
    state = catalog.pipeline("orders").state(cp.id)
    with _counted(catalog) as seen:
        assert _given(state.to_arrow()) == {key: b"%d+1+2" % key[1] if key[1] % 2 else b"whole" for key in keys}
    assert len(seen) <= 6
    with _counted(catalog) as seen:
        state.verify()
    assert len(seen) <= 6
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, col("checkpoint_id").eq(1) & col("partition").eq(7))
    with pytest.raises(CorruptionError, match="operator 'agg' partition 7 stands upon checkpoint 1"):
        state.verify()


def test_only_so_much_is_read_at_a_time(catalog: ld.Catalog) -> None:
    states = _states()
    number = _save(catalog, states)
    state = catalog.pipeline("orders").state(number)
    most = 40 * BLOCK
    with patch.object(together, "WHOLE_BYTES", most), _counted(catalog) as seen:
        assert _given(state.to_arrow()) == states
    total = sum(len(content) for content in states.values())
    assert total // most <= len(seen) <= 3 * total // most
    with patch.object(together, "MOST_CHECKPOINTS", 0), _counted(catalog) as seen:
        state.verify()
    assert len(seen) >= sum(map(bool, states.values()))


@pytest.mark.parametrize("how", ["changed", "taken out"])
def test_one_that_is_damaged_is_named_and_the_others_are_read(catalog: ld.Catalog, how: str) -> None:
    states = _states()
    number = _save(catalog, states)
    wrong = next(key for key, content in states.items() if len(content) > BLOCK and key[1] > 5)
    where = col("operator").eq(wrong[0]) & col("partition").eq(wrong[1]) & col("chunk").eq(1)
    chunk = catalog.engine.read(OPERATOR_SNAPSHOTS.name, where=where)
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, where)
    if how == "changed":
        row = chunk.to_pylist()[0]
        row["data"] = row["data"][:-1] + bytes([row["data"][-1] ^ 1])
        catalog.engine.append(OPERATOR_SNAPSHOTS.name, pa.Table.from_pylist([row], schema=chunk.schema))
    orders = catalog.pipeline("orders")
    message = f"operator '{wrong[0]}' partition {wrong[1]}"
    for read in (CheckpointState.verify, CheckpointState.to_arrow):
        with pytest.raises(CorruptionError, match=message):
            read(orders.state(number, heal=False))
    findings = [str(finding) for finding in orders.validate(number).findings]
    assert any(message in finding for finding in findings)
    # As it was saved.
    assert _given(orders.state(number).to_arrow()) == states
    found: dict[Key, bytes] = {}
    state = orders.state(number, heal=False)
    inline = {(operator, 0) for operator in state.inline()}
    for line, (pieces,) in together.stream_each(state.reading, state.owner, state.lines(state.layouts())):
        key = line[-1].operator, line[-1].partition
        if key == wrong:
            with pytest.raises(CorruptionError, match=message):
                list(pieces)
        else:
            found[key] = b"".join(pieces)
    assert found == {key: content for key, content in states.items() if key != wrong and key not in inline}


def test_a_row_group_that_cannot_be_read_takes_only_those_in_it_along(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = tmp_path / "catalog"
    catalog = ready_made("embedded", place, request)()
    states = {("agg", number): random.Random(number).randbytes(200_000) for number in range(100)}
    number = _save(catalog, states, StatePolicy())
    (path,) = (place / OPERATOR_SNAPSHOTS.name).glob("*.parquet")
    file = pq.ParquetFile(path)
    assert file.num_row_groups > 2
    group = file.metadata.row_group(1)
    data = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "data")
    lost = {
        row["partition"]
        for row in file.read_row_group(1, columns=["partition", "chunk"]).to_pylist()
        if row["chunk"] >= 0
    }
    whole = bytearray(path.read_bytes())
    whole[data.data_page_offset : data.data_page_offset + 8] = b"\xff" * 8
    path.write_bytes(whole)
    state = catalog.pipeline("orders").state(number, heal=False)
    with pytest.raises((CorruptionError, StorageError), match=path.name):
        state.verify()
    found: dict[Key, bytes] = {}
    failed: set[int] = set()
    for line, (pieces,) in together.stream_each(state.reading, state.owner, state.lines(state.layouts())):
        key = line[-1].operator, line[-1].partition
        try:
            found[key] = b"".join(pieces)
        except (CorruptionError, StorageError):
            failed.add(key[1])
    assert failed == lost
    assert found == {key: content for key, content in states.items() if key[1] not in lost}


@pytest.mark.parametrize("read", [CheckpointState.verify, CheckpointState.to_arrow])
def test_who_reads_all_is_told_of_each_state_and_may_cancel(
    catalog: ld.Catalog, read: Callable[..., pa.Table | None]
) -> None:
    ld.register_apply("append", lambda state, delta: state + delta)
    states = _states()
    with catalog.writer("orders", state_policy=POLICY) as writer:
        for turn in range(2):
            with writer.checkpoint() as cp:
                for (operator, partition), content in states.items():
                    if turn and partition == 7:
                        cp.state_delta(operator, b"+", apply="append", partition=partition)
                    else:
                        cp.state(operator, content, partition=partition)
    state = catalog.pipeline("orders").state(cp.id)
    heard: list[ld.StateProgress] = []
    read(state, tell=heard.append)
    told = {(one.operator, one.partition): one.done for one in heard}
    # Others are in the manifest row, which is read already.
    stored = states.keys() - {(operator, 0) for operator in state.inline()}
    assert told.keys() == stored
    # Of a delta: the state it makes, where one is made.
    assert all(told[key] == len(states[key]) for key in stored if key[1] != 7)
    assert told["agg", 7] == (1 if read is CheckpointState.verify else len(states["agg", 7]) + 1)
    assert all(one.total == one.done for one in heard)

    heard.clear()

    def cancel(progress: ld.StateProgress) -> None:
        heard.append(progress)
        if len(heard) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(state, tell=cancel)
    assert len(heard) == 20
