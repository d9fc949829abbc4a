"""Many sources, and positions as long as they may be, in one session: one merge."""

import laminar_delta as ld
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.model.source_checkpoint import MAX_POSITION_BYTES
from tests.sessions.support import at, commits

MANY = 10_000
LONG = 40


def test_ten_thousand_sources_are_one_merge(store: ld.SourceCheckpointStore, catalog: ld.Catalog) -> None:
    store.take_generation()
    before = commits(catalog)
    with store.session() as s:
        for number in range(MANY):
            s.stage(f"source {number}", number, b"offset %d" % number)
    assert commits(catalog) == before + 1
    record = store.history(limit=1)[0]
    assert (record.sources, record.names) == (MANY, None)
    assert catalog.engine.history(SOURCE_CHECKPOINTS.name, limit=1)[0].operation == "MERGE"
    expected = {f"source {number}": at(number, b"offset %d" % number) for number in range(MANY)}
    assert store.read_all_checkpoints() == expected
    # One of them, then all of them gone, each in one merge too.
    store.stage_checkpoint("source 5000", 1, b"alone")
    assert store.read_all_checkpoints() == {**expected, "source 5000": at(1, b"alone")}
    store.clear_checkpoints()
    assert commits(catalog) == before + 3
    assert store.read_all_checkpoints() == {}


def test_positions_as_long_as_they_may_be(store: ld.SourceCheckpointStore) -> None:
    positions = {f"source {n}": bytes([n, 255 - n]) * (MAX_POSITION_BYTES // 2) for n in range(LONG)}
    with store.session() as s:
        for name, position in positions.items():
            s.stage(name, 1, position)
    found = store.read_all_checkpoints()
    assert {name: checkpoint.position for name, checkpoint in found.items()} == positions
