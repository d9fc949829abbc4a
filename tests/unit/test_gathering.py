"""States put together by executors where Spark reads the tables: exact, never with a wrong block, and never whole in memory."""

import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.state.chunks import names_of
from laminar_delta.catalog.state.layout import Layout
from laminar_delta.catalog.state.packing import Packer
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.state.staging import Cutting
from laminar_delta.codec import block_hash, compress_block
from laminar_delta.distributed.gathering import BATCH_BYTES, RUN_BYTES, RUNS, in_order
from laminar_delta.errors import CorruptionError
from tests.support.gathered import batches, gathered, runs_of

BLOCK = 64
POLICY = StatePolicy(block_bytes=BLOCK, chunk_bytes=4 * BLOCK, most_stale=9.0)
FILLINGS = st.lists(st.integers(0, 5), max_size=12)
"""A state by its blocks: some are equal, some come again after they were gone."""
Row = dict[str, Any]


def _state(filling: list[int], rest: int) -> bytes:
    return b"".join(random.Random(kind).randbytes(BLOCK) for kind in filling) + bytes(rest)


def _chain(states: list[bytes], policy: StatePolicy = POLICY) -> tuple[list[Layout], list[Row]]:
    """The layouts of states saved one upon the other, and the chunks of all."""
    layouts: list[Layout] = []
    chunks: list[Row] = []
    for number, state in enumerate(states, 1):
        attempt = Attempt(pipeline="p", checkpoint_id=number, attempt_id=f"a{number}", generation=1, owner="job")
        cutting = Cutting(attempt, "agg", 0, iter((state,)), policy, layouts[-1] if layouts else None)
        with Packer() as packer:
            chunks += [row for row in cutting.rows(packer) if row["chunk"] >= 0]
        assert cutting.layout is not None
        layouts.append(cutting.layout)
    return layouts, chunks


@settings(max_examples=60)
@given(st.lists(st.tuples(FILLINGS, st.integers(0, BLOCK - 1)), min_size=1, max_size=5), st.data())
def test_any_chain_comes_back_whatever_the_order_of_its_chunks(given: list[tuple[list[int], int]], draw: Any) -> None:
    states = [_state(*one) for one in given]
    layouts, chunks = _chain(states)
    mixed = draw.draw(st.permutations(chunks))
    for layout, state in zip(layouts, states, strict=True):
        # Chunks twice, too: a task that Spark repeats.
        assert gathered([layout], [*mixed, *chunks], draw.draw(st.integers(1, 5))) == {("agg", 0): state}


@settings(max_examples=60)
@given(FILLINGS.filter(bool), FILLINGS.filter(bool), st.data())
def test_a_chunk_that_is_gone_or_another_is_never_passed_over(before: list[int], after: list[int], draw: Any) -> None:
    states = [_state(before, 1), _state(after, 2)]
    layouts, chunks = _chain(states)
    at = draw.draw(st.integers(0, len(chunks) - 1))
    row = chunks[at]
    other = random.Random(at).randbytes(row["raw_length"])
    wrong = draw.draw(
        st.sampled_from(
            [
                [],
                [{**row, "data": row["data"][:-1]}],
                [{**row, "names": bytes(len(row["names"]))}],
                [{**row, "data": bytes(compress_block(other)), "xxh3": Decimal(block_hash(other))}],
            ]
        )
    )
    damaged = [*chunks[:at], *wrong, *chunks[at + 1 :]]
    for layout, state in zip(layouts, states, strict=True):
        names = set(layout.names_from(0, layout.blocks))
        sound = {name for found in chunks if found is not row and _stores(layout, found) for name in names_of(found)}
        if names <= sound and not (wrong and _stores(layout, row)):
            assert gathered([layout], damaged) == {("agg", 0): state}
        elif not names <= sound:
            with pytest.raises(CorruptionError):
                gathered([layout], damaged)


def _stores(layout: Layout, chunk: Row) -> bool:
    return any(store.attempt_id == chunk["attempt_id"] for store in layout.stores)


def test_no_step_holds_a_state() -> None:
    policy = StatePolicy(block_bytes=1 << 16)
    state = bytes(24 * RUN_BYTES) + random.Random(1).randbytes(8 * RUN_BYTES)
    (layout,), chunks = _chain([state], policy)
    rows = runs_of([layout], chunks)
    assert max(len(row["data"] or b"") for row in rows) == RUN_BYTES
    taken = 0

    def coming() -> Any:
        nonlocal taken
        for batch in batches(rows, RUNS, BATCH_BYTES // RUN_BYTES):
            taken += 1
            yield batch

    for _, pieces in in_order({("agg", 0): [layout]}, coming()):
        assert bytes(next(pieces)) == state[:RUN_BYTES]
        assert taken == 1
        assert b"".join(pieces) == state[RUN_BYTES:]


def test_what_another_attempt_stored_is_not_taken() -> None:
    (layout,), chunks = _chain([_state([1, 2, 3], 0)])
    foreign = replace(layout, stores=tuple(replace(store, attempt_id="other") for store in layout.stores))
    with pytest.raises(
        CorruptionError, match="blocks of operator 'agg' partition 0 are missing, 3 of them from byte 0"
    ):
        gathered([foreign], chunks)
