"""What a save or a load holds in memory: what is wanted of a piece or a chunk, not all that came with it."""

import io
import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.state import packing, staging, streaming
from laminar_delta.catalog.state.chunks import chunk_row
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.codec import Block, Span
from tests.support.catalogs import ready_made

KIB = 1 << 10
BLOCK = KIB
POLICY = StatePolicy(block_bytes=BLOCK, chunk_bytes=64 * BLOCK, part_bytes=256 * BLOCK)
WINDOW = 128 * BLOCK
STATE = random.Random(21).randbytes(16 * WINDOW)


@pytest.fixture(params=["memory", "embedded"])
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ld.Catalog]:
    return ready_made(request.param, tmp_path / "catalog", request)


def _blocks(state: bytes) -> list[bytes]:
    return [state[at : at + BLOCK] for at in range(0, len(state), BLOCK)]


def _shuffled(state: bytes) -> bytes:
    blocks = _blocks(state)
    random.Random(22).shuffle(blocks)
    return b"".join(blocks)


def test_a_row_that_waits_to_be_written_holds_what_its_size_says() -> None:
    """Parts are counted by the bytes of their rows, so rows may hold no more: here a twentieth of the chunk is stored."""
    raw = random.Random(23).randbytes(48 * KIB) + bytes(976 * KIB)
    before = pa.total_allocated_bytes()
    rows = [chunk_row({}, number, [Block(index=0, name=b"n" * 16, data=raw)]) for number in range(16)]
    assert pa.total_allocated_bytes() - before <= 2 * sum(len(row["data"]) for row in rows)


@pytest.mark.parametrize("order", ["as stored", "shuffled"])
def test_a_window_holds_no_more_than_twice_what_is_wanted(
    catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Blocks that lie apart each came in a chunk of their own, 64 times as large."""
    monkeypatch.setattr(streaming, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(streaming, "WHOLE_BYTES", WINDOW)
    monkeypatch.setattr(streaming, "KEPT_BYTES", WINDOW)
    state = STATE if order == "as stored" else _shuffled(STATE)
    with catalog.writer("orders", state_policy=POLICY) as writer:
        for content in (STATE, state):
            with writer.checkpoint() as cp:
                cp.state("op", content)
    held: list[int] = []
    real = streaming._in_order

    def in_order(layout: object, start: int, names: list[bytes], found: dict[bytes, Span]) -> list[memoryview]:
        held.append(sum({id(span.whole): len(span.whole) for span in found.values()}.values()))
        return real(layout, start, names, found)  # type: ignore[arg-type]

    monkeypatch.setattr(streaming, "_in_order", in_order)
    stored = catalog.pipeline("orders").state(2)
    assert stored.layouts()[0].needs == {1}
    assert b"".join(stored.pieces("op")) == state
    assert len(held) == 16
    assert max(held) <= 2 * WINDOW


PIECE = 512 * KIB
"""Large beside a chunk."""


def _piece(number: int, changed: bytes = b"") -> bytes:
    return changed + random.Random(number).randbytes(PIECE)[len(changed) :]


def test_a_save_holds_no_pieces_for_the_sake_of_their_changed_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PINNED_BYTES", 3 * PIECE)
    catalog = ld.open_catalog("states", engine="memory", store={})
    count = 3 * POLICY.chunk_bytes // BLOCK // 2
    with catalog.writer("orders", state_policy=POLICY) as writer:
        with writer.checkpoint() as cp:
            cp.state("op", (_piece(number) for number in range(count)))
        with writer.checkpoint() as cp:
            cp.state("op", (_piece(number, b"changed") for number in range(count)))
            tracemalloc.start()
            try:
                cp.commit()
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    state = catalog.pipeline("orders").state(cp.id)
    assert state.layouts()[0].needs == {1, 2}
    assert state.layouts()[0].stores[-1].raw_bytes == count * BLOCK
    assert b"".join(state.pieces("op")) == b"".join(_piece(number, b"changed") for number in range(count))
    # Those that may be pinned, the one that is cut, the next that is made meanwhile, the names of 49,152 blocks; not all 96.
    assert peak < 32 * PIECE


ALL_FRESH: dict[str, Callable[[], Any]] = {
    "bytes": lambda: STATE,
    "file": lambda: io.BytesIO(STATE * 2),
    "pieces": lambda: (_piece(number) for number in range(8)),
}


@pytest.mark.parametrize("kind", ALL_FRESH)
def test_what_is_stored_as_it_comes_is_not_copied(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor would the pieces be that nobody has but the save: all of each is wanted."""
    monkeypatch.setattr(packing, "PINNED_BYTES", 6 * PIECE)
    lying: list[bool] = []

    def looked_at(fixed: Any, number: int, blocks: Sequence[Block]) -> Any:
        lying.extend(block.span is not None for block in blocks)
        return chunk_row(fixed, number, blocks)

    monkeypatch.setattr(staging, "chunk_row", looked_at)
    catalog = ld.open_catalog("states", engine="memory", store={})
    with catalog.writer("orders", state_policy=POLICY) as writer, writer.checkpoint() as cp:
        cp.state("op", ALL_FRESH[kind]())
    assert lying
    assert all(lying)
