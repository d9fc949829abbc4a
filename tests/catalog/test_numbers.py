"""Ids of checkpoints: given out once, and what a save looks at to be sure of it."""

import pytest

import laminar_delta as ld
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.errors import CommitUnknownError, ConflictError
from tests.support.counting import rows_read
from tests.support.faults import unheard_appends


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
