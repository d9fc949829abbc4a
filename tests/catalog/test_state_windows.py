"""Reading a state window by window: what deltas, rewinds, forks and other policies made of it is read back exactly."""

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import laminar_delta as ld
from laminar_delta.catalog.state import packing, streaming
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, InvalidInputError
from tests.support.catalogs import ready_made

BLOCK = 256
POLICIES = (
    StatePolicy(block_bytes=BLOCK, chunk_bytes=4 * BLOCK, part_bytes=32 * BLOCK, longest_chain=4),
    StatePolicy(block_bytes=2 * BLOCK, chunk_bytes=8 * BLOCK, part_bytes=16 * BLOCK, longest_chain=2),
    StatePolicy(block_bytes=BLOCK, chunk_bytes=BLOCK, part_bytes=8 * BLOCK, most_stale=0, inline_bytes=0),
)
BIG = random.Random(31).randbytes(64 * BLOCK + 9)


@contextmanager
def _windowed(kept_blocks: int, block: int = BLOCK) -> Iterator[None]:
    """Every state is read in windows of three blocks, and every chunk is unpacked by a thread."""
    with (
        patch.object(streaming, "WINDOW_BYTES", 3 * block),
        patch.object(streaming, "WHOLE_BYTES", -1),
        patch.object(streaming, "KEPT_BYTES", kept_blocks * block),
        patch.object(streaming, "LARGE_BYTES", 0),
        patch.object(packing, "AHEAD", 2),
    ):
        yield


def _changed(state: bytes, *places: int) -> bytes:
    made = bytearray(state)
    for place in places:
        made[place * BLOCK] ^= 0x55
    return bytes(made)


