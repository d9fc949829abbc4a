"""Any sequence of states reads back exactly at every kept checkpoint, whatever was pruned, removed or harmed meanwhile."""

import datetime as dt
import io
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import laminar_delta as ld
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.tables import BY_NAME, OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.codec import block_hash, block_name, compress_block
from laminar_delta.engine.predicate import Predicate, col
from laminar_delta.errors import CorruptionError

BLOCK = 1024
POLICY = StatePolicy(block_bytes=BLOCK, chunk_bytes=4 * BLOCK, part_bytes=64 * BLOCK, longest_chain=4)
BIG = random.Random(1).randbytes(40 * BLOCK + 7)
AT_ONCE = MaintenancePolicy(grace=dt.timedelta(0), vacuum=False)

Key = tuple[str, int]
States = dict[Key, bytes]
Row = dict[str, Any]
Edit = tuple[Key, int, int, str, str]
"""Whose state, how long, which block changes, how, and what happens after the save."""

SIZES = st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, 4 * BLOCK + 1, 9 * BLOCK])
KEYS = st.tuples(st.sampled_from(["agg", "join"]), st.integers(0, 2))
KINDS = st.sampled_from(
    ["grow", "change", "cut", "cut only", "divide anew", "remove partition", "remove operator", "no state"]
)
AFTER = st.sampled_from(["", "", "", "pin", "prune", "take over"])
EDITS = st.lists(st.tuples(KEYS, SIZES, st.integers(0, 9), KINDS, AFTER), min_size=1, max_size=12)
HARM = st.lists(st.tuples(KEYS, SIZES, st.integers(0, 9), KINDS, AFTER | st.just("harm")), min_size=2, max_size=8)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def _edited(current: States, edit: Edit) -> States:
    key, size, change, kind, _ = edit
    others = {found: state for found, state in current.items() if found[0] != key[0]}
    if kind == "remove operator":
        return others
    if kind == "remove partition":
        return {found: state for found, state in current.items() if found != key}
    if kind == "divide anew":
        # The same bytes over another number of partitions.
        whole = b"".join(state for found, state in sorted(current.items()) if found[0] == key[0])
        share = -(-len(whole) // (key[1] + 1))
        return {**others, **{(key[0], n): whole[n * share : (n + 1) * share] for n in range(key[1] + 1)}}
    before = current.get(key, BIG)
    state = (before + BIG)[:size] if kind == "grow" else before[:size]
    if state and kind != "cut only":
        at = change * BLOCK % len(state)
        state = state[:at] + bytes([state[at] ^ 0x55]) + state[at + 1 :]
    return {**current, key: state}


def _play(catalog: ld.Catalog, edits: list[Edit], keep: int) -> dict[int, States]:
    """Saves them all; what each checkpoint must have."""
    writer = catalog.writer("orders", state_policy=POLICY)
    orders = catalog.pipeline("orders")
    saved: dict[int, States] = {}
    current: States = {}
    for edit in edits:
        _, _, change, kind, after = edit
        # Meanwhile the state before may be pruned, which is then nothing to store the next upon.
        current = current if kind == "no state" else _edited(current, edit)
        given = {} if kind == "no state" else current
        with writer.checkpoint() as cp:
            for (operator, partition), content in given.items():
                cp.state(operator, content if change % 2 else io.BytesIO(content), partition=partition)
        saved[cp.id] = given
        if after == "pin":
            orders.pin(cp.id, reason="to be kept")
        if after == "prune":
            orders.prune(RetentionPolicy(keep_last=keep))
            catalog.maintain(AT_ONCE)
        if after == "harm":
            _harm(catalog, change)
        if after in ("take over", "harm"):
            writer = catalog.writer("orders", state_policy=POLICY)
            assert writer.recover().chosen_id == cp.id
    return {head.checkpoint_id: saved[head.checkpoint_id] for head in orders.list()}


def _loaded(catalog: ld.Catalog, number: int, *, heal: bool) -> States:
    rows = catalog.pipeline("orders").state(number, heal=heal).to_arrow().to_pylist()
    return {(row["operator"], row["partition"]): row["payload"] for row in rows}


def _check_all(catalog: ld.Catalog, kept: dict[int, States]) -> None:
    orders = catalog.pipeline("orders")
    for number, states in kept.items():
        assert _loaded(catalog, number, heal=False) == states
        orders.state(number, heal=False).verify()
        assert orders.validate(number).valid


GROW = (("agg", 0), 9 * BLOCK, 0, "grow", "")
INLINE_THEN_NOT: list[Edit] = [
    (("agg", 0), 1, 0, "grow", ""),
    (("agg", 0), 0, 7, "grow", "prune"),
    (("agg", 0), 0, 0, "grow", ""),
]
COMES_AND_GOES: list[Edit] = [
    GROW,
    (("join", 1), 9 * BLOCK, 8, "grow", "take over"),
    (("agg", 0), 0, 7, "remove operator", "prune"),
    (("agg", 0), 9 * BLOCK, 8, "grow", "take over"),
    (("join", 1), 0, 0, "remove partition", ""),
    (("agg", 0), 9 * BLOCK, 2, "change", ""),
]
PRUNED_BENEATH: list[Edit] = [
    GROW,
    (("agg", 0), 0, 0, "no state", "prune"),
    (("agg", 0), 9 * BLOCK, 2, "change", ""),
    (("agg", 2), 0, 0, "divide anew", "pin"),
    (("agg", 0), 0, 0, "no state", "prune"),
    (("agg", 0), 0, 0, "divide anew", "prune"),
]
HARMED_BENEATH: list[Edit] = [
    GROW,
    (("agg", 0), 9 * BLOCK, 2, "change", "harm"),
    (("agg", 0), 9 * BLOCK, 4, "change", "harm"),
    (("agg", 0), 9 * BLOCK, 6, "change", "prune"),
]


@settings(max_examples=15, suppress_health_check=SLOW)
@example(edits=INLINE_THEN_NOT, keep=1)
@example(edits=COMES_AND_GOES, keep=1)
@example(edits=PRUNED_BENEATH, keep=1)
@given(edits=EDITS, keep=st.integers(1, 4))
def test_any_sequence_of_states_reads_back_after_any_prune(edits: list[Edit], keep: int) -> None:
    catalog = ld.open_catalog("states", engine="memory", store={})
    _check_all(catalog, _play(catalog, edits, keep))


@settings(max_examples=2, suppress_health_check=SLOW)
@example(edits=COMES_AND_GOES, keep=1)
@example(edits=PRUNED_BENEATH, keep=1)
@given(edits=EDITS, keep=st.integers(1, 4))
def test_any_sequence_of_states_reads_back_from_a_disk(
    tmp_path_factory: pytest.TempPathFactory, edits: list[Edit], keep: int
) -> None:
    catalog = ld.open_catalog(str(tmp_path_factory.mktemp("states")))
    kept = _play(catalog, edits, keep)
    for table in (OPERATOR_SNAPSHOTS, OPERATOR_DELTAS):
        # Nothing that is kept is in a file that no version has any more.
        catalog.engine.vacuum(table.name, older_than_hours=0, dry_run=False)
    _check_all(catalog, kept)


def _all_rows(catalog: ld.Catalog) -> list[tuple[str, Row]]:
    found = [
        (t.name, row) for t in (OPERATOR_SNAPSHOTS, OPERATOR_DELTAS) for row in catalog.engine.read(t.name).to_pylist()
    ]
    return sorted(found, key=lambda one: [one[1][name] for name in ("checkpoint_id", "operator", "partition", "chunk")])


def _where(row: Row) -> Predicate:
    own = col("checkpoint_id").eq(row["checkpoint_id"]) & col("operator").eq(row["operator"])
    return own & col("partition").eq(row["partition"]) & col("chunk").eq(row["chunk"])


def _put(catalog: ld.Catalog, table: str, row: Row, instead: list[Row]) -> None:
    catalog.engine.delete(table, _where(row))
    if instead:
        catalog.engine.append(table, pa.Table.from_pylist(instead, schema=BY_NAME[table].schema))


def _harm(catalog: ld.Catalog, number: int) -> None:
    """Somebody deletes or overwrites a row of state: a parent's, as it may be."""
    rows = _all_rows(catalog)
    if rows:
        table, row = rows[number % len(rows)]
        _put(catalog, table, row, [{**row, "names": b"", "data": b""}] if number % 2 else [])


@settings(max_examples=12, suppress_health_check=SLOW)
@example(edits=HARMED_BENEATH, keep=1)
@given(edits=HARM, keep=st.integers(1, 4))
def test_a_parent_that_is_harmed_meanwhile_is_healed_or_told_and_never_handed_on(edits: list[Edit], keep: int) -> None:
    catalog = ld.open_catalog("states", engine="memory", store={})
    for number, states in _play(catalog, edits, keep).items():
        assert _loaded(catalog, number, heal=True) == states
        try:
            found = _loaded(catalog, number, heal=False)
        except CorruptionError:
            assert not catalog.pipeline("orders").validate(number).valid
        else:
            assert found == states


def _flipped(value: bytes) -> bytes:
    # The last byte: an LZ4 block ends with bytes as they are, but the first says nothing with some of its bits.
    return value[:-1] + bytes([value[-1] ^ 1])


def _another(row: Row) -> Row:
    """A chunk of other bytes that is right in itself, but for the names."""
    raw = random.Random(row["chunk"]).randbytes(row["raw_length"])
    return {**row, "data": bytes(compress_block(raw)), "xxh3": Decimal(block_hash(raw))}


def _wholly_another(row: Row) -> Row:
    """And with the names too: only the layout can tell."""
    raw = random.Random(row["chunk"]).randbytes(row["raw_length"])
    cut = range(0, len(raw), BLOCK)
    return {**_another(row), "names": b"".join(block_name(raw[at : at + BLOCK]) for at in cut)}


OF_A_CHUNK: dict[str, Callable[[Row], list[Row]]] = {
    "a byte of its data": lambda row: [{**row, "data": _flipped(row["data"])}],
    "a name": lambda row: [{**row, "names": _flipped(row["names"])}],
    "other blocks": lambda row: [_another(row)],
    "other blocks with their names": lambda row: [_wholly_another(row)],
    "gone": lambda row: [],
}
OF_A_LAYOUT: dict[str, Callable[[Row], list[Row]]] = {
    "its names": lambda row: [{**row, "names": _flipped(row["names"]) if row["names"] else b"x" * 16}],
    "its length": lambda row: [{**row, "raw_length": row["raw_length"] + 1}],
    "its stores": lambda row: [
        {**row, "stores": [{**s, "raw_bytes": s["raw_bytes"] + 1} for s in row["stores"]] or None}
    ],
    "gone": lambda row: [],
}


@settings(max_examples=20, suppress_health_check=SLOW)
@given(edits=EDITS, keep=st.integers(1, 4), draw=st.data())
def test_a_wrong_block_anywhere_is_corruption(edits: list[Edit], keep: int, draw: st.DataObject) -> None:
    catalog = ld.open_catalog("states", engine="memory", store={})
    kept = _play(catalog, edits, keep)
    # Also rows that only others need, of a base; not those that wait for maintenance.
    rows = [(table, row) for table, row in _all_rows(catalog) if row["checkpoint_id"] in kept]
    if not rows:
        return
    table, row = rows[draw.draw(st.integers(0, len(rows) - 1), label="row")]
    kinds = OF_A_CHUNK if row["chunk"] >= 0 else OF_A_LAYOUT
    _put(catalog, table, row, kinds[draw.draw(st.sampled_from(sorted(kinds)), label="kind")](row))
    orders = catalog.pipeline("orders")
    for number, states in kept.items():
        for key, state in states.items():
            own = number == row["checkpoint_id"] and key == (row["operator"], row["partition"])
            try:
                found = orders.state(number, heal=False).read(*key)
            except CorruptionError:
                continue
            # Others may not need it. Its own checkpoint does: it stores nothing that it has not.
            assert found == state
            assert not own
        assert _loaded(catalog, number, heal=True) == states
    assert not orders.validate(row["checkpoint_id"]).valid
