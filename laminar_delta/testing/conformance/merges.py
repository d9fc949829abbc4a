"""Merges: what matches, what changes, and who wins when two want the same row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from laminar_delta.engine.predicate import col, source, target
from laminar_delta.engine.request import Fence, Merge, WhenMatched
from laminar_delta.errors import InvalidInputError
from laminar_delta.testing.conformance.tables import LINES, PARTITIONED, line, part

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.testing.harness import EngineHarness


def _started(harness: EngineHarness, *rows: pa.Table) -> Engine:
    engine = harness.open()
    engine.create(LINES)
    engine.append(LINES.name, pa.concat_tables(rows))
    return engine


def _attempts(rows: list[dict[str, Any]]) -> dict[tuple[str, int], str]:
    return {(row["pipeline"], row["id"]): row["attempt"] for row in rows}


class Merges:
    """Update, insert, delete, each under its condition, in one commit."""

    def test_insert_only_keeps_what_is_there(self, harness: EngineHarness) -> None:
        engine = _started(harness, line("p", 1, "old"))
        merge = Merge(keys=("pipeline", "id"), scope=target("pipeline").eq("p"))
        made = engine.merge(LINES.name, pa.concat_tables([line("p", 1, "new"), line("p", 2, "new")]), merge)
        assert (made.inserted, made.updated, made.deleted) == (1, 0, 0)
        assert _attempts(harness.raw_rows(LINES.name)) == {("p", 1): "old", ("p", 2): "new"}

    def test_an_update_takes_the_named_columns_under_its_condition(self, harness: EngineHarness) -> None:
        engine = _started(harness, line("p", 1, "b", b"kept"), line("p", 2, "y", b"kept"))
        merge = Merge(
            keys=("pipeline", "id"),
            when_matched=(WhenMatched(columns=("attempt",), condition=target("attempt").lt(source("attempt"))),),
        )
        incoming = pa.concat_tables([line("p", 1, "c", b"not"), line("p", 2, "x", b"not"), line("p", 3, "z", b"new")])
        made = engine.merge(LINES.name, incoming, merge)
        assert (made.inserted, made.updated, made.deleted) == (1, 1, 0)
        rows = harness.raw_rows(LINES.name)
        assert _attempts(rows) == {("p", 1): "c", ("p", 2): "y", ("p", 3): "z"}
        assert {row["id"]: row["payload"] for row in rows} == {1: b"kept", 2: b"kept", 3: b"new"}

    def test_the_first_clause_that_applies_decides(self, harness: EngineHarness) -> None:
        engine = _started(harness, line("p", 1, "a"), line("p", 2, "b"), line("p", 3, "c"))
        merge = Merge(
            keys=("pipeline", "id"),
            when_matched=(
                WhenMatched(delete=True, condition=source("attempt").eq("gone")),
                WhenMatched(condition=target("attempt").ne("c")),
            ),
            insert_condition=source("id").lt(10),
        )
        incoming = [line("p", 1, "gone"), line("p", 2, "new"), line("p", 3, "new"), line("p", 4, "new"), line("p", 10)]
        made = engine.merge(LINES.name, pa.concat_tables(incoming), merge)
        assert (made.inserted, made.updated, made.deleted) == (1, 1, 1)
        assert _attempts(harness.raw_rows(LINES.name)) == {("p", 2): "new", ("p", 3): "c", ("p", 4): "new"}

    def test_rows_absent_from_the_source_go_where_asked(self, harness: EngineHarness) -> None:
        engine = _started(harness, line("p", 1), line("p", 2), line("p", 30), line("q", 2))
        merge = Merge(
            keys=("pipeline", "id"), scope=target("pipeline").eq("p"), delete_absent=target("id").lt(10), insert=False
        )
        made = engine.merge(LINES.name, pa.concat_tables([line("p", 1), line("p", 7)]), merge)
        assert (made.inserted, made.updated, made.deleted) == (0, 0, 1)
        assert sorted(_attempts(harness.raw_rows(LINES.name))) == [("p", 1), ("p", 30), ("q", 2)]

    def test_a_scope_in_literals_keeps_other_partitions_out(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(PARTITIONED)
        name = "it's a/b c=d%é:"
        engine.append(PARTITIONED.name, pa.concat_tables([part(name, 1, 10), part("other", 1, 20)]))
        merge = Merge(
            keys=("pipeline", "checkpoint_id"), scope=target("pipeline").eq(name), when_matched=(WhenMatched(),)
        )
        made = engine.merge(PARTITIONED.name, pa.concat_tables([part(name, 1, 11), part(name, 2, 12)]), merge)
        assert (made.inserted, made.updated) == (1, 1)
        rows = sorted(
            (row["pipeline"], row["checkpoint_id"], row["value"]) for row in harness.raw_rows(PARTITIONED.name)
        )
        assert rows == sorted([(name, 1, 11), (name, 2, 12), ("other", 1, 20)])

    def test_a_guard_decides_whether_anything_is_merged(self, harness: EngineHarness) -> None:
        engine = _started(harness, line("p", 0, "generation 2"), line("p", 1, "old"), line("q", 0, "generation 1"))
        merge = Merge(
            keys=("pipeline", "id"),
            scope=target("pipeline").eq("p"),
            when_matched=(WhenMatched(),),
            guard=col("pipeline").eq("p") & col("attempt").eq("generation 1"),
        )
        incoming = pa.concat_tables([line("p", 0, "mine"), line("p", 1, "new"), line("p", 2, "new")])
        version = engine.version(LINES.name)
        kept_out = engine.merge(LINES.name, incoming, merge, fences=[Fence("laminar:p", 1)])
        assert (kept_out.version, kept_out.inserted, kept_out.updated, kept_out.deleted) == (None, 0, 0, 0)
        assert engine.version(LINES.name) == version
        guard = col("pipeline").eq("p") & col("attempt").eq("generation 2")
        let_in = engine.merge(LINES.name, incoming, replace(merge, guard=guard), fences=[Fence("laminar:p", 1)])
        assert (let_in.version, let_in.inserted, let_in.updated) == (version + 1, 1, 2)
        assert engine.merge(LINES.name, incoming, replace(merge, guard=guard)).version is None
        assert _attempts(harness.raw_rows(LINES.name)) == {
            ("p", 0): "mine",
            ("p", 1): "new",
            ("p", 2): "new",
            ("q", 0): "generation 1",
        }
        with pytest.raises(InvalidInputError):
            engine.merge(LINES.name, incoming, replace(merge, delete_absent=target("id").gt(0)))

    def test_two_source_rows_for_one_key_are_refused(self, harness: EngineHarness) -> None:
        engine = _started(harness, line("p", 1))
        with pytest.raises(InvalidInputError, match="merge key"):
            engine.merge(LINES.name, pa.concat_tables([line("p", 1), line("p", 1)]), Merge(keys=("pipeline", "id")))
        with pytest.raises(InvalidInputError):
            engine.merge(LINES.name, line("p", 1), Merge(keys=("nope",)))

    def test_every_value_type_goes_through_a_merge(self, harness: EngineHarness) -> None:
        from laminar_delta.testing.conformance.tables import EVERY_TYPE, every_type_rows

        engine = harness.open()
        engine.create(EVERY_TYPE)
        rows = every_type_rows()
        data = pa.Table.from_pylist(rows, schema=EVERY_TYPE.schema)
        merge = Merge(keys=("id",), when_matched=(WhenMatched(),))
        assert engine.merge(EVERY_TYPE.name, data, merge).inserted == len(rows)
        changed = [{**row, "text": "changed"} for row in rows]
        made = engine.merge(EVERY_TYPE.name, pa.Table.from_pylist(changed, schema=EVERY_TYPE.schema), merge)
        assert made.updated == len(rows)
        found = sorted(engine.read(EVERY_TYPE.name).to_pylist(), key=lambda row: row["id"])
        assert found == sorted(changed, key=lambda row: row["id"])
