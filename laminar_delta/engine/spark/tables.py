"""Where the tables are and how they are reached: sessions of the engine's own, turns on a local disk, logs found whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from laminar_delta.engine.arrow import canonical, check_same_table
from laminar_delta.engine.base import Engine
from laminar_delta.engine.deltars import rot
from laminar_delta.engine.deltars.around import Around
from laminar_delta.engine.local import durability
from laminar_delta.engine.local.lock import DEFAULT_TIMEOUT_S
from laminar_delta.engine.local.log import newest_entry
from laminar_delta.engine.request import Stamp, TableSpec, stamp
from laminar_delta.engine.spark import files
from laminar_delta.engine.spark.commits import Commits
from laminar_delta.engine.spark.ddl import create_table
from laminar_delta.engine.spark.faults import being_created, reading
from laminar_delta.engine.spark.places import Place, Places
from laminar_delta.engine.spark.session import OwnSessions, find_session, own_sessions, stamped
from laminar_delta.errors import FormatError, LaminarDeltaError, NotFoundError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from laminar_delta.engine.predicate import Predicate

_CREATE_TRIES = 20
_CREATE_PAUSE_S = 0.5
"""How often, and how far apart, a table is looked for that someone else is just creating: Spark takes a second for it."""


class SparkTables(Engine):
    """The tables themselves: made, found, described."""

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
        self._looked = rot.Looked()
        self._around = Around()
        if spark is not None:
            self._open()

    @property
    def storage_options(self) -> dict[str, str]:
        """See `Engine.storage_options`."""
        return dict(self._storage_options)

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

    def flush(self, table: str, version: int) -> None:
        """See `Engine.flush`."""
        directory = self._open()[1].directory(table)
        if directory is not None:
            durability.acknowledge_found(table, directory, version)

    def close(self) -> None:
        """See `Engine.close`. A session of the user's stays, and so does one that was started here: others may use it."""
        if self._opened is not None:
            self._opened[0].close()

    # -- for the classes above ----------------------------------------------------------------------------------------------

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

    def _newest(self, table: str, *, version: int | None = None, back: int | None = None) -> int | None:
        """The newest version of a table on this machine's disk, its log entry found whole; None for tables elsewhere."""
        directory = self._places.directory(table)
        if directory is None:
            return None
        with reading(table):
            return files.check_newest(table, directory, version=version, back=back)

    @contextmanager
    def _turn(self, table: str) -> Iterator[int | None]:
        """This writer's turn; what `_newest` says at its beginning."""
        self._newest(table)
        with self._places.turn(table):
            yield self._newest(table)

    @contextmanager
    def _reading(
        self, table: str, version: int | None = None, where: Predicate | None = None, *, history: bool = False
    ) -> Iterator[None]:
        """Translates what goes wrong, and names the file: Spark does not always say which it could not read."""
        try:
            with reading(table, version):
                yield
        except (StorageError, FormatError) as error:
            directory = self._places.directory(table)
            if directory is None:
                raise
            found = rot.named(error, directory, self._looked, version=version, where=where, history=history)
            if found is error:
                raise
            raise found from error
