"""Manifests become rows and come back equal: any manifest, on every engine."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_delta.catalog.rows import SaveContext, created_at, manifest_from_rows, manifest_table, offsets_table
from laminar_delta.catalog.tables import MANIFESTS, SOURCE_OFFSETS
from laminar_delta.engine.base import Engine
from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.memory import MemoryEngine
from laminar_delta.errors import ErrorCode, InvalidInputError
from laminar_delta.model import CheckpointManifest
from laminar_delta.testing.strategies import manifests, ordering_numbers
from tests.support.manifests import assert_manifests_survive


@settings(max_examples=300)
@given(manifests(ordering=ordering_numbers()))
def test_any_manifest_survives_as_rows(manifest: CheckpointManifest) -> None:
    context = SaveContext(pipeline="p", attempt_id="a")
    (row,) = manifest_table([(manifest, context)]).to_pylist()
    assert manifest_from_rows(row, offsets_table(manifest, context).to_pylist()) == manifest


@settings(max_examples=15)
@given(found=st.lists(manifests(ordering=ordering_numbers()), min_size=1, max_size=20))
def test_any_manifest_survives_the_memory_engine(found: list[CheckpointManifest]) -> None:
    assert_manifests_survive(MemoryEngine(), found)


@settings(max_examples=15)
@given(found=st.lists(manifests(ordering=ordering_numbers()), min_size=1, max_size=20))
def test_any_manifest_survives_the_embedded_engine(
    tmp_path_factory: pytest.TempPathFactory, found: list[CheckpointManifest]
) -> None:
    engine: Engine = EmbeddedEngine(Path(tmp_path_factory.mktemp("rows")))
    assert_manifests_survive(engine, found)


@pytest.mark.parametrize("field", ["checkpoint_id", "epoch", "timestamp_ms", "parent_id"])
def test_a_number_that_orders_ends_at_bigint(field: str) -> None:
    fields: dict[str, Any] = {"version": 1, "checkpoint_id": 1, "epoch": 1, "timestamp_ms": 1, field: 2**63}
    with pytest.raises(InvalidInputError, match=field) as caught:
        manifest_table([(CheckpointManifest(**fields), SaveContext(pipeline="p", attempt_id="a"))])
    assert caught.value.code is ErrorCode.NUMBER_TOO_LARGE
    fields[field] = 2**63 - 1
    assert manifest_table([(CheckpointManifest(**fields), SaveContext(pipeline="p", attempt_id="a"))]).num_rows == 1


def test_a_pipeline_name_that_no_directory_can_have_is_refused() -> None:
    manifest = CheckpointManifest.new(1, 1)
    with pytest.raises(InvalidInputError):
        manifest_table([(manifest, SaveContext(pipeline="é" * 120, attempt_id="a"))])


def test_created_at_is_the_moment_or_nothing() -> None:
    assert created_at(0) == dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
    assert created_at(1_700_000_000_123) == dt.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=dt.timezone.utc)
    assert created_at(2**63 - 1) is None


def test_the_columns_are_those_of_the_tables() -> None:
    manifest, context = CheckpointManifest.new(1, 1), SaveContext(pipeline="p", attempt_id="a")
    assert manifest_table([(manifest, context)]).schema == MANIFESTS.schema
    assert offsets_table(manifest, context).schema == SOURCE_OFFSETS.schema
