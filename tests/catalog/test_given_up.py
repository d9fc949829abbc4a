"""A writer removes what its own attempts left that came to nothing, also those that were never told so in as many words."""

from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.attempt import stage_offsets
from laminar_delta.catalog.group import Save
from laminar_delta.catalog.tables import MANIFESTS, SOURCE_OFFSETS
from laminar_delta.catalog.writer import Writer
from laminar_delta.errors import CommitUnknownError
from laminar_delta.model import CheckpointManifest
from tests.support.catalogs import ENGINES, ready_made
from tests.support.faults import unanswered_appends, unheard_appends


@pytest.fixture(params=ENGINES)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return ready_made(request.param, tmp_path / "catalog", request)()


def _manifest(writer: Writer, number: int) -> CheckpointManifest:
    filled = writer.checkpoint(checkpoint_id=number)
    filled.source("kafka", {"0": str(number)})
    return filled.manifest()


def test_an_attempt_that_came_second_is_removed_by_its_writer(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    manifest = _manifest(writer, 1)
    with writer.attempting(1) as late:
        staged = writer.stage(late, manifest)
        assert writer.save(manifest).is_own
        for _ in range(2):
            # Asked again it gets the same answer, and not that it was given up.
            assert not writer.commit(late, manifest, staged.parts).is_own
    assert writer.aborted == {late.attempt_id}
    removed = catalog.pipeline("orders").remove_orphans(aborted=writer.aborted)
    assert [orphan.attempt_id for orphan in removed] == [late.attempt_id]
    assert catalog.pipeline("orders").validate(1).valid
    assert catalog.engine.read(SOURCE_OFFSETS.name).num_rows == 1


def test_an_attempt_that_is_committed_again_is_its_own(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    manifest = _manifest(writer, 1)
    with writer.attempting(1) as attempt:
        parts = stage_offsets(catalog.engine, attempt, manifest)
        writer.commit(attempt, manifest, parts)
        assert writer.commit(attempt, manifest, parts).replayed
    assert writer.aborted == frozenset()


@pytest.mark.parametrize("together", [False, True])
def test_a_save_that_turns_out_never_to_have_landed_is_removed_by_its_writer(
    catalog: ld.Catalog, together: bool
) -> None:
    writer = catalog.writer("orders")
    manifest = _manifest(writer, 1)
    with unanswered_appends(catalog.engine, MANIFESTS.name):
        if together:
            (answer,) = catalog.save_together([Save(writer, manifest)])
            assert isinstance(answer, CommitUnknownError)
        else:
            with pytest.raises(CommitUnknownError):
                writer.save(manifest)
    # As long as it may have landed it is not given up.
    assert writer.aborted == frozenset()
    writer.settle()
    (given_up,) = writer.aborted
    removed = catalog.pipeline("orders").remove_orphans(aborted=writer.aborted)
    assert [orphan.attempt_id for orphan in removed] == [given_up]
    assert writer.save(manifest).is_own
    assert catalog.pipeline("orders").validate(1).valid


def test_a_save_that_turns_out_to_have_landed_is_not_given_up(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    manifest = _manifest(writer, 1)
    with unheard_appends(catalog.engine, MANIFESTS.name), pytest.raises(CommitUnknownError):
        writer.save(manifest)
    writer.settle()
    assert writer.aborted == frozenset()
    assert catalog.pipeline("orders").remove_orphans(aborted=writer.aborted) == ()
    assert writer.save(manifest).replayed
