"""Which query a micro-batch belongs to, and what its checkpoint directory says of the batch.

`foreachBatch` hands over a frame and a number. The query's id is a local property of the thread Spark runs the batch on; its
directory and the id of the run are what Spark's own list of running queries has under that id. Where there is no JVM to ask
(Spark Connect), the directory has to be named, and the query's id is read from the file `metadata` in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError
from pyarrow.fs import LocalFileSystem
from pyspark.errors import PySparkException

from laminar_delta.errors import ConflictError, InvalidInputError, NotFoundError, StorageError
from laminar_delta.interop.place import Place
from laminar_delta.interop.sparkdir.logs import PlannedBatch, parse_offsets, parse_query_id
from laminar_delta.interop.sparkdir.source import RESTORED
from laminar_delta.interop.sparkdir.sourcelogs import COMPACT, log_position, own_digest, own_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark keeps the id of the query a thread works for."""

OWN = "own"
"""Under names below this one a batch's document has the digests of what it brought to compacted logs."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A query's checkpoint directory: read from the disk where it is on this machine's, else by Spark, which has the access."""

    location: str
    spark: SparkSession

    def read(self, name: str) -> bytes:
        """A file below it. Raises `NotFoundError`."""
        if self.location.startswith(("file:", "/")):
            # Spark writes the path as it is, without percent-encoding. However long a file is: the query's own log is not a
            # stranger's, and it cannot go on without.
            local = Place(LocalFileSystem(), self.location.removeprefix("file:").removeprefix("//"))
            return local.read(name, limit=sys.maxsize)
        try:
            rows = self.spark.read.format("binaryFile").load(f"{self.location}/{name}").select("content").collect()
        except PySparkException as error:
            if "PATH_NOT_FOUND" in (error.getCondition() or ""):
                raise NotFoundError(f"{name} is not there", expected=name) from error
            raise StorageError(f"{self.location}/{name} cannot be read: {error}") from error
        if not rows:
            raise NotFoundError(f"{name} is not there", expected=name)
        return bytes(rows[0]["content"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLogs:
    """What Spark wrote down of a batch before running it."""

    entry: PlannedBatch
    texts: dict[str, str] = field(default_factory=dict)
    """The log entries as they are, by the names under which imports keep them too."""
    compacted: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By source and number, entries of a source's own log that hold all before them."""

    @property
    def told(self) -> dict[str, str]:
        """What tells this plan of the batch from another: the texts, and of what was put together a digest of its own part."""
        own = {
            f"{OWN}/{index}/{number}": own_digest(entry, number) for (index, number), entry in self.compacted.items()
        }
        return {**self.texts, **own}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningQuery:
    """The query that is running a batch."""

    query_id: str
    run_id: str | None
    """Of this start of it; None where it cannot be known."""
    directory: Directory

    @classmethod
    def of(cls, frame: DataFrame, location: str | None = None) -> RunningQuery:
        """The query whose batch a frame is.

        Args:
            frame: As `foreachBatch` hands it over, on the thread it does.
            location: The query's checkpoint directory, if the user named it.

        Raises:
            InvalidInputError: The directory is not known, or the frame is no batch of a running query.
            ConflictError: The directory is another query's.
        """
        spark = frame.sparkSession
        found = _ask_jvm(spark, is_needed=location is None)
        if found is None:
            if location is None:
                raise InvalidInputError(
                    "this session does not tell where the query has its checkpoint directory",
                    expected="checkpoint_location",
                    found=None,
                    next_step="Give `foreach_batch` the checkpoint_location that the query is started with.",
                )
            directory = Directory(location.rstrip("/"), spark)
            return cls(query_id=parse_query_id(directory.read("metadata")), run_id=None, directory=directory)
        query_id, run_id, resolved = found
        # As Spark resolved it: what was named can be another place for this process, where the default file system is no disk.
        directory = Directory(resolved.rstrip("/"), spark)
        named = None if location is None else _qualified(spark, location).rstrip("/")
        if named is not None and named != directory.location:
            stored = parse_query_id(Directory(named, spark).read("metadata"))
            if stored != query_id:
                raise ConflictError(
                    f"{location} is the checkpoint directory of query {stored}, and this batch is of query {query_id}",
                    expected=query_id,
                    found=stored,
                    next_step="Give `foreach_batch` the checkpoint_location that this query is started with, or none.",
                )
        return cls(query_id=query_id, run_id=run_id, directory=directory)

    def planned(self, batch_id: int, *, with_all_before: bool = False) -> PlannedLogs:
        """What the offset log says of a batch: it is written before the batch is run.

        Args:
            batch_id: Which.
            with_all_before: Also what its sources noted of the batches before: nobody else has kept it.
        """
        name = f"offsets/{batch_id}"
        data = self.directory.read(name)
        entry = parse_offsets(name, data)
        found = PlannedLogs(entry=entry, texts={"offsets": data.decode()})
        last = self.entry(batch_id - 1)
        before = () if last is None else last.offsets
        for index, offset in enumerate(entry.offsets):
            for number in own_numbers(batch_id, offset, before[index] if index < len(before) else None):
                self._add_source_log(found, index, number)
            if not with_all_before or batch_id == 0:
                continue
            at = log_position(offset)
            if at is None:  # a source of another kind notes at most where it began
                self._add_source_log(found, index, 0)
            while at is not None and at > 0 and (index, at) not in found.compacted:
                at -= 1
                self._add_source_log(found, index, at)
        return found

    def entry(self, batch_id: int) -> PlannedBatch | None:
        """A batch's entry of the offset log; None where there is none."""
        name = f"offsets/{batch_id}"
        try:
            return parse_offsets(name, self.directory.read(name))
        except NotFoundError:
            return None

    def _add_source_log(self, found: PlannedLogs, index: int, number: int) -> None:
        """What a source noted for itself; most note nothing."""
        name = f"sources/{index}/{number}"
        try:
            found.texts[name] = self.directory.read(name).decode("utf-8", "replace")
            return
        except NotFoundError:
            pass
        with suppress(NotFoundError):
            found.compacted[index, number] = self.directory.read(f"{name}{COMPACT}")

    def restored_from(self) -> Mapping[str, object]:
        """What `restore_spark_checkpoint` says of the directory; nothing of one that it did not make."""
        try:
            told = json.loads(self.directory.read(RESTORED))
        except (NotFoundError, ValueError):
            return {}
        return told if isinstance(told, dict) and told.get("query_id") == self.query_id else {}

    def is_active(self) -> bool:
        """Whether it is running now, as far as that can be known."""
        try:
            return _execution(self.directory.spark, self.query_id) is not None
        except (PySparkException, Py4JError, AttributeError):
            return False


def _ask_jvm(spark: SparkSession, *, is_needed: bool) -> tuple[str, str, str] | None:
    """Id, run and directory of the query this thread works for; None where the JVM cannot tell.

    Raises:
        InvalidInputError: It is needed, and this thread works for no query.
    """
    try:
        query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
    except (PySparkException, AttributeError):
        return None
    if query_id is None:
        if not is_needed:  # without pinned threads this is another thread of the JVM's; the directory tells
            return None
        raise InvalidInputError(
            "this is no batch of a running query",
            expected="a call by Spark's foreachBatch",
            found=None,
            next_step="Give it to `writeStream.foreachBatch`, and let Spark call it. Without pinned threads "
            "(PYSPARK_PIN_THREAD=false), give `foreach_batch` the checkpoint_location.",
        )
    execution = _execution(spark, query_id)
    if execution is None:
        return None
    return query_id, str(execution.runId().toString()), str(execution.resolvedCheckpointRoot())


def _qualified(spark: SparkSession, location: str) -> str:
    """A path as Spark has it: with the scheme of the file system it is on. Raises `InvalidInputError` where there is none."""
    jvm = spark._jvm
    assert jvm is not None
    try:
        path = jvm.org.apache.hadoop.fs.Path(location)
        system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        return str(system.makeQualified(path).toString())
    except Py4JJavaError as error:
        raise InvalidInputError(
            f"{location} is no place that Spark can reach: {error.java_exception}",
            expected="the checkpoint_location that the query is started with",
            found=location,
        ) from error


def _execution(spark: SparkSession, query_id: str):  # type: ignore[no-untyped-def]  # an object of the JVM
    jvm, shared = spark._jvm, spark._jsparkSession.sharedState()
    assert jvm is not None
    return shared.activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))
