"""Lines of a pipeline: stretches of batches in which a batch number means one batch.

Spark numbers batches from 0. After a reset of its directory it begins again under another query id, and after a rewind the
same query runs the same numbers anew, with other records in them perhaps. So what a sink remembers of a batch has to name the
line too: the query, and its *lineage*, the id of the derived checkpoint (a rewind, a fork) the line starts from, 0 where it
starts from none. Every checkpoint of a batch says which line it is of, so that removing old checkpoints cannot change the
answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.healing import find_row, find_rows
from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.errors import ConflictError, CorruptionError, NotFoundError, StorageError
from laminar_delta.interop.sparkdir.source import BATCH, DOCUMENT
from laminar_delta.streaming.documents import batch_said, origin_of, query_and_batch
from laminar_delta.streaming.plans import Plan

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row

__all__ = ["BATCH", "DOCUMENT", "Head", "Line", "came_from", "document", "in_short", "line_left", "line_of", "plan_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A stretch of batches of one query of one pipeline."""

    pipeline: str
    query_id: str
    lineage: int = 0

    @property
    def application_id(self) -> str:
        """What it is called in the transaction identifiers of Delta tables."""
        return f"laminar:{self.pipeline}:{self.query_id}:{self.lineage}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The checkpoint a pipeline goes on from, as far as streaming is concerned."""

    checkpoint_id: int
    query_id: str | None
    """None for a checkpoint that no query made."""
    batch_id: int | None
    line: Line | None
    """What a next batch of the same query belongs to."""
    logs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Spark's log entries of the batch, as they were when it was run."""
    given: frozenset[str] | None = None
    """The sinks that got something of the batch; None where that is not known."""
    operators: tuple[str, ...] = ()
    """Those that have state of the user's function."""

    @classmethod
    def of(cls, reading: Reading, row: Row) -> Head:
        """What a manifest row says."""
        told = _document(reading, row)
        query_id, batch_id = told.get("query_id"), told.get("batch_id")
        if query_id is None:  # one that was imported, or made from such a one
            query_id, number = query_and_batch(origin_of(reading, row), told)
            batch_id = None if query_id is None else number
        return cls(
            checkpoint_id=row["checkpoint_id"],
            query_id=query_id,
            batch_id=batch_id,
            line=None
            if query_id is None
            else Line(
                pipeline=row["pipeline"],
                query_id=query_id,
                lineage=row["checkpoint_id"] if row["derived_how"] else int(told.get("lineage", 0)),
            ),
            logs=_logs(told),
            given=frozenset(told["given"]) if isinstance(told.get("given"), list) else None,
            operators=tuple(entry["operator"] for entry in row["operators"] if not _is_own(entry["operator"])),
        )

    def begins_anew(self, query_id: str, batch_id: int) -> bool:
        """Whether a query is at its first batch, and this checkpoint is not of it."""
        return batch_id == 0 and self.query_id != query_id

    def following(self, pipeline: str, query_id: str, batch_id: int, restored: Mapping[str, object]) -> Line:
        """The line of the batch a query is at, after this checkpoint.

        Args:
            pipeline: Whose.
            query_id: The query.
            batch_id: Where it is.
            restored: What its directory was restored from, if it was; see `RunningQuery.restored_from`.

        Raises:
            ConflictError: That would leave out batches, or repeat some.
        """
        if self.query_id == query_id and self.line is not None and self.batch_id is not None:
            if batch_id in (self.batch_id, self.batch_id + 1):
                return self.line
            raise self._apart(pipeline, query_id, batch_id)
        if self.begins_anew(query_id, batch_id):  # a reset, or the first query of a pipeline that had none
            return Line(pipeline=pipeline, query_id=query_id)
        from_here = (restored.get("from_query_id"), restored.get("batch_id")) == (self.query_id, self.batch_id)
        if from_here and self.batch_id is not None and batch_id == self.batch_id + 1 and self.line is not None:
            # A directory restored from the batch of this very checkpoint, under a new id.
            return Line(pipeline=pipeline, query_id=query_id, lineage=self.line.lineage)
        raise self._apart(pipeline, query_id, batch_id)

    def is_batch(self, query_id: str, batch_id: int) -> bool:
        """Whether this is the checkpoint of that batch."""
        return (self.query_id, self.batch_id) == (query_id, batch_id)

    def _apart(self, pipeline: str, query_id: str, batch_id: int) -> ConflictError:
        stands = f"after batch {self.batch_id} of query {self.query_id}" if self.query_id else "without a query"
        behind = self.query_id == query_id and self.batch_id is not None and batch_id > self.batch_id
        return ConflictError(
            f"query {query_id} is at batch {batch_id}, and pipeline {pipeline!r} stands at checkpoint {self.checkpoint_id}, "
            f"{stands}: going on would {'leave out' if behind else 'repeat'} batches",
            expected=None if self.batch_id is None else self.batch_id + 1,
            found=batch_id,
            next_step="Bring the two together: rewind the pipeline and write Spark's directory with "
            "`restore_spark_checkpoint`, or use another pipeline for this query.",
            details={"query_id": query_id, "checkpoint_id": self.checkpoint_id},
        )


