"""What goes in comes out: every type, the edges of their ranges, and names that break careless code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from laminar_delta.engine.predicate import col
from laminar_delta.errors import InvalidInputError
from laminar_delta.testing.conformance.tables import (
    EVERY_TYPE,
    LINES,
    NASTY_NAMES,
    PARTITIONED,
    every_type_rows,
    ids,
    line,
    part,
)

if TYPE_CHECKING:
    from laminar_delta.testing.harness import EngineHarness


def _by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


class RoundTrips:
    """Rows survive."""

    def test_every_column_type_comes_back_as_it_was(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(EVERY_TYPE)
        rows = every_type_rows()
        engine.append(EVERY_TYPE.name, pa.Table.from_pylist(rows, schema=EVERY_TYPE.schema))
        found = engine.read(EVERY_TYPE.name)
        assert found.schema == engine.schema(EVERY_TYPE.name)
        assert [f.type for f in found.schema] == [f.type for f in EVERY_TYPE.schema]
        assert _by_id(found.to_pylist()) == _by_id(rows)
        assert _by_id(harness.raw_rows(EVERY_TYPE.name)) == _by_id(rows)

    def test_a_column_of_nulls_only_keeps_its_type(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(EVERY_TYPE)
        rows = [every_type_rows()[-1]]
        engine.append(EVERY_TYPE.name, pa.Table.from_pylist(rows, schema=EVERY_TYPE.schema))
        assert engine.read(EVERY_TYPE.name).to_pylist() == rows

    def test_rows_in_many_small_chunks_all_arrive(self, harness: EngineHarness) -> None:
        """Arrow tables made by putting others together have chunks, some of them empty."""
        engine = harness.open()
        engine.create(LINES)
        empty = LINES.schema.empty_table()
        pieces = [piece for number in range(5) for piece in (empty, line("p", number), empty)]
        engine.append(LINES.name, pa.concat_tables(pieces))
        assert ids(engine.read(LINES.name)) == [0, 1, 2, 3, 4]
        assert sorted(row["id"] for row in harness.raw_rows(LINES.name)) == [0, 1, 2, 3, 4]

    def test_an_append_of_no_rows_changes_nothing(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        version = engine.version(LINES.name)
        assert engine.append(LINES.name, LINES.schema.empty_table()).version is None
        assert engine.version(LINES.name) == version

    def test_columns_are_taken_by_name_and_cast_without_loss(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        data = pa.table({"payload": [b"x"], "attempt": ["a"], "id": pa.array([7], pa.uint16()), "pipeline": ["p"]})
        engine.append(LINES.name, data)
        assert engine.read(LINES.name).to_pylist() == [{"pipeline": "p", "id": 7, "attempt": "a", "payload": b"x"}]

    @pytest.mark.parametrize(
        "data",
        [
            pytest.param(line("p", 1).drop_columns(["payload"]), id="missing"),
            pytest.param(line("p", 1).append_column("more", pa.array([1])), id="unknown"),
            pytest.param(line("p", 1).set_column(1, "id", pa.array(["seven"])), id="type"),
            pytest.param(line("p", 1).set_column(1, "id", pa.array([2**63], pa.uint64())), id="too large"),
            pytest.param(line("p", 1).set_column(1, "id", pa.array([1.5])), id="lossy"),
        ],
    )
    def test_rows_that_do_not_fit_are_refused_and_leave_nothing(self, harness: EngineHarness, data: pa.Table) -> None:
        engine = harness.open()
        engine.create(LINES)
        before = engine.version(LINES.name)
        with pytest.raises(InvalidInputError):
            engine.append(LINES.name, data)
        assert engine.version(LINES.name) == before
        assert harness.raw_rows(LINES.name) == []

    def test_nasty_names_are_names_like_any_other(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(PARTITIONED)
        engine.append(
            PARTITIONED.name, pa.concat_tables([part(name, number) for number, name in enumerate(NASTY_NAMES)])
        )
        assert sorted(row["pipeline"] for row in harness.raw_rows(PARTITIONED.name)) == sorted(NASTY_NAMES)
        for number, name in enumerate(NASTY_NAMES):
            found = engine.read(PARTITIONED.name, where=col("pipeline").eq(name))
            assert found.to_pylist() == [{"pipeline": name, "checkpoint_id": number, "value": 0}]
        for name in NASTY_NAMES[:3]:
            assert engine.delete(PARTITIONED.name, col("pipeline").eq(name)).deleted == 1
        left = [row["pipeline"] for row in engine.read(PARTITIONED.name, columns=["pipeline"]).to_pylist()]
        assert sorted(left) == sorted(NASTY_NAMES[3:])

    def test_a_large_scan_comes_in_batches(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        numbers = list(range(12_000))
        for half in (numbers[:6000], numbers[6000:]):
            data = {"pipeline": ["p"] * 6000, "id": half, "attempt": [""] * 6000, "payload": [b"x" * 200] * 6000}
            engine.append(LINES.name, pa.table(data, schema=LINES.schema))
        reader = engine.scan(LINES.name, columns=["payload", "id"], streamed=True)
        assert reader.schema.names == ["payload", "id"]
        batches = list(reader)
        assert len(batches) > 1
        assert ids(pa.Table.from_batches(batches)) == numbers
        assert all(set(batch.column("payload").to_pylist()) == {b"x" * 200} for batch in batches if batch.num_rows)

    def test_an_unknown_column_is_refused_by_name(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        with pytest.raises(InvalidInputError, match="nope"):
            engine.scan(LINES.name, columns=["id", "nope"])
