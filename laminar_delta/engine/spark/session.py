"""Spark sessions of the engine's own, beside the user's.

A user's session is neither changed nor slow: what the engine needs is set in sessions it makes from it (`newSession` in classic
mode, a clone on the server in Connect mode). There are two kinds, because a MERGE or DELETE takes its fence from a session
setting: reads and appends share one session in which such a setting is never made; every other statement borrows a session that
is nobody else's meanwhile.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.conversion import SparkConversionMixin

from laminar_delta.engine.local.lock import Process
from laminar_delta.engine.spark import settings
from laminar_delta.engine.spark.faults import reading
from laminar_delta.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from laminar_delta.engine.request import Stamp

_LOG = logging.getLogger(__name__)

_BUILT = {
    "spark.app.name": "laminar-delta",
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # A chunk of state passes through the heap a few times over; 1 GB, the default, ends at 40 MB of it.
    "spark.driver.memory": "2g",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""The session made where there is none."""

_CHUNK_BYTES = 8 << 20
"""How much of a large table travels to the JVM in one piece."""

_building = threading.Lock()
_started_here: WeakSet[SparkSession] = WeakSet()
_shared: WeakKeyDictionary[SparkSession, OwnSessions] = WeakKeyDictionary()


def find_session(given: SparkSession | None, *, by_name: bool) -> tuple[SparkSession, bool]:
    """The session to work beside (the one given, else the running one, else a new one), and whether it was started here.

    Args:
        given: The user's session.
        by_name: Tables will be kept in a schema of Spark's catalogs.
    """
    if given is not None:
        return given, False
    with _building:
        try:
            found = SparkSession.active()
        except PySparkException:
            found = _build(by_name=by_name)
            _started_here.add(found)
        return found, found in _started_here


def _build(*, by_name: bool) -> SparkSession:
    from delta import configure_spark_with_delta_pip

    builder = SparkSession.builder
    if not by_name:
        # Spark makes this directory in any case, below the current one unless told otherwise.
        builder = builder.config("spark.sql.warehouse.dir", f"{tempfile.gettempdir()}/laminar-delta-warehouse")
    # Under spark-submit the master and the packages are the submitter's.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    for name, value in _BUILT.items():
        if not (submitted and name in ("spark.master", "spark.driver.memory")):
            builder = builder.config(name, value)
    # Executors run the Python this process runs; PySpark takes "python3" from the path otherwise.
    python = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = python or sys.executable
    try:
        return (builder if submitted else configure_spark_with_delta_pip(builder)).getOrCreate()
    finally:
        if python is None:
            del os.environ["PYSPARK_PYTHON"]


def is_connect(spark: SparkSession) -> bool:
    """Whether a session speaks to a server instead of holding the JVM."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def own_sessions(spark: SparkSession, storage_options: Mapping[str, str]) -> OwnSessions:
    """The engine's sessions beside `spark`. Engines share them in classic mode, where a session lives as long as the JVM."""
    if is_connect(spark) or storage_options:
        return OwnSessions(spark, storage_options)
    with _building:
        found = _shared.get(spark)
        if found is None:
            found = _shared[spark] = OwnSessions(spark, {})
        return found


