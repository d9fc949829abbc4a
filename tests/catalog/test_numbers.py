"""Ids of checkpoints: given out once, and what a save looks at to be sure of it."""

import pytest

import laminar_delta as ld
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.tables import MANIFESTS, RETENTION
from laminar_delta.catalog.writer import Writer
from laminar_delta.errors import CommitUnknownError, ConflictError, StorageError
from tests.support.counting import rows_read
from tests.support.faults import failing_appends, unheard_appends


def _manifest(number: int, epoch: int | None = None) -> ld.CheckpointManifest:
    return ld.CheckpointManifest(version=1, checkpoint_id=number, epoch=epoch or number, timestamp_ms=1)


def test_a_save_below_the_highest_id_looks_at_nothing_when_only_this_writer_gave_it_out(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    save_all(writer, [BulkSave(manifest=_manifest(number)) for number in range(1, 20)])
    earlier, later = writer.checkpoint(), writer.checkpoint()
    later.commit()
    with rows_read(catalog.engine, MANIFESTS.name) as found:
        earlier.commit()
    assert found == []
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [*range(1, 22)]


def test_an_id_given_out_is_looked_for_once_it_may_be_committed(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    earlier, later = writer.checkpoint(), writer.checkpoint()
    later.commit()
    with unheard_appends(catalog.engine, MANIFESTS.name), pytest.raises(CommitUnknownError):
        earlier.commit()
    with pytest.raises(ConflictError, match="is committed with another epoch"):
        writer.save(_manifest(earlier.id, epoch=77))
    assert writer.save(earlier.manifest()).replayed
    # Also one of many that were committed at once.
    save_all(writer, [BulkSave(manifest=_manifest(number)) for number in range(10, 13)])
    with pytest.raises(ConflictError, match="is committed with another epoch"):
        writer.save(_manifest(11, epoch=77))
    assert writer.save(_manifest(11)).replayed
    assert len(catalog.pipeline("orders").list()) == 5


def _failed(writer: Writer) -> int:
    """An attempt that fails before anything is staged; its id."""
    cp = writer.checkpoint()
    cp.roll_back()
    return cp.id


def test_an_id_that_was_given_out_is_not_given_out_again_by_the_next_writer(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        writer.checkpoint().commit()
        assert [_failed(writer), _failed(writer)] == [2, 3]
    with catalog.writer("orders") as writer:
        assert writer.next_id == 4
        cp = writer.checkpoint()
        with failing_appends(catalog.engine, MANIFESTS.name), pytest.raises(StorageError):
            cp.commit()
    # Nor when nothing is given out in between, and whatever was staged is gone.
    catalog.writer("orders").close()
    catalog.pipeline("orders").remove_orphans()
    with catalog.writer("orders") as writer:
        assert writer.next_id == 5
        writer.checkpoint().commit()
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1, 5]
    # An id that is burned is no checkpoint that was lost.
    assert catalog.pipeline("orders").standing().decided == frozenset()
    assert catalog.pipeline("orders").recover(dry_run=True).examined == 2


def test_what_a_killed_writer_staged_is_burned_by_the_next_before_it_is_removed(catalog: ld.Catalog) -> None:
    killed = catalog.writer("orders")
    killed.stage(killed.committer.begin(7), _manifest(7), {("window", 0): b"x" * 100_000})
    catalog.writer("orders").close()
    assert catalog.pipeline("orders").remove_orphans()
    assert catalog.writer("orders").next_id == 8


@pytest.mark.parametrize("by_writer", [True, False])
def test_an_id_stays_given_out_when_what_was_staged_under_it_is_removed(catalog: ld.Catalog, by_writer: bool) -> None:
    killed = catalog.writer("orders")
    killed.checkpoint().commit()
    with failing_appends(catalog.engine, MANIFESTS.name), pytest.raises(StorageError), killed.checkpoint() as cp:
        cp.source("kafka", {"0": "5"})
    orders = catalog.pipeline("orders")
    if by_writer:
        # It never lets go of its generation.
        assert len(orders.remove_orphans(aborted=killed.aborted)) == 1
        writer = catalog.writer("orders")
    else:
        writer = catalog.writer("orders")
        assert len(orders.remove_orphans()) == 1
        writer = catalog.writer("orders")
    assert writer.next_id == 3
    assert orders.recover(dry_run=True).examined == 1
    # Below what is committed there is nothing to record.
    decided = catalog.engine.version(RETENTION.name)
    writer.stage(writer.committer.begin(2), _manifest(2), {("window", 0): b"x" * 100_000})
    writer.checkpoint().commit()
    assert len(catalog.pipeline("orders").remove_orphans()) == 0
    assert catalog.writer("orders").next_id == 4
    assert len(catalog.pipeline("orders").remove_orphans()) == 1
    assert catalog.engine.version(RETENTION.name) == decided


def test_a_writer_whose_ids_all_became_checkpoints_decides_nothing(catalog: ld.Catalog) -> None:
    before = catalog.engine.version(RETENTION.name)
    with catalog.writer("orders") as writer:
        earlier, later = writer.checkpoint(), writer.checkpoint()
        later.commit()
        earlier.commit()
        save_all(writer, [BulkSave(manifest=_manifest(number)) for number in range(10, 13)])
    assert catalog.engine.version(RETENTION.name) == before


def test_a_writer_that_was_taken_over_lets_go_all_the_same(catalog: ld.Catalog) -> None:
    old = catalog.writer("orders")
    _failed(old)
    new = catalog.writer("orders")
    new.checkpoint().commit()
    old.close()
    new.checkpoint().commit()
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1, 2]
    assert catalog.pipeline("orders").recover(dry_run=True).chosen_id == 2


def test_what_a_block_failed_with_is_told_also_when_the_writer_cannot_let_go(catalog: ld.Catalog) -> None:
    with failing_appends(catalog.engine, RETENTION.name):
        with pytest.raises(ValueError, match="the job's own"), catalog.writer("orders") as writer:
            writer.checkpoint().roll_back()
            raise ValueError("the job's own error")
        with pytest.raises(StorageError), catalog.writer("orders") as writer:
            writer.checkpoint().roll_back()


def test_the_id_of_a_failed_attempt_is_saved_under_by_who_names_it_and_by_nobody_else(catalog: ld.Catalog) -> None:
    """LaminarDB's coordinator tries again under the id that failed, after a restart with other content."""
    failed = catalog.writer("orders")
    with failing_appends(catalog.engine, MANIFESTS.name), pytest.raises(StorageError):
        failed.save(_manifest(7))
    failed.close()
    writer = catalog.writer("orders")
    assert writer.checkpoint().id == 8
    assert not writer.save(_manifest(7, epoch=77)).replayed
    assert not writer.save(_manifest(3)).replayed
    for number in (3, 7):
        with pytest.raises(ConflictError, match="is committed with another epoch"):
            writer.save(_manifest(number, epoch=99))
    latest = catalog.pipeline("orders").latest()
    assert latest is not None
    assert latest.checkpoint_id == 7
