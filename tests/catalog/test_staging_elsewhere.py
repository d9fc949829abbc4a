"""An attempt is a token: one process begins and commits a checkpoint, another stages what belongs to it."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.attempt import Attempt, Part, stage_offsets
from laminar_delta.catalog.staged import Staged, with_state
from laminar_delta.catalog.state.policy import DEFAULT_POLICY
from laminar_delta.catalog.state.staging import stage_state
from laminar_delta.errors import SessionStateError
from laminar_delta.model import ConnectorCheckpoint
from tests.support.catalogs import ON_DISK, ready_made

STATE = bytes(range(256)) * 400


def _manifest(number: int) -> ld.CheckpointManifest:
    offsets = {"kafka": ConnectorCheckpoint(offsets={"0": str(number)}, epoch=number)}
    return ld.CheckpointManifest(version=1, checkpoint_id=number, epoch=number, timestamp_ms=1, source_offsets=offsets)


@pytest.fixture(params=ON_DISK)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return ready_made(request.param, tmp_path / "catalog", request)()


def _stage(engine_name: str, place: str, attempt: Attempt) -> Staged:
    """In the other process, which has no writer and takes no generation."""
    engine = ld.open_catalog(place, engine=engine_name, create=False).engine
    manifest = _manifest(attempt.checkpoint_id)
    state = stage_state(engine, attempt, {("agg", 0): STATE}, policy=DEFAULT_POLICY, upon={})
    parts: tuple[Part, ...] = (*stage_offsets(engine, attempt, manifest), *state.parts)
    return Staged(manifest=with_state(manifest, state.measured), parts=parts, state=state)


def _elsewhere(catalog: ld.Catalog, attempt: Attempt) -> Staged:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        return other.submit(_stage, catalog.engine.name, catalog.engine.location, attempt).result()


@pytest.mark.processes
def test_what_another_process_staged_under_an_attempt_is_committed_by_who_began_it(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        with writer.attempting(1) as attempt:
            staged = _elsewhere(catalog, attempt)
            assert catalog.pipeline("orders").latest() is None
            saved = writer.commit(attempt, staged.manifest, staged.parts, state=staged.state)
        assert saved.is_own
        assert writer.recover().chosen_id == 1
    orders = catalog.pipeline("orders")
    assert orders.get(1).source_offsets == _manifest(1).source_offsets
    assert orders.state(1).read("agg") == STATE
    assert catalog.writer("orders").save(_manifest(1), {("agg", 0): STATE}).replayed


@pytest.mark.processes
@pytest.mark.parametrize("catalog", ["embedded"], indirect=True)
def test_what_was_staged_elsewhere_for_a_writer_that_was_taken_over_is_an_orphan(catalog: ld.Catalog) -> None:
    attempt = catalog.writer("orders").committer.begin(1)
    successor = catalog.writer("orders")
    staged = _elsewhere(catalog, attempt)
    with pytest.raises(SessionStateError):
        successor.commit(attempt, staged.manifest, staged.parts, state=staged.state)
    assert [orphan.attempt_id for orphan in catalog.pipeline("orders").remove_orphans()] == [attempt.attempt_id]
    assert catalog.pipeline("orders").latest() is None
