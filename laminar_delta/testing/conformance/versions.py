"""Tables, versions and time travel: who sees what, and from when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from laminar_delta.engine.request import TableSpec
from laminar_delta.errors import ErrorCode, FormatError, NotFoundError
from laminar_delta.testing.conformance.tables import LINES, PARTITIONED, ids, line

if TYPE_CHECKING:
    from laminar_delta.testing.harness import EngineHarness


class Versions:
    """One version per commit, all of them readable."""

    def test_each_append_makes_the_next_version_and_the_earlier_ones_stay(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        start = engine.version(LINES.name)
        made = [engine.append(LINES.name, line("p", number)).version for number in range(3)]
        assert made == [start + 1, start + 2, start + 3]
        assert engine.version(LINES.name) == start + 3
        for number in range(4):
            assert ids(engine.read(LINES.name, columns=["id"], version=start + number)) == list(range(number))

    def test_a_commit_is_seen_by_another_engine_at_once(self, harness: EngineHarness) -> None:
        writer, reader = harness.open(), harness.open()
        writer.create(LINES)
        assert reader.read(LINES.name).num_rows == 0
        for number in range(3):
            writer.append(LINES.name, line("p", number))
            assert reader.read(LINES.name).num_rows == number + 1

    def test_a_scan_begun_earlier_keeps_its_version(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 1))
        before = engine.version(LINES.name)
        engine.append(LINES.name, line("p", 2))
        assert engine.read(LINES.name, version=before).column("id").to_pylist() == [1]

    def test_a_time_names_the_version_that_was_newest_then(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 1))
        harness.age(LINES.name, days=1)
        engine.append(LINES.name, line("p", 2))
        newest, *older = engine.history(LINES.name)
        assert engine.version_at(LINES.name, newest.timestamp_ms) == newest.version
        assert engine.version_at(LINES.name, newest.timestamp_ms + 10**9) == newest.version
        assert engine.version_at(LINES.name, newest.timestamp_ms - 1) == older[0].version
        with pytest.raises(NotFoundError) as caught:
            engine.version_at(LINES.name, older[-1].timestamp_ms - 1)
        assert caught.value.code is ErrorCode.VERSION_GONE

    def test_a_version_that_never_was_is_not_found(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        with pytest.raises(NotFoundError) as caught:
            engine.read(LINES.name, version=99)
        assert caught.value.code is ErrorCode.VERSION_GONE

    def test_a_table_that_is_not_there_is_not_found(self, harness: EngineHarness) -> None:
        engine = harness.open()
        assert not engine.exists("nothing")
        with pytest.raises(NotFoundError, match="nothing"):
            engine.read("nothing")
        with pytest.raises(NotFoundError, match="nothing"):
            engine.append("nothing", line("p", 1))

    def test_creating_again_changes_nothing(self, harness: EngineHarness) -> None:
        engine = harness.open()
        assert engine.create(LINES)
        engine.append(LINES.name, line("p", 1))
        version = engine.version(LINES.name)
        assert not engine.create(LINES)
        assert not harness.open().create(LINES)
        assert engine.version(LINES.name) == version
        assert engine.read(LINES.name).num_rows == 1

    def test_many_creating_at_once_make_one_table(self, harness: EngineHarness) -> None:
        engines = [harness.open() for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            created = list(pool.map(lambda engine: engine.create(LINES), engines))
        assert sum(created) == 1
        engines[0].append(LINES.name, line("p", 1))
        assert engines[5].read(LINES.name).num_rows == 1

    def test_another_table_of_that_name_is_refused(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        other = TableSpec(name=LINES.name, schema=pa.schema([("pipeline", pa.string())]))
        with pytest.raises(FormatError, match="columns"):
            engine.create(other)
        partitioned = TableSpec(name=LINES.name, schema=LINES.schema, partition_by=("pipeline",))
        with pytest.raises(FormatError, match="partitioning"):
            engine.create(partitioned)

    def test_properties_are_stored_as_given(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(PARTITIONED)
        stored = engine.properties(PARTITIONED.name)
        assert {name: stored.get(name) for name in PARTITIONED.properties} == dict(PARTITIONED.properties)
        assert "delta.setTransactionRetentionDuration" not in stored
