"""A Delta table as a sink: each batch is one commit, made once whoever tries how often.

The commit carries a transaction identifier: the line as the application, the batch number as its version. Delta skips a write
whose version is not above the one recorded, and of two that race one fails, so a batch that is run again cannot be written
again. Because it skips without a word, each write is looked up in the table's history afterwards: the commit says in its
metadata what it is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.functions import col, lit

from laminar_delta.catalog.healing import committed_row
from laminar_delta.catalog.sinks import SinkEpoch
from laminar_delta.engine.local.place import local_path
from laminar_delta.engine.predicate import Dialect, quote_name
from laminar_delta.errors import ConflictError, InvalidInputError, NotFoundError, SessionStateError, StorageError
from laminar_delta.streaming.batch import Written
from laminar_delta.streaming.lines import line_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.streaming.lines import Line

OURS = frozenset({"txnappid", "txnversion", "usermetadata"})
"""Options of a write that are not the user's here."""

MODES = ("append", "overwrite")
FIRST_LOOK, WIDER = 10, 20
"""How many commits of the history are looked at first, and how much further each time."""
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
CLOSED = 2**62
"""The version that closes a line: above every batch."""
_ABSENT = frozenset(
    {
        "DELTA_MISSING_DELTA_TABLE",
        "DELTA_PATH_DOES_NOT_EXIST",
        "DELTA_TABLE_NOT_FOUND",
        "DELTA_TABLE_ONLY_OPERATION",
        "PATH_NOT_FOUND",
        "TABLE_OR_VIEW_NOT_FOUND",
    }
)
"""What Spark says where there is no such table yet. A version or a file of the log that is missing is damage, not absence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """Where a batch is in the table."""

    version: int
    generation: int
    """Of the writer whose write it was."""
    sink: str | None
    """Which of its sinks; None where the commit does not say."""


class DeltaSink:
    """A Delta table that gets each batch once. It belongs to one pipeline, and of a pipeline's sinks one is for the table.

    Args:
        table: A path or URI (with a slash in it), or the name of a table. It is made by the first write if it is not there.
        name: What the catalog calls the sink; by default the table's own name.
        mode: `append`, or `overwrite` for queries that give everything each time.
        partition_by: Columns, for a table that is made.
        options: Further options of the write, such as `mergeSchema`.
    """

    def __init__(
        self,
        table: str | Path,
        *,
        name: str | None = None,
        mode: str = "append",
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        if mode not in MODES:
            raise InvalidInputError(f"a Delta sink has no mode {mode!r}", expected=MODES, found=mode)
        taken = sorted(option for option in options or {} if option.lower() in OURS)
        if taken:
            raise InvalidInputError(
                f"option {taken[0]!r} is what makes the sink exactly-once",
                expected="other options",
                found=taken,
                next_step="Leave it out: the sink sets it for each batch.",
            )
        self.table = str(table)
        self.by_path = isinstance(table, Path) or "/" in self.table
        self.name = name or (self.table.rstrip("/").rpartition("/")[2] if self.by_path else _parts(self.table)[-1])
        self._mode = mode
        self._partition_by = list(partition_by)
        self._options = dict(options or {})
        self._spark: SparkSession | None = None
        self._pipeline: str | None = None
        self._line: Line | None = None
        self._batches: Mapping[SinkEpoch, tuple[Line, int]] = {}
        self._given: DataFrame | None = None
        self._held: dict[SinkEpoch, DataFrame] = {}
        self._outcomes: dict[SinkEpoch, Written] = {}

    def follow(
        self, spark: SparkSession, pipeline: str, line: Line | None, batches: Mapping[SinkEpoch, tuple[Line, int]]
    ) -> None:
        """See `LineSink`."""
        if self._pipeline not in (None, pipeline):
            raise SessionStateError(
                f"sink {self.name!r} is that of pipeline {self._pipeline!r}, and was given to {pipeline!r} too",
                expected=self._pipeline,
                found=pipeline,
                next_step="Give each pipeline a `DeltaSink` of its own; they may be for one table.",
            )
        self._pipeline = pipeline
        self._spark, self._line, self._batches = spark, line, batches

    def write(self, frame: DataFrame) -> None:
        """See `FrameSink`. The frame is run when the epoch is committed."""
        self._given = frame

    def pre_commit(self, epoch: SinkEpoch) -> None:
        """See `ExactlyOnceSink`: the batch itself is what is durable, Spark gives it again."""
        given, self._given = self._given, None
        self._held = {} if given is None else {epoch: given}

    def commit(self, epoch: SinkEpoch) -> None:
        """See `ExactlyOnceSink`.

        Raises:
            ConflictError: Delta skipped the write although the table does not have the batch.
        """
        frame = self._held.get(epoch)
        if frame is None:  # the function gave it nothing
            self._outcomes = {epoch: Written.NOTHING}
            return
        line, batch_id = self._batch(epoch)
        try:
            self._save(frame, line, batch_id, {"epoch": epoch.number, "generation": epoch.generation})
        except PySparkException as error:
            # Another process may have written the same batch at the same time: then it is there.
            if self._find(line, batch_id)[0] is None:
                raise StorageError(f"batch {batch_id} could not be written to {self.table}: {_first(error)}") from error
        found, is_whole = self._find(line, batch_id)
        if found is None and is_whole:
            raise ConflictError(
                f"Delta skipped the write of batch {batch_id} to {self.table}, and its history does not have the batch",
                expected=f"a commit of {line.application_id} with batch {batch_id}",
                found=None,
                next_step="See what else writes to the table under that transaction identifier.",
            )
        is_own = found is not None and found.generation == epoch.generation
        self._outcomes = {epoch: Written.WRITTEN if is_own else Written.FOUND}

    def abort(self, epoch: SinkEpoch) -> None:
        """See `ExactlyOnceSink`. A late commit of the batch by another process is the only one there will be, or is skipped."""
        self._given = None
        self._held.pop(epoch, None)

    def landed(self, epoch: SinkEpoch) -> bool | None:
        """See `ExactlyOnceSink`: by the table's history; None where that does not reach back far enough."""
        line, batch_id = self._batch(epoch)
        found, is_whole = self._find(line, batch_id)
        return True if found is not None else (False if is_whole else None)

    def close_line(self, line: Line) -> None:
        """See `LineSink`: an empty commit with a version above all batches, which Delta then skips."""
        try:
            nothing = self._read().limit(0)
        except PySparkException as error:
            if _is_absent(error):
                return
            raise
        self._save(nothing, line, CLOSED, {"closed": True}, mode="append")

    def outcome(self, epoch: SinkEpoch) -> Written:
        """See `LineSink`."""
        return self._outcomes[epoch]

    def version_of(self, catalog: Catalog, pipeline: str, checkpoint_id: int, spark: SparkSession) -> int:
        """The version of the table that a checkpoint's batch made: what to restore it to for a rewind.

        Raises:
            NotFoundError: The checkpoint is of no batch, or its commit is not in the table's history any more.
        """
        reading = catalog.reading
        made_for = line_of(reading, committed_row(reading, pipeline, checkpoint_id))
        self._spark = spark
        found = None if made_for is None else self._find(*made_for)[0]
        if found is None:
            raise NotFoundError(
                f"the history of {self.table} does not have the batch of checkpoint {checkpoint_id} of {pipeline!r}",
                expected=checkpoint_id,
                next_step="Choose a checkpoint whose commit the table's log still has.",
            )
        return found.version

    def _batch(self, epoch: SinkEpoch) -> tuple[Line, int]:
        if epoch in self._batches:
            return self._batches[epoch]
        if self._line is None:
            raise SessionStateError(f"sink {self.name!r} does not know what epoch {epoch.number} is")
        return self._line, epoch.number - 1

    def _save(
        self, frame: DataFrame, line: Line, version: int, told: Mapping[str, object], mode: str | None = None
    ) -> None:
        said = {"pipeline": line.pipeline, "application_id": line.application_id, "batch": version, **told}
        said["sink"] = self.name
        options = {
            **self._options,
            "txnAppId": line.application_id,
            "txnVersion": str(version),
            "userMetadata": json.dumps({"laminar": said}),
        }
        if not self.by_path:
            self._make(frame)
            into = frame.writeTo(self.table).options(**options)
            if (mode or self._mode) == "append":
                into.append()
            else:
                into.overwrite(lit(True))
            return
        writer = frame.write.format("delta").mode(mode or self._mode).options(**options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.save(self.table)

    def _make(self, like: DataFrame) -> None:
        """Makes the table without rows unless it is there: the commit that makes one by name has no place for an identifier."""
        spark = like.sparkSession
        if spark.catalog.tableExists(self.table):
            return
        maker = spark.createDataFrame([], like.schema).writeTo(self.table).using("delta")
        if self._partition_by:
            maker = maker.partitionedBy(*map(col, self._partition_by))
        try:
            maker.create()
        except PySparkException:
            if not spark.catalog.tableExists(self.table):  # else somebody was quicker
                raise

    def _find(self, line: Line, batch_id: int) -> tuple[Landed | None, bool]:
        """Where a batch is, and whether all of the history that could have it was seen.

        Raises:
            ConflictError: What is there is another sink's: Delta took this one's batch for the same, and skipped it.
        """
        limit = FIRST_LOOK
        while True:
            rows = self._history(limit)
            for row in rows:
                said = _said(row["userMetadata"])
                if said.get("application_id") != line.application_id or said.get("closed"):
                    continue
                if said["batch"] == batch_id:
                    found = Landed(version=row["version"], generation=said["generation"], sink=said.get("sink"))
                    self._check_own(found, batch_id)
                    return found, True
                if said["batch"] < batch_id:  # numbers of a line only go up
                    return None, True
            if len(rows) < limit:
                return None, not rows or rows[-1]["version"] == 0
            limit *= WIDER

    def _check_own(self, found: Landed, batch_id: int) -> None:
        # `check_tables` cannot see it where a table has two names, or a directory two paths.
        if found.sink not in (None, self.name):
            raise ConflictError(
                f"batch {batch_id} in {self.table} is that of sink {found.sink!r}, and sink {self.name!r} is for the same "
                "table: Delta skips what comes second",
                expected=self.name,
                found=found.sink,
                next_step="Give one sink both frames, as a union.",
            )

    def _history(self, limit: int) -> list[dict[str, Any]]:
        assert self._spark is not None
        try:
            found = self._spark.sql(f"DESCRIBE HISTORY {self.reference()} LIMIT {limit}")
            return [row.asDict() for row in found.select("version", "userMetadata").collect()]
        except PySparkException as error:
            if _is_absent(error):
                return []
            raise StorageError(f"the history of {self.table} cannot be read: {_first(error)}") from error

    def _read(self) -> DataFrame:
        assert self._spark is not None
        reader = self._spark.read.format("delta")
        return reader.load(self.table) if self.by_path else reader.table(self.table)

    def reference(self) -> str:
        """The table in SQL."""
        if self.by_path:
            return f"delta.{quote_name(self.table, Dialect.SPARK)}"
        return ".".join(quote_name(part, Dialect.SPARK) for part in _parts(self.table))


def check_tables(sinks: Iterable[object]) -> None:
    """Refuses two sinks of one pipeline for one table: Delta would take the second's batch for the first's, and skip it.

    Raises:
        InvalidInputError: A table is named twice.
    """
    seen: set[str] = set()
    for sink in sinks:
        if isinstance(sink, DeltaSink):
            place = _place(sink)
            if place in seen:
                raise InvalidInputError(
                    f"two Delta sinks of one pipeline are for table {sink.table}",
                    expected="a table for each",
                    found=sink.table,
                    next_step="Give one sink both frames, as a union.",
                )
            seen.add(place)


def _place(sink: DeltaSink) -> str:
    """What a table is known by, however it is spelled: names without regard to case, local paths without detours."""
    if not sink.by_path:
        return sink.reference().lower()
    local = local_path(sink.table)
    return sink.table.rstrip("/") if local is None else os.path.normpath(local)


def _parts(name: str) -> list[str]:
    """The parts of a table's name, each as it is or in backticks, as SQL has it."""
    return [quoted.replace("``", "`") or plain for quoted, plain in _PART.findall(name)] or [name]


def _said(metadata: str | None) -> Mapping[str, Any]:
    """What a commit of ours says of itself; nothing for anybody else's."""
    try:
        told = json.loads(metadata or "{}")
    except ValueError:
        return {}
    said = told.get("laminar") if isinstance(told, dict) else None
    return said if isinstance(said, dict) else {}


def _is_absent(error: PySparkException) -> bool:
    return (error.getCondition() or "").partition(".")[0] in _ABSENT


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0]