@pytest.mark.parametrize("kept_blocks", [0, 1, 5, 1000])
@pytest.mark.parametrize("engine", ["memory", "embedded"])
def test_a_chain_of_deltas_is_read_in_windows_whatever_is_kept_for_later(
    engine: str, kept_blocks: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = ready_made(engine, tmp_path / "catalog", request)()
    # Of the last one, blocks come again in windows far apart, and in another order than they are stored.
    blocks = [BIG[at : at + BLOCK] for at in range(0, 64 * BLOCK, BLOCK)]
    states = [BIG, _changed(BIG, 1, 5, 40), _changed(BIG, 1, 6, 63)]
    states.append(b"".join((*blocks[::-1], *blocks[:9], *blocks[:9])) + b"end")
    with catalog.writer("orders", state_policy=POLICIES[0]) as writer:
        for state in states:
            with writer.checkpoint() as cp:
                cp.state("op", io.BytesIO(state))
    orders = catalog.pipeline("orders")
    assert orders.state(4).layouts()[0].needs == {1, 2, 3, 4}
    with _windowed(kept_blocks):
        for number, state in enumerate(states, 1):
            stored = orders.state(number)
            assert b"".join(stored.pieces("op")) == state
            with stored.open("op") as file:
                assert file.read(BLOCK + 1) == state[: BLOCK + 1]


Step = tuple[str, int, int]
"""What is done, and two numbers that say to what."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["save", "save", "save in pieces", "delta", "delta", "rewind", "fork", "other policy", "none"]),
        st.integers(0, 70),
        st.integers(0, 70),
    ),
    min_size=1,
    max_size=14,
)


class _Play:
    """Two pipelines, and what each of their checkpoints must have."""

    def __init__(self) -> None:
        self.catalog = ld.open_catalog("states", engine="memory", store={})
        self.saved: dict[str, dict[int, bytes | None]] = {"a": {}, "b": {}}
        self.writers = {name: self.catalog.writer(name, state_policy=POLICIES[0]) for name in self.saved}

    def step(self, step: Step) -> None:
        what, one, other = step
        name = "ab"[one % 2]
        writer, saved = self.writers[name], self.saved[name]
        newest = saved[max(saved)] if saved else None
        if what == "rewind" and saved:
            chosen = sorted(saved)[other % len(saved)]
            saved[writer.rewind(chosen, reason="wrong").checkpoint_id] = saved[chosen]
        elif what == "fork" and self.saved["ba"[one % 2]]:
            others = self.saved[origin := "ba"[one % 2]]
            chosen = sorted(others)[other % len(others)]
            saved[writer.fork(origin, chosen, reason="to try").checkpoint_id] = others[chosen]
        elif what == "other policy":
            self.writers[name] = self.catalog.writer(name, state_policy=POLICIES[other % len(POLICIES)])
            assert self.writers[name].recover().chosen_id == max(saved, default=None)
        elif what == "delta" and newest is not None:
            # Where there is nothing to put it upon it is refused, and nothing is saved.
            with suppress(InvalidInputError):
                number = self._delta(writer, b"+" * other)
                saved[number] = newest + b"+" * other
        else:
            length = max(one * BLOCK, 1)
            state = (
                None
                if what == "none"
                else _changed(((newest or b"") + BIG)[:length] + BIG[:other], other % -(-length // BLOCK))
            )
            with writer.checkpoint() as cp:
                if state is not None:
                    cp.state("op", [state[:100], state[100:]] if what == "save in pieces" else state, inline=False)
            saved[cp.id] = state

    def _delta(self, writer: Writer, delta: bytes) -> int:
        cp = writer.checkpoint()
        cp.state_delta("op", delta, apply="append")
        return cp.commit().checkpoint_id

    def check(self) -> None:
        for name, saved in self.saved.items():
            pipeline = self.catalog.pipeline(name)
            for number, state in saved.items():
                stored = pipeline.state(number, heal=False)
                assert stored.partitions() == ({} if state is None else {"op": [0]})
                if state is not None:
                    assert b"".join(stored.pieces("op")) == stored.read("op") == state
                stored.verify()
                assert pipeline.validate(number).valid


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@example([("save", 40, 3), ("delta", 0, 5), ("delta", 0, 7), ("rewind", 0, 1), ("delta", 0, 9)], 5)
@example([("save", 40, 3), ("fork", 1, 0), ("delta", 1, 4), ("save in pieces", 41, 6), ("rewind", 1, 1)], 5)
@example([("save", 40, 3), ("other policy", 0, 1), ("save", 40, 8), ("other policy", 0, 2), ("delta", 0, 3)], 5)
@given(steps=STEPS, kept_blocks=st.sampled_from([0, 2, 50]))
def test_whatever_was_done_every_checkpoint_reads_back_in_windows(steps: list[Step], kept_blocks: int) -> None:
    ld.register_apply("append", lambda state, delta: state + delta)
    play = _Play()
    for step in steps:
        play.step(step)
    play.check()
    with _windowed(kept_blocks):
        play.check()


def test_a_block_that_rots_is_found_in_whichever_window_it_is(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    catalog = ready_made("memory", tmp_path / "catalog", request)()
    with catalog.writer("orders", state_policy=POLICIES[0]) as writer:
        for state in (BIG, _changed(BIG, 50)):
            with writer.checkpoint() as cp:
                cp.state("op", state)
    catalog.engine.delete(OPERATOR_DELTAS.name, col("chunk").eq(0))
    read = b""
    with _windowed(5), pytest.raises(CorruptionError, match="are missing"):
        for piece in catalog.pipeline("orders").state(2, heal=False).pieces("op"):
            read += piece
    # What came before it was handed out, and was right.
    assert read == _changed(BIG, 50)[: 48 * BLOCK]


def test_a_byte_that_rots_on_the_disk_is_found_in_whichever_window_it_is(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Of each file with chunks one after another: the base's, and that of the delta upon it."""
    place = tmp_path / "catalog"
    catalog = ready_made("embedded", place, request)()
    # Large enough to be written as it is, where it can be found.
    size = 64 << 10
    blocks = random.Random(32).randbytes(32 * size)
    state = blocks[: 24 * size] + blocks[: 8 * size][::-1]
    with catalog.writer("orders", state_policy=StatePolicy(block_bytes=size, chunk_bytes=size)) as writer:
        for content in (blocks, state):
            with writer.checkpoint() as cp:
                cp.state("op", content)
    saved = catalog.pipeline("orders").state(2, heal=False)
    assert saved.layouts()[0].needs == {1, 2}
    wanted = state[12 * size : 13 * size], state[-2 * size : -size]
    for table, block in zip((OPERATOR_SNAPSHOTS.name, OPERATOR_DELTAS.name), wanted, strict=True):
        (path,) = [path for path in (place / table).glob("*.parquet") if block in path.read_bytes()]
        whole = path.read_bytes()
        path.write_bytes(whole.replace(block, block[:-1] + bytes([block[-1] ^ 1])))
        read = b""
        with _windowed(5, size), pytest.raises(CorruptionError, match="operator 'op' partition 0"):
            for piece in saved.pieces("op"):
                read += piece
        # What came before it was handed out, and was right.
        assert read
        assert state.startswith(read)
        path.write_bytes(whole)
    with _windowed(5, size):
        assert saved.read("op") == state
