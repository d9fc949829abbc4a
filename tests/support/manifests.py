"""Sending manifests through an engine's tables."""

from laminar_delta.catalog.rows import SaveContext, manifest_from_rows, manifest_table, offsets_table
from laminar_delta.catalog.tables import MANIFESTS, SOURCE_OFFSETS
from laminar_delta.engine.base import Engine
from laminar_delta.engine.predicate import col
from laminar_delta.model import CheckpointManifest, new_attempt_id


def assert_manifests_survive(engine: Engine, manifests: list[CheckpointManifest]) -> None:
    """Saves all in one commit per table, then reads each back by its attempt."""
    import pyarrow as pa

    engine.create(MANIFESTS)
    engine.create(SOURCE_OFFSETS)
    saved = [(manifest, SaveContext(pipeline="p", attempt_id=new_attempt_id())) for manifest in manifests]
    offsets = [offsets_table(manifest, context) for manifest, context in saved]
    engine.append(SOURCE_OFFSETS.name, pa.concat_tables(offsets))
    engine.append(MANIFESTS.name, manifest_table(saved))
    where = col("attempt_id").is_in([context.attempt_id for _, context in saved])
    rows = {row["attempt_id"]: row for row in engine.read(MANIFESTS.name, where=where).to_pylist()}
    children = engine.read(SOURCE_OFFSETS.name, where=where).to_pylist()
    for manifest, context in saved:
        own = [child for child in children if child["attempt_id"] == context.attempt_id]
        assert manifest_from_rows(rows[context.attempt_id], own) == manifest