class OwnSessions:
    """Sessions made from a user's session, with the engine's settings."""

    def __init__(self, base: SparkSession, storage_options: Mapping[str, str]) -> None:
        self.connect = is_connect(base)
        self._base = base
        self._storage_options = storage_options
        self._lock = threading.Lock()
        self._main: SparkSession | None = None
        self._blobs: SparkSession | None = None
        self._idle: dict[frozenset[str], list[SparkSession]] = defaultdict(list)
        self._made: list[SparkSession] = []
        self._jvm: Process | None = None

    @property
    def main(self) -> SparkSession:
        """For reads and appends."""
        with self._lock:
            if self._main is None:
                self._main = self._make({})
            return self._main

    @property
    def blobs(self) -> SparkSession:
        """For streamed scans of binary columns: few rows at a time."""
        with self._lock:
            if self._blobs is None:
                self._blobs = self._make(settings.BLOBS)
            return self._blobs

    @contextmanager
    def borrowed(self, more: Mapping[str, str] = settings.UPKEEP) -> Iterator[SparkSession]:
        """A session that is nobody else's meanwhile, with these settings on top."""
        idle = self._idle[frozenset(more)]
        try:
            session = idle.pop()
        except IndexError:
            session = self._make(more)
        try:
            yield session
        except Exception:
            idle.append(session)
            raise
        # Not after an interrupt: the JVM may still be at a statement in it.
        idle.append(session)

    def jvm(self) -> Process:
        """The JVM that commits on this process's behalf; only for a JVM on this machine."""
        with self._lock:
            found = self._jvm
        if found is None:
            with reading("the JVM"):
                rows = self.main.sql("SELECT reflect('java.lang.ProcessHandle', 'current')").collect()
            pid = int(rows[0][0])
            if str(self._base.conf.get("spark.master", "")).startswith("local-cluster"):
                # The answer came from an executor, a child of the driver's JVM.
                pid = _topmost_java(pid)
            found = self._jvm = Process.of(pid)
        return found

    @property
    def on_this_machine(self) -> bool:
        """Whether the JVM and its executors see this machine's disk."""
        return not self.connect and str(self._base.conf.get("spark.master", "")).startswith("local")

    def forgets_names(self) -> bool:
        """Whether schemas and tables of the current catalog last no longer than the JVM."""
        with reading("the catalog"):
            in_memory = self._base.conf.get("spark.sql.catalogImplementation") == "in-memory"
            return in_memory and self.current_catalog() == "spark_catalog"

    def current_catalog(self) -> str:
        """The catalog in which the user's session resolves a schema name."""
        with reading("the catalog"):
            return str(self._base.catalog.currentCatalog())

    def close(self) -> None:
        """Gives Connect sessions back to the server. Classic ones are shared and end with the JVM."""
        if not self.connect:
            return
        with self._lock:
            made, self._made = self._made, []
        for session in made:
            client: Any = session.client
            try:
                client.release_session()
                client.close()
            except Exception as error:  # noqa: BLE001  # the server drops the session by itself after a while
                _LOG.debug("a Spark Connect session could not be released: %s", error)

    def _make(self, more: Mapping[str, str]) -> SparkSession:
        with reading("the session"):
            session: SparkSession = self._base.cloneSession() if self.connect else self._base.newSession()  # type: ignore[attr-defined]  # cloneSession is Connect's
            self._inherit(session)
            for name, value in settings.MEANING.items():
                _require(session, name, value)
            for name, value in {**settings.SPEED, **more}.items():
                _wish(session, name, value)
            for name in settings.STAMP:
                _wish(session, name, None)
        self._made.append(session)
        return session

    def _inherit(self, session: SparkSession) -> None:
        if not self.connect:  # a clone has them already
            own = session.conf.getAll
            for name, value in self._base.conf.getAll.items():
                if name.startswith(settings.INHERITED) and own.get(name) != value:
                    session.conf.set(name, value)
        for name, value in self._storage_options.items():
            session.conf.set(name.removeprefix("spark.hadoop."), value)


@contextmanager
def stamped(session: SparkSession, made: Stamp) -> Iterator[None]:
    """Within: the one statement run in a borrowed session carries this fence and metadata."""
    for name in settings.STAMP:
        session.conf.unset(name)
    session.conf.set(settings.USER_METADATA, made.user_metadata)
    for fence in made.fences:
        session.conf.set(settings.FENCE_APP, fence.application_id)
        session.conf.set(settings.FENCE_VERSION, str(fence.version))
    try:
        yield
    finally:
        for name in settings.STAMP:
            session.conf.unset(name)


def frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    """An Arrow table as a DataFrame of this session."""
    # In one chunk: PySpark stops at the first empty chunk of a table and loses the rows behind it.
    whole = rows.combine_chunks()
    if is_connect(session):
        # Without a row it does not take the columns from Arrow.
        return session.createDataFrame(whole) if rows.num_rows else session.createDataFrame([], _columns(rows))
    # `SparkSession.createDataFrame` does the same after making `session` the active one of the whole process.
    found: DataFrame = SparkConversionMixin.createDataFrame(session, _in_pieces(whole))
    return found


def _columns(rows: pa.Table) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    found: StructType = from_arrow_schema(rows.schema)
    return found


def _in_pieces(rows: pa.Table) -> pa.Table:
    """The same rows in pieces of a bounded size: PySpark makes one partition of each."""
    if rows.nbytes <= _CHUNK_BYTES:
        return rows
    import pyarrow as pa

    length = max(1, rows.num_rows * _CHUNK_BYTES // rows.nbytes)
    return pa.Table.from_batches(rows.to_batches(length), schema=rows.schema)


def _require(session: SparkSession, name: str, value: str) -> None:
    # Most are as wanted, and Connect warns of setting some. Delta's are unknown until Delta has been used.
    found = session.conf.get(name) if name.startswith("spark.sql.") else None
    if found == value:
        return
    try:
        session.conf.set(name, value)
    except PySparkException as error:
        raise StorageError(f"this Spark does not let the engine set {name}", expected=value, found=found) from error


def _wish(session: SparkSession, name: str, value: str | None) -> None:
    try:
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
    except PySparkException as error:
        _LOG.debug("this Spark does not let the engine set %s to %s: %s", name, value, error)


def _topmost_java(pid: int) -> int:
    """The last of the parents of a JVM that is a JVM itself."""
    while True:
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if Path(f"/proc/{parent}/comm").read_text().strip() != "java":
                return pid
        except (OSError, ValueError, IndexError):
            return pid
        pid = parent
