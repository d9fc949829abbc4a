"""Filters find exactly what is there: also where statistics could mislead, and with SQL's idea of null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from laminar_delta.engine.predicate import Predicate, apart, col
from laminar_delta.errors import ErrorCode, InvalidInputError
from laminar_delta.testing.conformance.tables import LINES, NASTY_NAMES, PARTITIONED, ids, line, part

if TYPE_CHECKING:
    from laminar_delta.testing.harness import EngineHarness

NEIGHBOURS = (2**53 - 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1)
"""Numbers that a float cannot tell from the next one."""

CONDITIONS: dict[str, tuple[Predicate, list[int | None]]] = {
    "null differs from nothing": (col("id").ne(1), [2]),
    "is null": (col("id").is_null(), [None]),
    "is not null": (~col("id").is_null(), [1, 2]),
    "or": (col("id").eq(1) | col("id").is_null(), [None, 1]),
    "not unknown is unknown": (~(col("id").eq(1)), [2]),
    "false decides a conjunction": (~(col("id").eq(1) & col("attempt").eq("x")), [2]),
    "in": (col("id").is_in([2, 3]), [2]),
    "in nothing": (col("id").is_in([]), []),
    "apart": (apart([*(col("id").eq(number) for number in range(2, 40)), col("id").is_null()]), [None, 2]),
    "apart, of none": (apart([]), []),
    "not apart": (~apart([col("id").eq(2), col("id").eq(3)]), [1]),
    "bytes": (col("payload").eq(b"\x00'\xff"), [2]),
    "column with column": (col("pipeline").eq(col("attempt")), [2]),
    "smallest number": (col("id").ge(-(2**63)), [1, 2]),
}
"""A condition on rows with id 1, 2 and null, and the ids for which it is true."""


class Filters:
    """Scans and deletes by condition."""

    def test_neighbouring_large_numbers_in_separate_files_are_told_apart(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        for number in NEIGHBOURS:
            engine.append(LINES.name, line("p", number))
        assert harness.data_files(LINES.name) == len(NEIGHBOURS)
        for index, number in enumerate(NEIGHBOURS):
            found = [
                ids(engine.read(LINES.name, columns=["id"], where=where))
                for where in (col("id").eq(number), col("id").lt(number), col("id").ge(number))
            ]
            assert found == [[number], list(NEIGHBOURS[:index]), list(NEIGHBOURS[index:])]
        assert engine.delete(LINES.name, col("id").eq(2**53 + 1)).deleted == 1
        assert engine.delete(LINES.name, col("id").eq(2**63 - 1)).deleted == 1
        left = sorted(row["id"] for row in harness.raw_rows(LINES.name))
        assert left == [2**53 - 1, 2**53, 2**63 - 2]

    def test_neighbouring_large_numbers_as_partitions_are_told_apart(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(PARTITIONED)
        engine.append(PARTITIONED.name, pa.concat_tables([part("p", number) for number in NEIGHBOURS]))
        for number in NEIGHBOURS:
            where = col("pipeline").eq("p") & col("checkpoint_id").eq(number)
            assert engine.read(PARTITIONED.name, where=where).column("checkpoint_id").to_pylist() == [number]
        assert engine.delete(PARTITIONED.name, col("checkpoint_id").eq(2**63 - 1)).deleted == 1
        assert sorted(row["checkpoint_id"] for row in harness.raw_rows(PARTITIONED.name)) == sorted(NEIGHBOURS[:-1])

    def test_texts_are_compared_as_they_are(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        names = [*NASTY_NAMES, "", "é", "e\u0301", "É"]
        engine.append(LINES.name, pa.concat_tables([line(name, n) for n, name in enumerate(names)]))
        for number, name in enumerate(names):
            found = engine.read(LINES.name, columns=["id"], where=col("pipeline").eq(name))
            assert found.column("id").to_pylist() == [number]

    def test_conditions_mean_what_sql_means(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        rows: list[dict[str, Any]] = [
            {"pipeline": "p", "id": 1, "attempt": "x", "payload": b"1"},
            {"pipeline": "p", "id": 2, "attempt": "p", "payload": b"\x00'\xff"},
            {"pipeline": "p", "id": None, "attempt": None, "payload": None},
        ]
        engine.append(LINES.name, pa.Table.from_pylist(rows, schema=LINES.schema))
        for what, (where, expected) in CONDITIONS.items():
            found = engine.read(LINES.name, columns=["id"], where=where).column("id").to_pylist()
            assert sorted(found, key=str) == sorted(expected, key=str), what

    def test_a_number_beyond_bigint_is_refused_before_anything_is_read(self, harness: EngineHarness) -> None:
        with pytest.raises(InvalidInputError) as caught:
            harness.open().read(LINES.name, where=col("id").eq(2**63))
        assert caught.value.code is ErrorCode.NUMBER_TOO_LARGE
