"""A Delta table as a sink: each batch is one commit, made once whoever tries how often.

The commit carries a transaction identifier: the line as the application, the batch number as its version. Delta skips a write
whose version is not above the one recorded, and of two that race one fails, so a batch that is run again cannot be written
again. Because it skips without a word, each write is looked up in the table's history afterwards: the commit says in its
metadata what it is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from laminar_delta.catalog.healing import committed_row
from laminar_delta.catalog.sinks import SinkEpoch
from laminar_delta.errors import ConflictError, InvalidInputError, NotFoundError, SessionStateError, StorageError
from laminar_delta.logs import Event, log_event
from laminar_delta.streaming.batch import Written
from laminar_delta.streaming.delta_table import MODES, Landed, Search, SinkTable, first_line
from laminar_delta.streaming.lines import Head, came_from, line_of
from laminar_delta.streaming.sinks import CLOSED_LINE, MAY_HAVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.streaming.lines import Line

_LOG = logging.getLogger(__name__)

OURS = frozenset({"txnappid", "txnversion", "usermetadata"})
"""Options of a write that are not the user's here."""

EXPIRY = "delta.setTransactionRetentionDuration"
"""The property of a table by which Delta forgets transaction identifiers, and with them which batches it has."""

CLOSED = 2**62
"""The version that closes a line: above every batch."""


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
        self._table = SinkTable.of(table, partition_by)
        self.name = name or self._table.own_name
        self._mode = mode
        self._options = dict(options or {})
        self._spark: SparkSession | None = None
        self._pipeline: str | None = None
        self._line: Line | None = None
        self._batches: Mapping[SinkEpoch, tuple[Line, int]] = {}
        self._tried: Collection[tuple[Line, int]] = ()
        self._may_be_closed = False
        self._given: DataFrame | None = None
        self._held: dict[SinkEpoch, DataFrame] = {}
        self._outcomes: dict[SinkEpoch, Written] = {}

    @property
    def table(self) -> str:
        """The table's path or name; a local path from the root on."""
        return self._table.named

    @property
    def place(self) -> str:
        """What the table is known by, however it is spelled."""
        return self._table.place

    def reference(self) -> str:
        """The table in SQL."""
        return self._table.reference()

    def follow(
        self,
        spark: SparkSession,
        pipeline: str,
        line: Line | None,
        batches: Mapping[SinkEpoch, tuple[Line, int]],
        *,
        tried: Collection[tuple[Line, int]] = (),
        may_be_closed: bool = False,
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
        self._tried, self._may_be_closed = tried, may_be_closed
        if line is not None:
            self._tell_expiry(line)

    def _tell_expiry(self, line: Line) -> None:
        """Warns of a table that forgets identifiers: Delta then writes a late replay again, or a batch of a closed line."""
        after = self._table.property(self._session(), EXPIRY)
        if after is not None:
            log_event(
                _LOG,
                logging.WARNING,
                Event.IDENTIFIERS_EXPIRE,
                "table %s has %s = %s: a batch of pipeline %s that comes again later than that is written twice; unset it "
                "(ALTER TABLE %s UNSET TBLPROPERTIES ('%s'))",
                self.table,
                EXPIRY,
                after,
                line.pipeline,
                self.reference(),
                EXPIRY,
                pipeline=line.pipeline,
                table=self.table,
                expires=after,
            )

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
            ConflictError: Delta skipped the write although the table does not have the batch; or the line was closed.
        """
        frame = self._held.get(epoch)
        if frame is None:  # the function gave it nothing
            self._outcomes = {epoch: Written.NOTHING}
            return
        line, batch_id = self._batch(epoch)
        try:
            told = {"epoch": epoch.number, "generation": epoch.generation}
            self._table.write(frame, self._mode, self._saying(line, batch_id, told))
        except PySparkException as error:
            # Another process may have written the same batch at the same time: then it is there.
            if self._find(line, batch_id).found is None:
                raise StorageError(
                    f"batch {batch_id} could not be written to {self.table}: {first_line(error)}"
                ) from error
        search = self._find(line, batch_id)
        if search.found is None:
            self._check_skipped(search, line, batch_id)
        is_own = search.found is not None and search.found.generation == epoch.generation
        self._outcomes = {epoch: Written.WRITTEN if is_own else Written.FOUND}

    def _check_skipped(self, search: Search, line: Line, batch_id: int) -> None:
        """Lets a write pass that Delta skipped without the history telling why only where nothing else can be the reason.

        That is so where an earlier try of the batch was saved, because batches are shown after that, and is not known to have
        failed, and nobody can have closed the line since. The log may have been cleaned of its commit then.

        Raises:
            ConflictError: The table may lack the batch.
        """
        at = search.closed_at
        if at is None and search.is_whole:
            raise ConflictError(
                f"Delta skipped the write of batch {batch_id} to {self.table}, and its history does not have the batch",
                expected=f"a commit of {line.application_id} with batch {batch_id}",
                found=None,
                next_step="See what else writes to the table under that transaction identifier.",
            )
        is_tried = (line, batch_id) in self._tried
        if at is None and is_tried and not self._may_be_closed:
            return
        if at is None and not self._may_be_closed:
            raise ConflictError(
                f"Delta skipped the write of batch {batch_id} to {self.table}, whose log was cleaned since its first version: "
                "what is left does not have the batch, and no earlier try of it is in the catalog",
                expected=f"a commit of {line.application_id} with batch {batch_id}",
                found=None,
                next_step="See what else writes to the table under that transaction identifier, or whether the table was "
                f"given the batch under a catalog that is gone. Then rewind pipeline {line.pipeline!r} to the checkpoint it "
                "goes on from: that begins a line of its own.",
            )
        by = "by a commit that the log has no more" if at is None else f"by version {at}"
        unsure = is_tried and not search.is_whole
        raise ConflictError(
            f"batch {batch_id} was not written to {self.table}: its line was closed there {by}, "
            "when another query went on in its place, or a rewind"
            + ("; or the table has it since an earlier try, which the log does not tell any more" if unsure else ""),
            expected=f"{line.application_id} is open",
            found=f"closed {by}",
            next_step="Rewind the pipeline to the checkpoint the query goes on from: that begins a line of its own.",
            details={CLOSED_LINE: line.application_id, MAY_HAVE: unsure},
        )

    def abort(self, epoch: SinkEpoch) -> None:
        """See `ExactlyOnceSink`. A late commit of the batch by another process is the only one there will be, or is skipped."""
        self._given = None
        self._held.pop(epoch, None)

    def landed(self, epoch: SinkEpoch) -> bool | None:
        """See `ExactlyOnceSink`: by the table's history; None where that does not reach back far enough."""
        line, batch_id = self._batch(epoch)
        search = self._find(line, batch_id)
        return True if search.found is not None else (False if search.is_whole else None)

    def close_line(self, line: Line) -> bool:
        """See `LineSink`: an empty commit with a version above all batches, which Delta then skips.

        Where there is no table yet, that commit makes it, in the shape of what is about to be written.
        """
        nothing = self._table.nothing(self._session())
        if nothing is None:
            held = next(iter(self._held.values()), None)
            if held is None:
                return False
            nothing = held.limit(0)
        try:
            self._table.write_nothing(nothing, self._saying(line, CLOSED, {"closed": True}))
        except PySparkException as error:
            raise StorageError(
                f"what was left of {line.application_id} in {self.table} cannot be closed: {first_line(error)}"
            ) from error
        return True

    def outcome(self, epoch: SinkEpoch) -> Written:
        """See `LineSink`."""
        return self._outcomes[epoch]

    def version_of(self, catalog: Catalog, pipeline: str, checkpoint_id: int, spark: SparkSession) -> int:
        """The version of the table that a checkpoint's batch left: what to restore it to for a rewind.

        Of a batch that gave the table nothing it is the version that one before it made, of its own line or of that which the
        line went on from.

        Raises:
            NotFoundError: The checkpoint is of no batch, or its commit is not in the table's history any more; or nothing was
                written to the table by then.
        """
        found = self._left_by(catalog.reading, committed_row(catalog.reading, pipeline, checkpoint_id), spark)
        if found is None:
            raise NotFoundError(
                f"the history of {self.table} does not have the batch of checkpoint {checkpoint_id} of {pipeline!r}",
                expected=checkpoint_id,
                next_step="Choose a checkpoint whose commit the table's log still has, or a later one.",
            )
        return found.version

    def _left_by(self, reading: Reading, row: Row, spark: SparkSession) -> Landed | None:
        """The newest commit up to a checkpoint. The session is not kept: a sink may be handed on."""
        missed: set[str] = set()
        at: Row | None = row
        while at is not None and (made_for := line_of(reading, at)) is not None:
            found, is_whole = self._table.newest(spark, *made_for)
            if found is None or found.batch != made_for[1]:
                given = Head.of(reading, at).given
                if given is None:  # saved when that was not kept yet: it may have been given something
                    return None
                missed |= given
            # Whatever the sink is called here: the line names the batch, and the commit the sink.
            name = self.name if found is None else found.sink or self.name
            if name in missed:
                return None
            if found is not None or not is_whole:
                return found
            at = came_from(reading, at)
        return None

    def _batch(self, epoch: SinkEpoch) -> tuple[Line, int]:
        if epoch in self._batches:
            return self._batches[epoch]
        if self._line is None:
            raise SessionStateError(f"sink {self.name!r} does not know what epoch {epoch.number} is")
        return self._line, epoch.number - 1

    def _saying(self, line: Line, version: int, told: Mapping[str, object]) -> dict[str, str]:
        """The options of a write: its identifier, and what the commit says of itself."""
        said = {"pipeline": line.pipeline, "application_id": line.application_id, "batch": version, **told}
        said["sink"] = self.name
        return {
            **self._options,
            "txnAppId": line.application_id,
            "txnVersion": str(version),
            "userMetadata": json.dumps({"laminar": said}),
        }

    def _find(self, line: Line, batch_id: int) -> Search:
        """Looks for a batch of this sink's.

        Raises:
            ConflictError: What is there is another sink's: Delta took this one's batch for the same, and skipped it.
        """
        search = self._table.find(self._session(), line, batch_id)
        if search.found is not None:
            self._check_own(search.found, batch_id)
        return search

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

    def _session(self) -> SparkSession:
        assert self._spark is not None, "told by `follow`"
        return self._spark


def check_tables(sinks: Iterable[object]) -> None:
    """Refuses two sinks of one pipeline for one table: Delta would take the second's batch for the first's, and skip it.

    Raises:
        InvalidInputError: A table is named twice.
    """
    seen: set[str] = set()
    for sink in sinks:
        if isinstance(sink, DeltaSink):
            if sink.place in seen:
                raise InvalidInputError(
                    f"two Delta sinks of one pipeline are for table {sink.table}",
                    expected="a table for each",
                    found=sink.table,
                    next_step="Give one sink both frames, as a union.",
                )
            seen.add(sink.place)
