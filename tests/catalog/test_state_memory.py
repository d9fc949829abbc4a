"""What a save or a load holds in memory: what is wanted of a piece or a chunk, not all that came with it."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.state import streaming
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.codec import Span
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
