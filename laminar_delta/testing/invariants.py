"""What must hold of any table and any catalog at any time, as functions: used by the suite, the soak runs and the demo."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.batches import StateBatches
from laminar_delta.catalog.positions import read_positions
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.tables import MANIFESTS, SESSION_STEPS, SOURCE_CHECKPOINTS, WRITERS
from laminar_delta.catalog.traces import CHILD_TABLES
from laminar_delta.codec import xxh3_hex
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import FENCES_KEY
from laminar_delta.model.source_checkpoint import SourceCheckpoint
from laminar_delta.stores import SourceCheckpointStore

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.pipeline import Pipeline
    from laminar_delta.engine.base import Engine

Holdings = dict[str, Any]
"""What a catalog holds, as plain values that two runs of the same program have in common."""


def assert_fences_rise(engine: Engine, table: str) -> None:
    """Along the log, each application's fence goes up strictly: no zombie ever committed."""
    standing: dict[str, int] = {}
    for entry in reversed(engine.history(table)):
        carried = entry.metadata.get(FENCES_KEY)
        for name, version in carried.items() if isinstance(carried, dict) else ():
            before = standing.get(name, -1)
            assert version > before, (
                f"version {entry.version} of {table} lowered the fence of {name}: {before} to {version}"
            )
            standing[name] = version


def assert_sound(catalog: Catalog) -> None:
    """No writer of an older generation ever committed, no generation was given twice, and no checkpoint is there twice."""
    for table in (MANIFESTS, SOURCE_CHECKPOINTS):
        assert_fences_rise(catalog.engine, table.name)
    for table, number in ((WRITERS, "generation"), (MANIFESTS, "checkpoint_id")):
        rows = catalog.reading.rows(table, columns=["pipeline", number])
        twice = [key for key, count in Counter((row["pipeline"], row[number]) for row in rows).items() if count > 1]
        assert not twice, f"twice in {table.name}: {twice}"


def holdings(catalog: Catalog) -> Holdings:
    """What readers can see of a catalog: each checkpoint's manifest, what was decided, and the newest one whole."""
    return {name: _held_by(catalog, catalog.pipeline(name)) for name in catalog.pipelines()}


def _held_by(catalog: Catalog, pipeline: Pipeline) -> Holdings:
    manifests = {str(head.checkpoint_id): pipeline.get(head.checkpoint_id).to_dict() for head in pipeline.list()}
    for manifest in manifests.values():
        del manifest["timestamp_ms"]  # differs from run to run
    decided = standing(catalog.reading, pipeline.name)
    return {
        "manifests": manifests,
        "latest": _newest_of(pipeline, manifests),
        "retired": sorted(decided.retired),
        "removed": sorted(decided.removed),
        "pinned": sorted(decided.pinned),
        "abandoned": sorted(decided.abandoned),
        "positions": _positions_of(pipeline),
        "batches": [[head.epoch, head.ordinal, head.raw_length] for head in StateBatches(pipeline).heads()],
    }


def _positions_of(pipeline: Pipeline) -> Holdings:
    found = read_positions(pipeline.reading, pipeline.name)
    return {
        "sources": {name: str(checkpoint) for name, checkpoint in found.sources.items()},
        "results": dict(found.results),
        "config_hash": found.config_hash,
    }


def _newest_of(pipeline: Pipeline, manifests: Holdings) -> Holdings:
    """The newest checkpoint: valid, and all its state read."""
    latest = pipeline.latest()
    newest = max(map(int, manifests), default=None)
    assert newest == (None if latest is None else latest.checkpoint_id), (
        f"latest is {latest}, the list ends with {newest}"
    )
    if newest is None:
        return {}
    checked = pipeline.validate(newest)
    assert checked.valid, f"checkpoint {newest} of {pipeline.name} is broken: {checked}"
    state = pipeline.state(newest)
    return {
        f"{operator}/{partition}": xxh3_hex(state.read(operator, partition))
        for operator, partitions in state.partitions().items()
        for partition in partitions
    }


def uncommitted(catalog: Catalog, pipeline: str) -> set[str]:
    """The attempts that staged children and have no manifest row."""
    committed = _attempts(catalog, MANIFESTS.name, pipeline)
    return {attempt for spec in CHILD_TABLES for attempt in _attempts(catalog, spec.name, pipeline)} - committed


def _attempts(catalog: Catalog, table: str, pipeline: str) -> set[str]:
    rows = catalog.engine.read(table, columns=["pipeline", "attempt_id"]).to_pylist()
    return {row["attempt_id"] for row in rows if row["pipeline"] == pipeline}


def assert_goes_on(catalog: Catalog, pipeline: str, *, reader: Catalog | None = None) -> None:
    """A successor takes over, recovers, saves, commits a session; and clears away everything that earlier attempts left behind.

    Args:
        catalog: Whose pipeline.
        pipeline: Which.
        reader: The same catalog on an engine that reads quicker.
    """
    with catalog.writer(pipeline, owner="successor") as writer:
        writer.recover()
        with writer.checkpoint() as cp:
            cp.source("successor", {"0": str(writer.generation)})
            cp.state("successor", b"s" * 20_000, partition=1)
        found = (reader or catalog).pipeline(pipeline)
        latest = found.latest()
        assert latest is not None, f"checkpoint {cp.id} was saved and there is none"
        assert latest.checkpoint_id == cp.id, f"{latest.checkpoint_id} is the newest after {cp.id} was saved"
        assert latest.source_offsets["successor"].offsets == {"0": str(writer.generation)}
        assert found.validate(cp.id).valid
        assert found.state(cp.id).read("successor", 1) == b"s" * 20_000
        left = uncommitted(reader or catalog, pipeline)
        removed = {orphan.attempt_id for orphan in catalog.pipeline(pipeline).remove_orphans()}
        assert removed == left, f"of the orphans {left} only {removed} were removed"
        still = uncommitted(reader or catalog, pipeline)
        assert not still, f"orphans {still} are still there"
        _assert_sessions_go_on(catalog, pipeline, writer.generation, reader or catalog)


def _assert_sessions_go_on(catalog: Catalog, pipeline: str, generation: int, reader: Catalog) -> None:
    """A session of what a task staged is committed, found when its token is tried again, and no step is left afterwards."""
    store = SourceCheckpointStore(catalog, pipeline, owner="successor", generation=generation)
    expected = {**store.read_all_checkpoints(), "successor": SourceCheckpoint(sequence=generation)}
    session = store.session()
    store.stage_steps(session.token, [{"source": "successor", "sequence": generation}])
    for is_again in (False, True):
        taken = session if not is_again else store.session(session.token)
        taken.take_steps()
        commit = taken.commit()
        assert commit.replayed == is_again, f"session {session.id} was told {commit}"
        found = SourceCheckpointStore(reader, pipeline).read_all_checkpoints()
        assert found == expected, f"{found} is there after a session of {expected}"
    store.remove_steps()
    left = reader.engine.read(SESSION_STEPS.name, where=col("pipeline").eq(pipeline)).num_rows
    assert left == 0, f"{left} steps are still there"
