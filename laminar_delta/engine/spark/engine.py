"""Delta through Spark SQL.

Every statement runs in a session of the engine's own (`session.py`), is stamped, and is looked for in the log before it is
answered (`commits.py`), because Spark says nothing when a fence kept it out.

Only SQL and DataFrames are used, so that the same code runs on Connect; `writeTo` and not `save`, which would make a new table
where one was removed. On a local disk writes take turns under the catalog's lock, because Spark's log store there can overwrite
a concurrent commit, and are flushed before they are answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.pandas.types import to_arrow_schema

from laminar_delta.engine.arrow import canonical, cast_table, check_same_table, project
from laminar_delta.engine.base import Commit, Engine, HistoryEntry, Metadata
from laminar_delta.engine.local import durability
from laminar_delta.engine.local.lock import DEFAULT_TIMEOUT_S
from laminar_delta.engine.local.log import check_all_entries, newest_entry
from laminar_delta.engine.predicate import Dialect, Literal, Predicate, quote_name
from laminar_delta.engine.request import Merge, Stamp, TableSpec, parse_user_metadata, stamp
from laminar_delta.engine.settle import Settled
from laminar_delta.engine.spark import files, queries, settings
from laminar_delta.engine.spark.commits import Commits
from laminar_delta.engine.spark.ddl import SQL, create_table
from laminar_delta.engine.spark.faults import being_created, committing, reading
from laminar_delta.engine.spark.merge import SOURCE_VIEW, acts_on_every_row, effect_query, merge_statement
from laminar_delta.engine.spark.places import Place, Places
from laminar_delta.engine.spark.session import OwnSessions, find_session, frame, own_sessions, stamped
from laminar_delta.engine.spark.stream import has_binary, stream
from laminar_delta.engine.sql import placed, spelled
from laminar_delta.errors import (
    ErrorCode,
    FormatError,
    InvalidInputError,
    LaminarDeltaError,
    NotFoundError,
    StorageError,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_FILE_BYTES = 64 << 20
"""About how much goes into one data file of an append; small appends make one."""
_CREATE_TRIES = 20
_CREATE_PAUSE_S = 0.5
"""How often, and how far apart, a table is looked for that someone else is just creating: Spark takes a second for it."""


class SparkEngine(Engine):
    """Delta tables below a directory or an object-store URI, or in a schema of Spark's catalogs."""

    name: ClassVar[str] = "spark"
    persistent: ClassVar[bool] = True
    many_fences: ClassVar[bool] = False
    beyond = frozenset({"append_frame", "frame"})
    dialect: ClassVar[Dialect] = SQL

    def __init__(
        self,
        location: str | Path,
        *,
        spark: SparkSession | None = None,
        lock_timeout_s: float = DEFAULT_TIMEOUT_S,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Opens the location; nothing is read or created yet.

        Args:
            location: A directory, a URI such as `s3a://bucket/checkpoints`, or the name of a schema such as
                `main.checkpoints` or `checkpoints`. What holds a slash or begins with `.` or `~` is a path.
            spark: The session to work beside, classic or Connect. Its settings are left alone. By default the running
                one, or a local one started at the first use.
            lock_timeout_s: How long a local write waits for its turn.
            storage_options: Hadoop settings of the location's file system, such as `fs.s3a.endpoint`, for the engine's
                own sessions. Never logged or stored.

        Raises:
            InvalidInputError: The session cannot reach the location: a directory of this machine over Connect.
        """
        self._place = Place(location)
        self.location = self._place.location
        self.by_name = bool(self._place.schema)
        self._spark = spark
        self._storage_options = dict(storage_options or {})
        self._lock_timeout_s = lock_timeout_s
        self._opening = threading.Lock()
        self._opened: tuple[OwnSessions, Places, Commits] | None = None
        self._schemas: dict[str, pa.Schema] = {}
        if spark is not None:
            self._open()

    # -- tables -------------------------------------------------------------------------------------------------------

    def create(self, spec: TableSpec) -> bool:
        """See `Engine.create`."""
        made = stamp((), {"operation": "create"})
        with self._places.preparing():
            created = self._create(spec, made)
        partitions = self._places.detail(spec.name)["partitionColumns"]
        check_same_table(spec.name, canonical(spec.schema), self.schema(spec.name), spec.partition_by, partitions)
        return created

    def _create(self, spec: TableSpec, made: Stamp) -> bool:
        tries = 0
        while not self.exists(spec.name):
            tries += 1
            try:
                with reading(spec.name), self._own.borrowed() as session, stamped(session, made):
                    session.sql(create_table(self._places.reference(spec.name), spec)).collect()
            except LaminarDeltaError as error:
                if tries == _CREATE_TRIES or error.__cause__ is None or not being_created(error.__cause__):
                    raise
                time.sleep(_CREATE_PAUSE_S)
                continue
            # `IF NOT EXISTS` does not tell who created it; the log does.
            created = self._commits.find(spec.name, made, before=-1) == 0
            directory = self._places.directory(spec.name)
            if created and directory is not None:
                durability.fsync_commit(directory, 0)
                durability.fsync_path(directory.parent)
            return created
        return False

    def exists(self, table: str) -> bool:
        """See `Engine.exists`."""
        if self._place.root is not None:
            with reading(table):
                return newest_entry(self._place.root / table) is not None
        try:
            return bool(self._places.detail(table)["format"] == "delta")
        except NotFoundError:
            return False

    def schema(self, table: str) -> pa.Schema:
        """See `Engine.schema`. Remembered: a table's columns never change within a format version."""
        found = self._schemas.get(table)
        if found is None:
            self._newest(table)
            with self._reading(table):
                columns = self._own.main.sql(f"SELECT * FROM {self._places.reference(table)}").schema
            found = self._schemas[table] = canonical(to_arrow_schema(columns, timezone="UTC"))
        return found

    def properties(self, table: str) -> Mapping[str, str]:
        """See `Engine.properties`."""
        self._newest(table)
        with self._reading(table):
            return dict(self._places.detail(table)["properties"])

    def version(self, table: str) -> int:
        """See `Engine.version`."""
        newest = self._newest(table)
        return self.history(table, limit=1)[0].version if newest is None else newest

    # -- writing ------------------------------------------------------------------------------------------------------

    def _append(self, table: str, rows: pa.Table, made: Stamp) -> int:
        with reading(table):
            prepared = frame(self._own.main, rows).coalesce(1 + rows.nbytes // _FILE_BYTES)
        return self._append_frame(table, prepared, made)

    def append_frame(
        self,
        table: str,
        rows: DataFrame,
        *,
        metadata: Metadata | None = None,
        key: Mapping[str, Literal] | None = None,
    ) -> Commit:
        """Appends a frame of the user's own session as one commit: what executors make does not pass through the driver."""
        made = stamp((), metadata)
        settled = self._settlement(table, made, key).run(
            lambda: Settled(self._append_frame(table, rows, made)), retry=True
        )
        return Commit(version=settled.version, commit_id=made.commit_id, replayed=settled.replayed)

    def frame(
        self, session: SparkSession, table: str, columns: Sequence[str], where: Predicate, version: int | None = None
    ) -> DataFrame:
        """Rows as a frame of the user's own session."""
        names = ", ".join(quote_name(name, SQL) for name in columns)
        at = "" if version is None else f" VERSION AS OF {version}"
        with self._reading(table, version):
            return session.sql(f"SELECT {names} FROM {self._places.reference(table)}{at} WHERE {where.sql(SQL)}")

    def _append_frame(self, table: str, prepared: DataFrame, made: Stamp) -> int:
        with self._turn(table) as before:
            with committing(table, local=before is not None):
                writer = prepared.writeTo(self._places.reference(table)).option("userMetadata", made.user_metadata)
                for fence in made.fences:
                    writer = writer.option("txnAppId", fence.application_id).option("txnVersion", str(fence.version))
                writer.append()
            version = self._commits.made(table, made, before)
            if version is None:
                raise self._commits.skipped(table, made, before)
            return version

    def _commit_fence(self, table: str, made: Stamp) -> int:
        return self._append(table, self.schema(table).empty_table(), made)

    def _merge(self, table: str, rows: pa.Table, merge: Merge, made: Stamp) -> Settled:
        reference = self._places.reference(table)
        statement = merge_statement(reference, merge, rows.column_names)
        with self._turn(table) as before, self._own.borrowed() as session:
            with reading(table):
                frame(session, rows).createOrReplaceTempView(SOURCE_VIEW)
            try:
                if statement is None or (made.fences and self._is_idle(session, table, merge, rows)):
                    # Spark would commit the fence alone. Whether it stands is still to be asked.
                    return self._run(session, table, f"DELETE FROM {reference} WHERE FALSE", made, before)
                return self._run(session, table, statement, made, before)
            finally:
                # What became of the merge is told above; a view left behind is replaced by the next one.
                with suppress(LaminarDeltaError), reading(table):
                    session.catalog.dropTempView(SOURCE_VIEW)

    def _is_idle(self, session: SparkSession, table: str, merge: Merge, rows: pa.Table) -> bool:
        """Whether a merge would change nothing."""
        if rows.num_rows > 0 and acts_on_every_row(merge):
            return False
        with reading(table):
            return not session.sql(effect_query(self._places.reference(table), merge)).collect()

    def _delete(self, table: str, where: Predicate, made: Stamp) -> Settled:
        statement = f"DELETE FROM {self._places.reference(table)} WHERE {where.sql(SQL)}"
        with self._turn(table) as before, self._own.borrowed() as session:
            return self._run(session, table, statement, made, before)

    def _run(self, session: SparkSession, table: str, statement: str, made: Stamp, before: int | None) -> Settled:
        """One MERGE or DELETE under its fence, and what it came to."""
        with committing(table, local=before is not None), stamped(session, made):
            told = session.sql(statement).collect()
        if not told:
            raise self._commits.skipped(table, made, before)
        counts = told[0].asDict()
        affected = counts["num_affected_rows"]
        # No row touched is no version, unless a fenced merge came to be without effect after it was looked at.
        idle = affected == 0 and not ("num_inserted_rows" in counts and made.fences)
        return Settled(
            None if idle else self._commits.made(table, made, before),
            inserted=counts.get("num_inserted_rows", 0),
            updated=counts.get("num_updated_rows", 0),
            deleted=counts.get("num_deleted_rows", affected),
        )

    # -- reading ------------------------------------------------------------------------------------------------------

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
        self._newest(table)
        schema = project(self.schema(table), columns, table)
        names = ", ".join(quote_name(name, SQL) for name in schema.names)
        query = f"SELECT {names} FROM {self._places.reference(table)}"
        if version is not None:
            query += f" VERSION AS OF {version}"
        if where is not None:
            query += f" WHERE {where.sql(SQL)}"
        session = self._own.blobs if streamed and has_binary(schema) else self._own.main
        with self._reading(table, version):
            found = session.sql(query)
            if not streamed:
                return cast_table(found.toArrow(), schema).to_reader()
        return stream(found, schema, lambda: self._reading(table, version))

    def _query(
        self, sql: str, tables: Mapping[str, int | None], views: Mapping[str, str], known: Sequence[str]
    ) -> pa.Table:
        sources = {}
        for name, version in tables.items():
            self._newest(name)
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
        self._newest(table)
        query = f"DESCRIBE HISTORY {self._places.reference(table)}" + (f" LIMIT {limit}" if limit is not None else "")
        columns = ("version", "timestamp", "operation", "userMetadata", "engineInfo")
        with self._reading(table):
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

    # -- maintenance --------------------------------------------------------------------------------------------------

    def optimize(self, table: str, *, order_by: Sequence[str] = (), metadata: Metadata | None = None) -> int | None:
        """See `Engine.optimize`."""
        statement = f"OPTIMIZE {self._places.reference(table)}"
        if order_by:
            statement += f" ZORDER BY ({', '.join(quote_name(name, SQL) for name in order_by)})"
        return self._maintain(table, statement, stamp((), metadata))

    def restore(self, table: str, version: int, *, metadata: Metadata | None = None) -> int:
        """See `Engine.restore`."""
        statement = f"RESTORE TABLE {self._places.reference(table)} TO VERSION AS OF {version}"
        made = self._maintain(table, statement, stamp((), metadata), version)
        # Spark makes no version when the one asked for is the newest.
        return self.version(table) if made is None else made

    def vacuum(self, table: str, *, older_than_hours: int | None = None, dry_run: bool = True) -> list[str]:
        """See `Engine.vacuum`."""
        statement = f"VACUUM {self._places.reference(table)}"
        if older_than_hours is not None:
            statement += f" RETAIN {older_than_hours} HOURS"
        home = f"{self._places.detail(table)['location']}/"
        with self._own.borrowed() as session, reading(table):
            named = [row[0].removeprefix(home) for row in session.sql(f"{statement} DRY RUN").collect()]
        if not dry_run:
            self._maintain(table, statement, stamp((), {"operation": "vacuum"}))
        return named

    def log_checkpoint(self, table: str) -> None:
        """See `Engine.log_checkpoint`."""
        directory = self._local_directory(table, "writes log checkpoints")
        with self._turn(table):
            files.write_log_checkpoint(table, directory)

    def clean_log(self, table: str) -> None:
        """See `Engine.clean_log`."""
        directory = self._local_directory(table, "cleans the log")
        with self._turn(table):
            files.clean_log(table, directory)

    def close(self) -> None:
        """See `Engine.close`. A session of the user's stays, and so does one that was started here: others may use it."""
        if self._opened is not None:
            self._opened[0].close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _open(self) -> tuple[OwnSessions, Places, Commits]:
        with self._opening:
            if self._opened is None:
                spark, started_here = find_session(self._spark, by_name=bool(self._place.schema))
                own = own_sessions(spark, self._storage_options)
                self._place.check_reach(own, started_here=started_here)
                places = Places(self._place, own, self._lock_timeout_s)
                commits = Commits(places, lambda table, limit: self.history(table, limit=limit))
                self._opened = own, places, commits
            return self._opened

    @property
    def _own(self) -> OwnSessions:
        return self._open()[0]

    @property
    def _places(self) -> Places:
        return self._open()[1]

    @property
    def _commits(self) -> Commits:
        return self._open()[2]

    def _newest(self, table: str) -> int | None:
        """The newest version of a table on this machine's disk, its log entry found whole; None for tables elsewhere."""
        directory = self._places.directory(table)
        if directory is None:
            return None
        with reading(table):
            return files.check_newest(table, directory)

    @contextmanager
    def _turn(self, table: str) -> Iterator[int | None]:
        """This writer's turn; what `_newest` says at its beginning."""
        self._newest(table)
        with self._places.turn(table):
            yield self._newest(table)

    @contextmanager
    def _reading(self, table: str, version: int | None = None) -> Iterator[None]:
        try:
            with reading(table, version):
                yield
        except (StorageError, FormatError):
            # Spark does not always say which entry of the log it could not read.
            directory = self._places.directory(table)
            if directory is not None:
                check_all_entries(directory)
            raise

    def _maintain(self, table: str, statement: str, made: Stamp, version: int | None = None) -> int | None:
        """One statement of maintenance, and the version it made. It changes no rows, so it can be repeated after any error."""
        with self._turn(table) as before:
            with self._own.borrowed() as session, reading(table, version), stamped(session, made):
                session.sql(statement).collect()
            return self._commits.made(table, made, before)

    def _local_directory(self, table: str, what: str) -> Path:
        directory = self._places.directory(table)
        if directory is None:
            raise InvalidInputError(
                f"table {table!r} is not on this machine's disk: there Spark {what} by itself",
                code=ErrorCode.UNSUPPORTED,
                expected="a table on a local disk",
                found=self.location,
                next_step="Set delta.checkpointInterval and delta.enableExpiredLogCleanup on the table instead.",
            )
        return directory
