"""Orphans by proof: what can never become a checkpoint goes, what may still become one stays. No clock is asked."""

import pytest

import laminar_delta as ld
from laminar_delta.catalog import generations
from laminar_delta.catalog.attempt import stage_offsets
from laminar_delta.catalog.orphans import ATTEMPTS_PER_DELETE
from laminar_delta.catalog.reading import STATE_TABLES
from laminar_delta.catalog.state.layout import LAYOUT_CHUNK
from laminar_delta.catalog.tables import MANIFESTS, SOURCE_OFFSETS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, FencedError, InvalidInputError, SessionStateError
from tests.stores.support import PIPELINE, StoreOpener, manifest


def _staged(catalog: ld.Catalog) -> dict[str, int]:
    """How many states, by their layouts, and how many rows of sources."""
    layouts = col("chunk").eq(LAYOUT_CHUNK)
    states = sum(catalog.engine.read(table, where=layouts).num_rows for table in STATE_TABLES)
    return {"states": states, SOURCE_OFFSETS.name: catalog.engine.read(SOURCE_OFFSETS.name).num_rows}


def test_q17_state_of_a_save_in_progress_stays(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    working, cleaning = open_store(owner="working"), open_store(owner="cleaning")
    working.save_state_data(1, [b"in progress"])
    for cleaner in (working, cleaning):
        assert cleaner.cleanup_orphans() == 0
    working.save(manifest(1))
    assert working.load_state_data(1) == b"in progress"
    assert cleaning.cleanup_orphans() == 0
    assert cleaning.load_state_data(1) == b"in progress"


def test_what_an_older_writer_left_goes_once_another_took_over(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    crashed = open_store(owner="crashed")
    crashed.save_with_state(manifest(1), [b"saved"])
    for number in (2, 3):
        crashed.save_state_data(number, [b"left behind"])
    store = open_store(owner="next")
    assert store.cleanup_orphans() == 0
    store.save_with_state(manifest(2), [b"mine"])
    store.save_state_data(4, [b"in progress"])
    assert _staged(catalog) == {"states": 5, SOURCE_OFFSETS.name: 2}
    assert open_store(owner="anyone").cleanup_orphans() == 2
    assert _staged(catalog) == {"states": 3, SOURCE_OFFSETS.name: 2}
    assert store.cleanup_orphans() == 0
    assert [store.load_state_data(number) for number in (1, 2, 4)] == [b"saved", b"mine", b"in progress"]
    assert all(store.validate_checkpoint(number).valid for number in store.list_ids())
    # The one whose state is gone cannot turn it into a checkpoint any more.
    with pytest.raises(FencedError):
        crashed.save(manifest(3))
    assert store.list_ids() == [1, 2]


def test_a_writer_removes_what_it_gave_up_itself(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    store = open_store()
    store.save_state_data(1, [b"replaced"])
    store.save_state_data(1, [b"kept"])
    with pytest.raises(InvalidInputError):
        store.save_with_state(manifest(2, epoch=2**63, source_offsets={}), [b"refused before it is staged"])
    store.save_state_data(3, [b"handed over twice"])
    store.save_with_state(manifest(3), [b"used"])
    assert _staged(catalog)["states"] == 4
    assert open_store().cleanup_orphans() == 0
    assert store.cleanup_orphans() == 2
    assert _staged(catalog)["states"] == 2
    store.save(manifest(1))
    assert [store.load_state_data(number) for number in (1, 3)] == [b"kept", b"used"]
    store.save_state_data(5, [b"never saved"])
    store.close()
    assert store.cleanup_orphans() == 1


def test_an_attempt_that_was_given_up_or_is_of_another_generation_is_not_committed(catalog: ld.Catalog) -> None:
    """What the proof rests on: nobody else, and not even its own writer, can commit what may have been removed."""
    old = catalog.writer(PIPELINE)
    with old.attempting(1) as attempt:
        parts = stage_offsets(catalog.engine, attempt, manifest(1))
    old.abort(attempt)
    with pytest.raises(SessionStateError):
        old.commit(attempt, manifest(1), parts)
    with old.attempting(2) as left:
        parts = stage_offsets(catalog.engine, left, manifest(2))
    new = catalog.writer(PIPELINE)
    with pytest.raises(SessionStateError):
        new.commit(left, manifest(2), parts)
    removed = catalog.pipeline(PIPELINE).remove_orphans()
    assert [(orphan.checkpoint_id, orphan.generation) for orphan in removed] == [(1, 1), (2, 1)]
    with pytest.raises(FencedError):
        old.commit(left, manifest(2), parts)
    assert catalog.engine.read(MANIFESTS.name).num_rows == 0


def test_an_id_is_committed_once_whoever_of_a_writers_threads_comes_first(catalog: ld.Catalog) -> None:
    writer = catalog.writer(PIPELINE)
    with writer.attempting(1) as first, writer.attempting(1) as second:
        parts = {
            attempt: stage_offsets(catalog.engine, attempt, manifest(1, watermark=mark))
            for attempt, mark in ((first, 1), (second, 2))
        }
    assert not writer.commit(first, manifest(1, watermark=1), parts[first]).replayed
    with pytest.raises(ConflictError, match="watermark"):
        writer.commit(second, manifest(1, watermark=2), parts[second])
    assert writer.commit(second, manifest(1, watermark=1), parts[second]).replayed
    assert catalog.engine.read(MANIFESTS.name).num_rows == 1


def test_the_fence_stands_before_anything_is_looked_at(catalog: ld.Catalog) -> None:
    """A successor that claimed its generation and died before fencing: the cleaner completes the takeover."""
    old = catalog.writer(PIPELINE)
    with old.attempting(1) as attempt:
        parts = stage_offsets(catalog.engine, attempt, manifest(1))
    assert generations._claim(catalog.engine, PIPELINE, 2, "died", None)
    assert len(catalog.pipeline(PIPELINE).remove_orphans()) == 1
    with pytest.raises(FencedError):
        old.commit(attempt, manifest(1), parts)
    # The claimed generation is not hurt by it, and neither is the one after.
    held = generations.Generation(pipeline=PIPELINE, number=2, owner="died")
    Writer(catalog.engine, held).save(manifest(2))
    catalog.writer(PIPELINE).save(manifest(3))
    assert catalog.pipeline(PIPELINE).remove_orphans() == ()
    assert [head.checkpoint_id for head in catalog.pipeline(PIPELINE).list()] == [2, 3]


def test_a_checkpoint_whose_row_was_lost_is_no_orphan(open_store: StoreOpener, catalog: ld.Catalog) -> None:
    open_store().save_with_state(manifest(1), [b"state"])
    catalog.engine.delete(MANIFESTS.name, col("checkpoint_id").eq(1))
    store = open_store()
    store.save(manifest(2))
    assert store.cleanup_orphans() == 0
    assert store.load_state_data(1) == b"state"


def test_other_pipelines_are_left_alone(catalog: ld.Catalog) -> None:
    for name in (PIPELINE, "other"):
        writer = catalog.writer(name)
        with writer.attempting(1) as attempt:
            stage_offsets(catalog.engine, attempt, manifest(1))
        catalog.writer(name)
    assert len(catalog.pipeline(PIPELINE).remove_orphans()) == 1
    assert [row["pipeline"] for row in catalog.engine.read(SOURCE_OFFSETS.name).to_pylist()] == ["other"]
    (entry,) = [entry for entry in catalog.audit() if entry.operation == "remove-orphans"]
    assert (entry.table, entry.pipeline) == (SOURCE_OFFSETS.name, PIPELINE)


def test_there_may_be_more_than_one_removal_takes() -> None:
    catalog = ld.open_catalog("many", engine="memory", store={})
    writer = catalog.writer(PIPELINE)
    for number in range(1, ATTEMPTS_PER_DELETE + 2):
        with writer.attempting(number) as attempt:
            stage_offsets(catalog.engine, attempt, manifest(number))
        writer.abort(attempt)
    removed = catalog.pipeline(PIPELINE).remove_orphans(aborted=writer.aborted)
    assert len(removed) == ATTEMPTS_PER_DELETE + 1
    assert catalog.engine.read(SOURCE_OFFSETS.name).num_rows == 0