_OWN = frozenset({"query_id", "lineage", "batch_id", "given", "restored_from"})
"""What of a document is not Spark's."""
_MADE_FROM = ("pipeline", "checkpoint_id", "batch_id")
"""What the first batch in a restored directory keeps of what that was made from."""


def document(
    line: Line,
    batch_id: int,
    told: Mapping[str, str],
    given: Iterable[str],
    restored: Mapping[str, object] | None = None,
) -> bytes:
    """What a batch's checkpoint keeps beside offsets and state.

    Args:
        line: What the batch belongs to.
        batch_id: Its number.
        told: Spark's log entries as they are.
        given: The sinks that get something of it.
        restored: What the query's directory was restored from, if it was; see `RunningQuery.restored_from`.
    """
    said: dict[str, object] = {"query_id": line.query_id, "lineage": line.lineage, "batch_id": batch_id}
    said |= {"given": sorted(given), **told}
    if restored and restored.keys() >= set(_MADE_FROM) and restored["batch_id"] == batch_id - 1:
        # The first batch in that directory: what came before is under another id, and found by this only. As captures say it.
        said["restored_from"] = {name: restored[name] for name in _MADE_FROM}
    return json.dumps(said, sort_keys=True, ensure_ascii=False).encode()


def in_short(line: Line, batch_id: int, told: Mapping[str, str], given: Iterable[str]) -> bytes:
    """What of that is said in the checkpoint's own row too, whatever becomes of its state."""
    said = {"query_id": line.query_id, "lineage": line.lineage, "batch_id": batch_id, "given": sorted(given)}
    return json.dumps({**said, "plan": dict(Plan.of(told).digests().entries)}, sort_keys=True).encode()


def line_of(reading: Reading, row: Row) -> tuple[Line, int] | None:
    """The line and batch a checkpoint was made for; None for one that no batch made, and for derived ones."""
    told = {} if row["derived_how"] else batch_said(row) or _document(reading, row)
    if "query_id" not in told:
        return None
    line = Line(pipeline=row["pipeline"], query_id=told["query_id"], lineage=int(told["lineage"]))
    return line, int(told["batch_id"])


def plan_of(reading: Reading, row: Row) -> Plan:
    """Spark's plan of the batch a checkpoint was made for, as it was when that was run.

    Of log entries that have rotted there are digests: those of a try must not keep the batch from being run anew.
    """
    try:
        return Plan.of(_logs(_document(reading, row)))
    except (CorruptionError, StorageError) as damage:
        raise_unless_damage(damage)
        digests = batch_said(row).get("plan")
        if not isinstance(digests, dict):
            raise
        return Plan(entries=digests, as_digests=True)


def line_left(reading: Reading, row: Row) -> Line | None:
    """The line that was being written before a derived checkpoint, or that of the checkpoint itself."""
    at: Row | None = row
    while at is not None and at["derived_how"]:
        over = at["derived_over_id"]
        at = None if over is None else find_row(reading, at["pipeline"], over)
    found = None if at is None else line_of(reading, at)
    return None if found is None else found[0]


def came_from(reading: Reading, row: Row) -> Row | None:
    """The checkpoint of a batch that the line of another one went on from; None where that began with nothing."""
    made_for, pipeline = line_of(reading, row), row["pipeline"]
    passed_over = standing(reading, pipeline).abandoned
    for before in sorted(find_rows(reading, pipeline).rows, key=lambda row: -int(row["checkpoint_id"])):
        if before["checkpoint_id"] >= row["checkpoint_id"] or before["checkpoint_id"] in passed_over:
            continue
        found = line_of(reading, before)
        if before["derived_how"] or found is None or made_for is None or found[0] != made_for[0]:
            return origin_of(reading, before)
    return None


def _is_own(operator: str) -> bool:
    """Whether what an operator has is kept by this library, not by a function of the user's."""
    return operator == DOCUMENT or operator.startswith(f"{DOCUMENT}/")


def _logs(told: Mapping[str, Any]) -> Mapping[str, str]:
    return {name: text for name, text in told.items() if name not in _OWN}


def _document(reading: Reading, row: Row) -> Mapping[str, Any]:
    try:
        read = CheckpointState(reading, row, True).read(DOCUMENT)
    except NotFoundError:
        return {}
    told = json.loads(read)
    return told if isinstance(told, dict) else {}
