"""Reading through Spark: rows, frames, history, and queries of users."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from laminar_delta.engine.answer import HistoryEntry, PartitionSize
from laminar_delta.engine.arrow import cast_table, project
from laminar_delta.engine.deltars import faults, rot, scanning
from laminar_delta.engine.deltars.sizes import summed
from laminar_delta.engine.local.log import check_entries
from laminar_delta.engine.predicate import Predicate, quote_name
from laminar_delta.engine.request import parse_user_metadata
from laminar_delta.engine.spark import files, queries, settings
from laminar_delta.engine.spark.ddl import SQL
from laminar_delta.engine.spark.faults import reading
from laminar_delta.engine.spark.stream import has_binary, stream
from laminar_delta.engine.spark.tables import SparkTables
from laminar_delta.engine.sql import placed, spelled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class SparkReader(SparkTables):
    """What can be asked of the tables."""

    def scan(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        version: int | None = None,
        streamed: bool = False,
    ) -> pa.RecordBatchReader:
        """See `Engine.scan`."""
        directory = self._places.directory(table)
        if directory is not None and version is not None:
            # Not by Spark: it opens the newest version first, so that an entry which broke later would keep every earlier
            # version from being read. And it refuses what is older than removed files are kept, though all of it is there.
            handle = self._open_to_read(table, directory, version)
            return scanning.scan(handle, table, columns, where, lambda: self._reading_files(table, version, where))
        self._newest(table)
        schema = project(self.schema(table), columns, table)
        names = ", ".join(quote_name(name, SQL) for name in schema.names)
        query = f"SELECT {names} FROM {self._places.reference(table)}"
        if version is not None:
            query += f" VERSION AS OF {version}"
        if where is not None:
            query += f" WHERE {where.sql(SQL)}"
        session = self._own.blobs if streamed and has_binary(schema) else self._own.main
        with self._reading(table, version, where):
            found = session.sql(query)
            if not streamed:
                return cast_table(found.toArrow(), schema).to_reader()
        return stream(found, schema, lambda: self._reading(table, version, where))

    def _query(
        self, sql: str, tables: Mapping[str, int | None], views: Mapping[str, str], known: Sequence[str]
    ) -> pa.Table:
        sources = {}
        for name, version in tables.items():
            self._newest(name, version=version)
            sources[name] = self._places.reference(name) + ("" if version is None else f" VERSION AS OF {version}")
        with self._own.borrowed(settings.QUERIES) as session:
            for name, version in tables.items():
                with self._reading(name, version):
                    session.sql(f"SELECT * FROM {sources[name]}").createOrReplaceTempView(name)
            try:
                return queries.answer(session, sql, list(tables), views, known)
            finally:
                queries.forget(session, [*tables, *views])

    def create_views(self, views: Mapping[str, str], *, tables: Sequence[str]) -> None:
        """See `Engine.create_views`."""
        if not self.by_name:
            super().create_views(views, tables=tables)
        places = {name: self._places.reference(name) for name in (*views, *tables)}
        with self._own.borrowed(settings.QUERIES) as session:
            for name, body in views.items():
                text = placed(spelled(body, SQL), places)
                with reading(name):
                    session.sql(f"CREATE OR REPLACE VIEW {places[name]} AS {text}").collect()

    def history(self, table: str, *, limit: int | None = None) -> list[HistoryEntry]:
        """See `Engine.history`."""
        self._newest(table, back=sys.maxsize if limit is None else limit)
        query = f"DESCRIBE HISTORY {self._places.reference(table)}" + (f" LIMIT {limit}" if limit is not None else "")
        columns = ("version", "timestamp", "operation", "userMetadata", "engineInfo")
        with self._reading(table, history=True):
            entries = self._own.main.sql(query).select(*columns).toArrow().to_pylist()
        return [
            HistoryEntry(
                version=entry["version"],
                timestamp_ms=round(entry["timestamp"].timestamp() * 1000),
                operation=entry["operation"],
                metadata=parse_user_metadata(entry["userMetadata"]),
                engine_info=entry["engineInfo"],
            )
            for entry in entries
        ]

    def fences(self, table: str, application_ids: Sequence[str]) -> Mapping[str, int]:
        """See `Engine.fences`."""
        directory = self._places.directory(table)
        if directory is None:
            return {}
        handle = self._open_to_read(table, directory)
        with self._reading_files(table):
            found = files.fences_of(handle, application_ids)
        return {name: version for name, version in found.items() if version is not None}

    def _open_to_read(self, table: str, directory: Path, version: int | None = None) -> DeltaTable:
        """A table on this machine's disk, opened by delta-rs as the embedded engine does: it finds its way around damage."""

        def opening() -> DeltaTable:
            with self._reading_files(table, version):
                check_entries(directory, version=version)
                return DeltaTable(str(directory), version=version)

        return self._around.opened(directory, version, opening)

    @contextmanager
    def _reading_files(self, table: str, version: int | None = None, where: Predicate | None = None) -> Iterator[None]:
        """Like `_reading`, for what delta-rs does."""
        with self._reading(table, version, where), faults.reading(table, version):
            yield

    def damaged(
        self,
        table: str,
        *,
        version: int | None = None,
        where: Predicate | None = None,
        columns: Sequence[str] = (),
        intact: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> list[str]:
        """See `Engine.damaged`."""
        directory = self._places.directory(table)
        if directory is None:
            return []
        return rot.damaged(directory, self._looked, version=version, where=where, columns=columns, intact=intact)

    def sizes(self, table: str) -> list[PartitionSize]:
        """See `Engine.sizes`."""
        self._newest(table)
        directory = self._places.directory(table)
        if directory is not None:
            return files.sizes(table, directory)
        with self._reading(table):
            names = list(self._places.detail(table)["partitionColumns"])
            columns = [f"{quote_name(name, SQL)} AS p{number}" for number, name in enumerate(names)]
            # Distinct by the file: its metadata stands beside each of its rows.
            chosen = ", ".join([*columns, "_metadata.file_path AS path", "_metadata.file_size AS size"])
            rows = self._own.main.sql(f"SELECT DISTINCT {chosen} FROM {self._places.reference(table)}").collect()
        return summed(({name: row[f"p{number}"] for number, name in enumerate(names)}, row["size"]) for row in rows)

    def frame(
        self, session: SparkSession, table: str, columns: Sequence[str], where: Predicate, version: int | None = None
    ) -> DataFrame:
        """Rows as a frame of the user's own session."""
        names = ", ".join(quote_name(name, SQL) for name in columns)
        at = "" if version is None else f" VERSION AS OF {version}"
        self._newest(table, version=version)
        with self._reading(table, version):
            return session.sql(f"SELECT {names} FROM {self._places.reference(table)}{at} WHERE {where.sql(SQL)}")
