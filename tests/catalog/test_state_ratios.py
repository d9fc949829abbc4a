"""What state costs on the disk and to read, in parts of its size: the figures that hold for large states, on small ones."""

import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.catalog.state import streaming
from laminar_delta.catalog.state.policy import DEFAULT_POLICY, StatePolicy
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.embedded import payloads
from laminar_delta.engine.predicate import col
from tests.support.catalogs import ready_made
from tests.support.counting import rows_read

BLOCK = 1024
BLOCKS = 256
POLICY = StatePolicy(block_bytes=BLOCK, chunk_bytes=4 * BLOCK)
STATE = random.Random(21).randbytes(BLOCKS * BLOCK + 9)


def _in_pieces(state: bytes) -> Iterator[bytes]:
    return (state[at : at + 1000] for at in range(0, len(state), 1000))


SOURCES = pytest.mark.parametrize("source", [bytes, io.BytesIO, _in_pieces], ids=["bytes", "file", "pieces"])


def _changed(state: bytes, chance: random.Random, part: float) -> bytes:
    changed = bytearray(state)
    for block in chance.sample(range(len(state) // BLOCK), round(len(state) / BLOCK * part)):
        changed[block * BLOCK : block * BLOCK + 8] = chance.randbytes(8)
    return bytes(changed)


def _save(writer: Writer, source: Any) -> int:
    with writer.checkpoint() as cp:
        cp.state("agg", source, inline=False)
    return cp.id


def _ratio(catalog: ld.Catalog, number: int, state: bytes) -> float:
    """What a load has to go through, to the state; it is read and verified on the way."""
    saved = catalog.pipeline("orders").state(number)
    assert saved.read("agg") == state
    (layout,) = saved.layouts()
    stored = 0
    for table in (OPERATOR_SNAPSHOTS, OPERATOR_DELTAS):
        numbers = sorted({store.checkpoint_id for store in layout.stores if store.table == table.name})
        where = col("checkpoint_id").is_in(numbers) & col("chunk").ge(0)
        rows = catalog.engine.read(table.name, where=where, columns=["raw_length"])
        stored += sum(row["raw_length"] for row in rows.to_pylist())
    assert stored == layout.stored_bytes
    return stored / len(state)


@SOURCES
def test_however_much_changes_a_load_reads_at_most_twice_the_state(
    catalog: ld.Catalog, source: Callable[[bytes], Any]
) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    chance = random.Random(22)
    state = STATE
    for part in (0, *[0.1] * 7, 0.94, 0.3, 0.3, 0.5, 0.6, 0.02):
        state = _changed(state, chance, part)
        number = _save(writer, source(state))
        assert _ratio(catalog, number, state) <= 1 + POLICY.most_stale
    assert catalog.pipeline("orders").validate(number).valid


@SOURCES
@pytest.mark.parametrize("cut", [0, 9], ids=["in whole blocks", "and a bit"])
def test_a_state_that_shrinks_needs_no_more_than_it_is(
    catalog: ld.Catalog, source: Callable[[bytes], Any], cut: int
) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    state = STATE[: len(STATE) - 9 + cut]
    _save(writer, source(state))
    for shorter in (
        state[-3 * BLOCK - cut :],
        state[:BLOCK],
        state[:BLOCK] + b"grown",
        state + b"grown more",
        b"",
        state,
    ):
        number = _save(writer, source(shorter))
        assert catalog.pipeline("orders").state(number).read("agg") == shorter
        if shorter:
            assert _ratio(catalog, number, shorter) <= 1 + POLICY.most_stale


def test_what_cannot_be_stored_anew_stays_upon_its_chain(catalog: ld.Catalog, caplog: pytest.LogCaptureFixture) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    _save(writer, STATE)
    catalog.engine.delete(OPERATOR_SNAPSHOTS.name, col("chunk").eq(1))
    number = _save(writer, io.BytesIO(STATE[: 8 * BLOCK]))
    assert [getattr(record, "event", None) for record in caplog.records] == ["state.not_stored_anew"]
    # Healed, as any that somebody took rows of.
    assert catalog.pipeline("orders").state(number).read("agg") == STATE[: 8 * BLOCK]
    again = _save(writer, io.BytesIO(STATE[: 8 * BLOCK]))
    assert catalog.pipeline("orders").state(again).layouts()[0].needs == {again}


@SOURCES
@pytest.mark.parametrize(("part", "most"), [(0.01, 0.03), (0.1, 0.13)])
def test_a_save_stores_what_changed(
    catalog: ld.Catalog, source: Callable[[bytes], Any], part: float, most: float
) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    _save(writer, source(STATE))
    full = catalog.engine.read(OPERATOR_SNAPSHOTS.name)
    number = _save(writer, source(_changed(STATE, random.Random(23), part)))
    assert catalog.pipeline("orders").state(number).layouts()[0].needs == {1, number}
    delta = catalog.engine.read(OPERATOR_DELTAS.name)
    # Without the names, which weigh more the smaller blocks are: here they have a sixty-fourth of the usual size.
    assert _data(delta) <= most * _data(full)


@SOURCES
def test_of_blocks_that_changed_alike_one_is_counted_and_stored(
    catalog: ld.Catalog, source: Callable[[bytes], Any]
) -> None:
    """So the same is stored whatever a state comes as: here most of it was cleared."""
    writer = catalog.writer("orders", state_policy=POLICY)
    state = STATE[: 64 * BLOCK]
    _save(writer, source(state))
    number = _save(writer, source(state[: 24 * BLOCK] + bytes(40 * BLOCK)))
    (layout,) = catalog.pipeline("orders").state(number).layouts()
    assert [(store.checkpoint_id, store.raw_bytes) for store in layout.stores] == [(1, 64 * BLOCK), (number, BLOCK)]
    # Where a snapshot would store as little, one is begun: of what is left, more than half changed.
    again = _save(writer, bytes([1]) * 64 * BLOCK)
    assert catalog.pipeline("orders").state(again).layouts()[0].needs == {again}


def _data(rows: Any) -> int:
    return sum(map(len, rows["data"].to_pylist()))


def test_the_longest_chain_is_read_in_one_look_at_each_table(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders", state_policy=POLICY)
    chance = random.Random(24)
    state = STATE
    longest = 0
    for _ in range(20):
        number = _save(writer, io.BytesIO(state))
        state = _changed(state, chance, 0.02)
        if len(catalog.pipeline("orders").state(number).layouts()[0].stores) == POLICY.longest_chain:
            longest = number
    seen = {}
    saved = catalog.pipeline("orders").state(longest)
    for number in (1, longest):
        saved = catalog.pipeline("orders").state(number)
        with (
            rows_read(catalog.engine, OPERATOR_SNAPSHOTS.name) as whole,
            rows_read(catalog.engine, OPERATOR_DELTAS.name) as changed,
        ):
            saved.verify()
        seen[number] = [*whole, *changed]
    # The layouts and the chunks, of each table.
    assert len(seen[longest]) <= 4
    assert sum(seen[longest]) <= 2 * sum(seen[1])


def _bytes_read() -> int:
    """By this process, from files: whatever library read them."""
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


def test_of_the_longest_chain_no_more_than_twice_the_state_is_read_whatever_the_windows(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of files, not of rows: what is read beside the chunks that are wanted counts too."""
    # All sizes in the proportions they have with 256 MiB, but for what is kept: that is to last for much larger states.
    policy = StatePolicy(block_bytes=16 << 10, chunk_bytes=256 << 10)
    monkeypatch.setattr(payloads, "ROW_GROUP_BYTES", policy.chunk_bytes)
    monkeypatch.setattr(streaming, "KEPT_BYTES", 2 * DEFAULT_POLICY.longest_chain * policy.chunk_bytes)
    monkeypatch.setattr(streaming, "WINDOW_BYTES", 8 << 20)
    monkeypatch.setattr(streaming, "WHOLE_BYTES", 24 << 20)
    large = random.Random(25).randbytes(64 << 20)
    catalog = ready_made("embedded", tmp_path / "catalog", request)()
    chance = random.Random(26)
    with catalog.writer("orders", state_policy=policy) as writer:
        for _ in range(policy.longest_chain):
            number = _save(writer, large)
            changed = bytearray(large)
            for block in chance.sample(range(len(large) // policy.block_bytes), 180):
                changed[block * policy.block_bytes] ^= 0xFF
            state, large = large, bytes(changed)
    saved = catalog.pipeline("orders").state(number)
    (layout,) = saved.layouts()
    assert len(layout.stores) == policy.longest_chain
    assert layout.stored_bytes > 1.6 * layout.length
    before = _bytes_read()
    assert saved.read("agg") == state
    assert _bytes_read() - before <= 2 * len(state)


def test_of_states_stored_by_many_checkpoints_no_more_is_read_together_than_they_are(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each of another set of checkpoints, so that what is asked for is a condition for each set."""
    catalog = ready_made("embedded", tmp_path / "catalog", request)()
    states = {("agg", number): random.Random(number).randbytes(1 << 20) for number in range(24)}
    with catalog.writer("orders") as writer:
        for turn in range(3):
            for operator, partition in list(states)[turn * 8 :]:
                states[operator, partition] = random.Random(100 * turn + partition).randbytes(1 << 20)
            with writer.checkpoint() as cp:
                for (operator, partition), content in states.items():
                    cp.state(operator, content, partition=partition)
    saved = catalog.pipeline("orders").state(cp.id)
    assert {store.checkpoint_id for layout in saved.layouts() for store in layout.stores} == {1, 2, 3}
    before = _bytes_read()
    saved.verify()
    assert _bytes_read() - before <= 1.2 * sum(map(len, states.values()))
