"""Queries: the same text gives the same answer on every engine, and none of them changes anything."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from laminar_delta.errors import ErrorCode, InvalidInputError, LaminarDeltaError, NotFoundError
from laminar_delta.testing.conformance.tables import EVERY_TYPE, LINES, NASTY_NAMES, every_type_rows, line, schema_of

if TYPE_CHECKING:
    from pathlib import Path

    from laminar_delta.engine.base import Engine
    from laminar_delta.testing.harness import EngineHarness

NO_QUERIES = (
    "DROP TABLE lines",
    "DELETE FROM lines",
    "INSERT INTO lines SELECT * FROM lines",
    "WITH rows AS (SELECT * FROM lines) INSERT INTO lines SELECT * FROM rows",
    "FROM lines INSERT INTO lines SELECT *",
    "SELECT id INTO copied FROM lines",
    "CREATE VIEW copied AS SELECT * FROM lines",
    "CREATE TABLE copied AS SELECT * FROM lines",
    "COPY lines TO '{place}'",
    "INSERT OVERWRITE DIRECTORY '{place}' USING parquet SELECT id FROM lines",
    "UPDATE lines SET id = 0",
    "TRUNCATE TABLE lines",
    "SET a = b",
    "SELECT 1 AS one; DROP TABLE lines",
    "SELECT 1 AS one) AS a; DROP TABLE lines; SELECT * FROM (SELECT 1 AS one",
    "-- SELECT 1\nDROP TABLE lines",
    "/* SELECT */ DROP TABLE lines",
    "EXPLAIN SELECT 1 AS one",
    "SELECT",
    ";",
    "",
)


def _lines(harness: EngineHarness, *names: str) -> Engine:
    engine = harness.open()
    engine.create(LINES)
    engine.append(LINES.name, pa.concat_tables([line(name, number) for number, name in enumerate(names)]))
    return engine


class Queries:
    """Tables and views by name, to read only."""

    def test_a_query_reads_tables_at_versions_and_views_over_them(self, harness: EngineHarness) -> None:
        engine = _lines(harness, "a", "b", "b")
        before = engine.version(LINES.name)
        engine.append(LINES.name, line("c", 3))
        views = {
            "counted": "SELECT pipeline, COUNT(*) AS n FROM lines GROUP BY pipeline",
            "often": "SELECT * FROM counted WHERE n > 1",
        }
        text = "SELECT pipeline, n FROM counted ORDER BY pipeline DESC"
        now = engine.query(text, tables={"lines": None}, views=views)
        assert now.schema == schema_of(pipeline=pa.string(), n=pa.int64())
        assert now.to_pylist() == [{"pipeline": p, "n": n} for p, n in (("c", 1), ("b", 2), ("a", 1))]
        then = engine.query(text, tables={"lines": before}, views=views)
        assert then.column("pipeline").to_pylist() == ["b", "a"]
        often = engine.query("WITH o AS (SELECT * FROM often) SELECT * FROM o;", tables={"lines": None}, views=views)
        assert often.to_pylist() == [{"pipeline": "b", "n": 2}]
        none = engine.query("SELECT id FROM lines WHERE id < 0", tables={"lines": None})
        assert (none.schema, none.num_rows) == (schema_of(id=pa.int64()), 0)
        with pytest.raises(NotFoundError) as caught:
            engine.query("SELECT * FROM lines", tables={"lines": 99})
        assert caught.value.code is ErrorCode.VERSION_GONE

    def test_values_of_every_type_are_answered_as_they_are_scanned(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(EVERY_TYPE)
        engine.append(EVERY_TYPE.name, pa.Table.from_pylist(every_type_rows(), schema=EVERY_TYPE.schema))
        found = engine.query("SELECT * FROM every_type ORDER BY id", tables={EVERY_TYPE.name: None})
        assert found.to_pylist() == sorted(every_type_rows(), key=lambda row: row["id"])
        wider = {"small": pa.int64()}
        assert {f.name: f.type for f in found.schema} == {f.name: f.type for f in EVERY_TYPE.schema} | wider

    def test_lists_become_rows_and_bytes_are_counted(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(EVERY_TYPE)
        rows = [{**every_type_rows()[0], "id": 1}, {**every_type_rows()[2], "id": 2}, every_type_rows()[3] | {"id": 3}]
        engine.append(EVERY_TYPE.name, pa.Table.from_pylist(rows, schema=EVERY_TYPE.schema))
        views = {
            "flat": "SELECT id, entry['key'] AS k, entry['value'] AS v "
            "FROM (SELECT id, EACH(map_entries(offsets)) AS entry FROM every_type) AS e",
            "named": "SELECT id, EACH(names) AS name FROM every_type",
            "sized": "SELECT id, BYTES(payload) AS size FROM every_type",
        }
        answers = {
            name: engine.query(f"SELECT * FROM {name} ORDER BY id", tables={EVERY_TYPE.name: None}, views=views)
            for name in views
        }
        assert sorted(answers["flat"].to_pylist(), key=str) == [
            {"id": 1, "k": "0", "v": "1500"},
            {"id": 1, "k": "ü 😀", "v": ""},
        ]
        assert sorted(row["name"] for row in answers["named"].to_pylist()) == ["", "a", "a", "b", "é"]
        assert answers["sized"].to_pylist() == [{"id": 1, "size": 256}, {"id": 2, "size": 0}, {"id": 3, "size": None}]
        assert answers["sized"].schema.field("size").type == pa.int64()

    def test_text_and_names_are_written_in_one_way(self, harness: EngineHarness) -> None:
        names = list(NASTY_NAMES)
        engine = _lines(harness, *names)
        listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
        text = f'SELECT "id", "pipeline" FROM lines WHERE pipeline IN ({listed}) ORDER BY id'
        assert engine.query(text, tables={"lines": None}).column("pipeline").to_pylist() == names

    def test_anything_but_a_query_is_refused_and_changes_nothing(self, harness: EngineHarness, tmp_path: Path) -> None:
        engine = _lines(harness, "a")
        before = engine.version(LINES.name)
        place = tmp_path / "copied.parquet"
        for text in NO_QUERIES:
            with pytest.raises(InvalidInputError):
                engine.query(text.format(place=place), tables={"lines": None})
        assert engine.version(LINES.name) == before
        assert [row["pipeline"] for row in harness.raw_rows(LINES.name)] == ["a"]
        assert not place.exists()
        assert not engine.exists("copied")

    def test_a_mistake_in_a_query_is_told_with_what_there_is(self, harness: EngineHarness) -> None:
        engine = _lines(harness, "a")
        for text in (
            "SELECT nothing FROM lines",
            "SELECT * FROM nowhere",
            "SELECT id FROM lines WHERE id = = 1",
            "SELECT id / 0 AS x FROM lines",
            "SELECT CAST(pipeline AS BIGINT) AS x FROM lines",
        ):
            with pytest.raises(InvalidInputError, match="counted, lines") as caught:
                engine.query(text, tables={"lines": None}, views={"counted": "SELECT COUNT(*) AS n FROM lines"})
            assert caught.value.expected == ["counted", "lines"]

    def test_a_table_that_is_gone_is_no_mistake_of_the_query(self, harness: EngineHarness) -> None:
        engine = _lines(harness, "a")
        assert engine.query("SELECT id FROM lines", tables={"lines": None}).num_rows == 1
        harness.destroy(LINES.name)
        with pytest.raises(LaminarDeltaError) as caught:
            engine.query("SELECT id FROM lines", tables={"lines": None})
        assert not isinstance(caught.value, InvalidInputError)

    def test_queries_at_the_same_time_have_their_own_views(self, harness: EngineHarness) -> None:
        engine = _lines(harness, "a", "b")

        def ask(number: int) -> list[int]:
            views = {"mine": f"SELECT id + {number} AS id FROM lines"}
            found = engine.query("SELECT id FROM mine ORDER BY id", tables={"lines": None}, views=views)
            return [row["id"] for row in found.to_pylist()]

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(ask, range(4))) == [[number, number + 1] for number in range(4)]
