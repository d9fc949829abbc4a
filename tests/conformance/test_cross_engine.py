"""What one engine writes the other reads: rows, names, versions, history, fences; and both may write one table by turns."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laminar_delta.catalog.tables import TABLES
from laminar_delta.engine.base import Engine
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence
from laminar_delta.errors import FencedError
from laminar_delta.model import CheckpointManifest
from laminar_delta.testing.conformance.tables import (
    EVERY_TYPE,
    LINES,
    NASTY_NAMES,
    PARTITIONED,
    every_type_rows,
    line,
    part,
)
from laminar_delta.testing.strategies import manifests, ordering_numbers
from tests.support.harnesses import EmbeddedHarness
from tests.support.manifests import assert_manifests_survive
from tests.support.races import race
from tests.support.spark_harness import SparkHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(params=["embedded writes", "spark writes"])
def writer_and_reader(request: pytest.FixtureRequest, tmp_path: Path, spark: "SparkSession") -> tuple[Engine, Engine]:
    engines = [EmbeddedHarness(tmp_path).open(), SparkHarness(tmp_path, spark).open()]
    if request.param == "spark writes":
        engines.reverse()
    return engines[0], engines[1]


def test_rows_of_every_type_are_read_by_the_other(writer_and_reader: tuple[Engine, Engine]) -> None:
    writer, reader = writer_and_reader
    writer.create(EVERY_TYPE)
    rows = every_type_rows()
    writer.append(EVERY_TYPE.name, pa.Table.from_pylist(rows, schema=EVERY_TYPE.schema))
    assert reader.schema(EVERY_TYPE.name) == writer.schema(EVERY_TYPE.name)
    assert not reader.create(EVERY_TYPE)
    found = sorted(reader.read(EVERY_TYPE.name).to_pylist(), key=lambda row: row["id"])
    assert found == sorted(rows, key=lambda row: row["id"])


def test_partitions_by_nasty_names_are_found_by_the_other(writer_and_reader: tuple[Engine, Engine]) -> None:
    writer, reader = writer_and_reader
    writer.create(PARTITIONED)
    writer.append(PARTITIONED.name, pa.concat_tables([part(name, n) for n, name in enumerate(NASTY_NAMES)]))
    for number, name in enumerate(NASTY_NAMES):
        found = reader.read(PARTITIONED.name, where=col("pipeline").eq(name)).to_pylist()
        assert found == [{"pipeline": name, "checkpoint_id": number, "value": 0}]


def test_fences_versions_and_history_are_the_same_for_both(writer_and_reader: tuple[Engine, Engine]) -> None:
    first, second = writer_and_reader
    first.create(LINES)
    first.append(LINES.name, line("p", 2**53 + 1, "a"), fences=[Fence("laminar:p", 7)], metadata={"owner": "first"})
    with pytest.raises(FencedError):
        second.append(LINES.name, line("p", 2, "b"), fences=[Fence("laminar:p", 7)], key={"attempt": "b"})
    second.append(LINES.name, line("p", 2**53, "c"), fences=[Fence("laminar:p", 8)], metadata={"owner": "second"})
    with pytest.raises(FencedError):
        first.append(LINES.name, line("p", 4, "d"), fences=[Fence("laminar:p", 8)], key={"attempt": "d"})
    for engine in (first, second):
        assert [entry.metadata.get("owner") for entry in engine.history(LINES.name)[:2]] == ["second", "first"]
        assert engine.version(LINES.name) == 2
        assert engine.read(LINES.name, version=1).num_rows == 1
        for number in (2**53, 2**53 + 1):
            assert engine.read(LINES.name, where=col("id").eq(number)).column("id").to_pylist() == [number]
        assert engine.properties(LINES.name)["delta.checkpointInterval"] == "50"


def test_maintenance_by_one_leaves_the_others_fences(writer_and_reader: tuple[Engine, Engine]) -> None:
    first, second = writer_and_reader
    first.create(LINES)
    for number in range(3):
        first.append(LINES.name, line("p", number), fences=[Fence("laminar:p", number + 1)])
    second.optimize(LINES.name)
    second.log_checkpoint(LINES.name)
    with pytest.raises(FencedError):
        first.append(LINES.name, line("p", 9, "z"), fences=[Fence("laminar:p", 3)], key={"attempt": "z"})
    assert first.read(LINES.name).num_rows == 3


def test_both_create_the_same_tables(writer_and_reader: tuple[Engine, Engine]) -> None:
    first, second = writer_and_reader
    for spec in TABLES:
        assert first.create(spec)
        assert not second.create(spec)


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(found=st.lists(manifests(ordering=ordering_numbers()), min_size=10, max_size=40))
def test_any_manifest_survives_the_spark_engine(
    tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession", found: list[CheckpointManifest]
) -> None:
    assert_manifests_survive(SparkHarness(tmp_path_factory.mktemp("rows"), spark).open(), found)


@pytest.mark.processes
def test_an_embedded_and_a_spark_process_lose_nothing(tmp_path: Path) -> None:
    place = EmbeddedHarness(tmp_path / "catalog")
    race(place, [place.opening(), SparkHarness.opening_at(place.root)], rounds=50)
