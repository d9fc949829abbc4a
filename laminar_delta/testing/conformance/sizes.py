"""Sizes: what the newest version takes, by partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.engine.predicate import col
from laminar_delta.testing.conformance.tables import LINES, PARTITIONED, line

if TYPE_CHECKING:
    from laminar_delta.testing.harness import EngineHarness

NAME = "a/b c=d%é"


class Sizes:
    """The files that count are those of the newest version."""

    def test_each_partition_is_told_with_its_values(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(PARTITIONED)
        assert engine.sizes(PARTITIONED.name) == []
        for number in (1, 2):
            rows = {"pipeline": [NAME] * 2, "checkpoint_id": [number, 3], "value": [number, number]}
            engine.append(PARTITIONED.name, pa.table(rows, schema=PARTITIONED.schema))
        found = {tuple(size.partition.items()): size for size in engine.sizes(PARTITIONED.name)}
        assert {key: size.files for key, size in found.items()} == {
            (("pipeline", NAME), ("checkpoint_id", 1)): 1,
            (("pipeline", NAME), ("checkpoint_id", 2)): 1,
            (("pipeline", NAME), ("checkpoint_id", 3)): 2,
        }
        assert all(size.size_bytes > 0 for size in found.values())

    def test_what_was_deleted_counts_no_more_and_what_is_larger_counts_more(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 1))
        (small,) = engine.sizes(LINES.name)
        assert small.partition == {}
        large = line("p", 2).set_column(3, "payload", pa.array([bytes(range(256)) * 4000], pa.binary()))
        engine.append(LINES.name, large)
        (both,) = engine.sizes(LINES.name)
        assert both.files == 2
        assert both.size_bytes > small.size_bytes
        engine.delete(LINES.name, col("id").eq(2))
        assert engine.sizes(LINES.name) == [small]
