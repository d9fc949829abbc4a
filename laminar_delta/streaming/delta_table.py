"""The table a Delta sink is for: what it is called, where it is in SQL, how it is made and written, what its history has.

Each commit of ours says in its metadata what it is, so that a batch can be found in the table's history.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql.functions import col, lit

from laminar_delta.engine.local.place import local_path
from laminar_delta.engine.predicate import Dialect, quote_name
from laminar_delta.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from laminar_delta.streaming.lines import Line

T = TypeVar("T")

APPEND, OVERWRITE = MODES = ("append", "overwrite")
FIRST_LOOK, WIDER = 10, 20
"""How many commits of the history are looked at first, and how much further each time."""
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_GIVEN_BY_DELTA = "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"
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
    batch: int
    """Which batch it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What looking for a batch came to."""

    found: Landed | None = None
    is_whole: bool = True
    """Whether all of the history that could have it was seen."""
    closed_at: int | None = None
    """The version that closed the line of the batch, if one was seen."""


@dataclass(frozen=True, slots=True)
class SinkTable:
    """A Delta table by path or by name."""

    named: str
    by_path: bool
    partition_by: Sequence[str] = ()
    """Columns, for when it is made."""

    @classmethod
    def of(cls, given: str | Path, partition_by: Sequence[str] = ()) -> SinkTable:
        """The table that a path or URI (with a slash in it) or a name stands for."""
        if isinstance(given, Path) or "/" in given:
            return cls(absolute(given), True, tuple(partition_by))
        return cls(given, False, tuple(partition_by))

    @property
    def own_name(self) -> str:
        """The last part of what it is called."""
        return self.named.rstrip("/").rpartition("/")[2] if self.by_path else _parts(self.named)[-1]

    @property
    def place(self) -> str:
        """What it is known by, however it is spelled: names without regard to case, local paths without detours."""
        if not self.by_path:
            return self.reference().lower()
        local = local_path(self.named)
        return self.named.rstrip("/") if local is None else os.path.normpath(local)

    def reference(self) -> str:
        """The table in SQL."""
        if self.by_path:
            return f"delta.{quote_name(self.named, Dialect.SPARK)}"
        return ".".join(quote_name(part, Dialect.SPARK) for part in _parts(self.named))

    def nothing(self, spark: SparkSession) -> DataFrame | None:
        """No rows, in the shape of the table; None where there is no table. Raises `StorageError`."""
        try:
            reader = spark.read.format("delta")
            return (reader.load(self.named) if self.by_path else reader.table(self.named)).limit(0)
        except PySparkException as error:
            if is_absent(error):
                return None
            raise StorageError(f"{self.named} cannot be read: {first_line(error)}") from error

    def property(self, spark: SparkSession, name: str) -> str | None:
        """A property of the table; None where it is not set, or there is no table. Raises `StorageError`."""
        try:
            rows = spark.sql(f"DESCRIBE DETAIL {self.reference()}").select("properties").collect()
        except PySparkException as error:
            if is_absent(error):
                return None
            raise StorageError(f"{self.named} cannot be asked: {first_line(error)}") from error
        found = rows[0][0].get(name) if rows else None
        return None if found is None else str(found)

    def write(self, frame: DataFrame, mode: str, options: Mapping[str, str]) -> None:
        """Writes rows in one commit, and makes the table if it is not there. What Spark raises is passed on."""
        if not self.by_path:
            self._make(frame)
            into = frame.writeTo(self.named).options(**options)
            if mode == APPEND:
                into.append()
            else:
                into.overwrite(lit(True))
            return
        writer = frame.write.format("delta").mode(mode).options(**options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(self.named)

    def write_nothing(self, shape: DataFrame, options: Mapping[str, str]) -> None:
        """Makes a commit without rows, and the table if it is not there. What Spark raises is passed on.

        Args:
            shape: No rows, in the shape of the table.
            options: Of the write.
        """
        while True:
            try:
                return self.write(shape, APPEND, options)
            except PySparkException as error:
                # Delta refuses a column whose values it gives itself, also where there are none; a schema does not tell of it.
                given = set((error.getMessageParameters() or {}).values()) & set(shape.columns)
                if error.getCondition() != _GIVEN_BY_DELTA or not given:
                    raise
                shape = shape.drop(*given)

    def _make(self, like: DataFrame) -> None:
        """Makes the table without rows unless it is there: the commit that makes one by name has no place for an identifier."""
        spark = like.sparkSession
        if spark.catalog.tableExists(self.named):
            return
        # Not `createDataFrame`, which makes its session the active one of the whole process. Without rows nothing is run.
        maker = like.limit(0).writeTo(self.named).using("delta")
        if self.partition_by:
            maker = maker.partitionedBy(*map(col, self.partition_by))
        try:
            maker.create()
        except PySparkException:
            if not spark.catalog.tableExists(self.named):  # else somebody was quicker
                raise

    def find(self, spark: SparkSession, line: Line, batch_id: int) -> Search:
        """Looks for a batch, from the newest commit back. Raises `StorageError`."""
        closed_at: int | None = None

        def look(version: int, said: Mapping[str, Any]) -> Search | None:
            nonlocal closed_at
            if said.get("closed"):
                closed_at = version
            elif said["batch"] == batch_id:
                return Search(found=_landed(version, said), closed_at=closed_at)
            elif said["batch"] < batch_id:  # numbers of a line only go up
                return Search(closed_at=closed_at)
            return None

        search, is_whole = self._first(spark, line, look)
        return search or Search(is_whole=is_whole, closed_at=closed_at)

    def newest(self, spark: SparkSession, line: Line, up_to: int) -> tuple[Landed | None, bool]:
        """The newest batch of a line up to a number, as not all of them gave the table something; and whether, without one, all
        of the history was seen.
        """

        def look(version: int, said: Mapping[str, Any]) -> Landed | None:
            return None if said.get("closed") or said["batch"] > up_to else _landed(version, said)

        return self._first(spark, line, look)

    def _first(
        self, spark: SparkSession, line: Line, look: Callable[[int, Mapping[str, Any]], T | None]
    ) -> tuple[T | None, bool]:
        """What the newest commit of a line comes to of which `look` makes something; without one, whether all were seen."""
        limit = FIRST_LOOK
        while True:
            rows = self._history(spark, limit)
            for row in rows:
                said = _said(row["userMetadata"])
                if said.get("application_id") == line.application_id:
                    answer = look(row["version"], said)
                    if answer is not None:
                        return answer, True
            if len(rows) < limit:
                return None, not rows or rows[-1]["version"] == 0
            limit *= WIDER

    def _history(self, spark: SparkSession, limit: int) -> list[dict[str, Any]]:
        try:
            found = spark.sql(f"DESCRIBE HISTORY {self.reference()} LIMIT {limit}")
            return [row.asDict() for row in found.select("version", "userMetadata").collect()]
        except PySparkException as error:
            if is_absent(error):
                return []
            raise StorageError(f"the history of {self.named} cannot be read: {first_line(error)}") from error


def _landed(version: int, said: Mapping[str, Any]) -> Landed:
    return Landed(version=version, generation=said["generation"], sink=said.get("sink"), batch=said["batch"])


def absolute(path: str | Path) -> str:
    """A table's path as SQL finds it too: a write takes a relative one from where the process is, `DESCRIBE` does not."""
    text = str(path)
    if _URI.match(text) or Path(text).is_absolute():
        return text
    return os.path.abspath(Path(text).expanduser())  # noqa: PTH100  # a Path would not take the detours out


def is_absent(error: PySparkException) -> bool:
    """Whether Spark says that there is no such table."""
    return (error.getCondition() or "").partition(".")[0] in _ABSENT


def first_line(error: Exception) -> str:
    """What an error says, without the plan and the stack that Spark adds."""
    return str(error).partition("\n")[0]


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
