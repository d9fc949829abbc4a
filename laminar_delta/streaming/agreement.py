"""Whether a query and its pipeline agree on where to go on, beyond the number of the batch.

A query that goes on reads from where its directory says, whatever the pipeline's newest checkpoint says. A query that begins
anew was begun behind some checkpoint, by options that were worked out before its first batch came. What was found out about the
sinks since then, those options do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.deliveries import Deliveries, all_committed
from laminar_delta.catalog.healing import find_rows
from laminar_delta.catalog.reconcile import OpenCheckpoint, is_damaged
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.statuses import intact_changes
from laminar_delta.catalog.tables import WRITERS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError
from laminar_delta.interop.sparkdir.logs import connector_checkpoints, parse_offsets
from laminar_delta.model.status import SinkCommitKind
from laminar_delta.streaming.documents import batch_said
from laminar_delta.streaming.lines import line_left, line_of

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.interop.sparkdir.logs import PlannedBatch
    from laminar_delta.model import CheckpointManifest
    from laminar_delta.streaming.lines import Head, Line
    from laminar_delta.streaming.query import RunningQuery


def reason_of(query_id: str, run_id: str | None) -> str:
    """Why a pipeline is taken over by a query: by this the catalog knows what a query found out itself."""
    return f"query {query_id}" + (f", run {run_id}" if run_id else "")


def check_offsets(pipeline: str, manifest: CheckpointManifest, head: Head, query: RunningQuery, batch_id: int) -> None:
    """Refuses a query whose directory has other offsets of the batch that the pipeline goes on from than the checkpoint has.

    They were moved with `edit_offsets`, which changes no directory: Spark would go on as if that had never been said.

    Raises:
        ConflictError: They differ.
    """
    if head.batch_id is None:
        return
    entry = query.entry(head.batch_id)
    if entry is None:  # Spark does not go on without either
        return
    there = {name: dict(source.offsets) for name, source in connector_checkpoints(entry, head.batch_id + 1).items()}
    places = [f"source-{index}" for index in range(len(entry.offsets))]
    kept = {name: dict(manifest.source_offsets[name].offsets) for name in places if name in manifest.source_offsets}
    moved = [name for name in places if kept.get(name) != there.get(name)]
    if not moved or (batch_id == head.batch_id and _is_planned_anew(head, entry)):
        return
    name, number = moved[0], head.checkpoint_id
    raise ConflictError(
        f"query {query.query_id} goes on from {there.get(name)} of {name}, by its directory, and pipeline {pipeline!r} from "
        f"{kept.get(name)}, by checkpoint {number}",
        expected={one: kept.get(one) for one in moved},
        found={one: there.get(one) for one in moved},
        next_step=f"Write the directory from checkpoint {number} with `restore_spark_checkpoint`, and start the query there; "
        "where that cannot write such offsets, begin a new query with `starting_options`. Or take the change back with "
        "`writer.undo`.",
        details={"query_id": query.query_id, "checkpoint_id": number},
    )


def _is_planned_anew(head: Head, entry: PlannedBatch) -> bool:
    """Whether Spark planned the batch itself differently since: that is for the run to refuse, which can say more of it."""
    before = head.logs.get("offsets")
    return before is not None and parse_offsets("offsets", before.encode()).offsets != entry.offsets


def check_begun_behind(writer: Writer, head: Head, query_id: str) -> None:
    """Refuses a query that begins anew and found out itself, in this start or one before, that sinks have what others saved.

    Its options were worked out when that was not known, and Spark has written them down with its first batch: it would give
    the sinks those records again, under a line by which they recognise nothing.

    Raises:
        ConflictError: It is to be begun once more, now that the sinks were asked.
    """
    found = _found_out(writer, query_id)
    if found is None:
        return
    checkpoint_id, earlier = found
    at_once = checkpoint_id == head.checkpoint_id
    raise ConflictError(
        f"query {query_id} begins anew, and found only when it started that sinks have checkpoint {checkpoint_id} of pipeline "
        f"{writer.pipeline!r}: begun by options from before, it would give them those records again",
        expected="options from after the sinks were asked",
        found=checkpoint_id,
        next_step=("" if at_once else f"Run {earlier} once more in its own directory, which completes that batch. ")
        + "Delete the directory of the new query, ask for the options again (`starting_options`), and begin it with "
        'those. If it reads everything again, say so: `after_reset="fresh"`.',
        details={"query_id": query_id, "checkpoint_id": checkpoint_id},
    )


def _found_out(writer: Writer, query_id: str) -> tuple[int, str] | None:
    """The newest checkpoint of others of which this query recorded that a sink has it, and who they are."""
    reading, pipeline = writer.reading, writer.pipeline
    own = {writer.generation, *_generations_of(reading, pipeline, query_id)}
    asked = col("pipeline").eq(pipeline) & col("generation").ge(min(own))
    told = {
        change["attempt_id"]
        for change in intact_changes(reading, asked)
        if change["generation"] in own and change["status"] == SinkCommitKind.COMMITTED.value
    }
    if not told:
        return None
    for row in _newest_first(find_rows(reading, pipeline).rows):
        if row["attempt_id"] in told:
            made_for = line_of(reading, row)
            if made_for is None or made_for[0].query_id != query_id:
                return row["checkpoint_id"], "what was before" if made_for is None else f"query {made_for[0].query_id}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A checkpoint after the one that a pipeline goes on from: what it read is read again."""

    checkpoint: OpenCheckpoint
    made_for: tuple[Line, int] | None

    @property
    def line(self) -> Line | None:
        """The line of its batch; None for one that no batch made, and for derived ones."""
        return None if self.made_for is None else self.made_for[0]

    def shown_by(self, sinks: Iterable[str]) -> list[str]:
        """Which of these are known to have it."""
        statuses = self.checkpoint.statuses
        return sorted(name for name in sinks if name in statuses and statuses[name].is_committed)

    def may_be_in(self, sink: str) -> bool:
        """Whether that sink may have it: not if it was not to get it, or did not take it."""
        status = self.checkpoint.statuses.get(sink)
        return status is not None and status.kind is not SinkCommitKind.FAILED


def passed_over(reading: Reading, pipeline: str, head: Head | None) -> list[PassedOver]:
    """The checkpoints after the one that a pipeline goes on from, the newest first; all where it goes on from none."""
    after = 0 if head is None else head.checkpoint_id
    deliveries = Deliveries(reading, pipeline)
    return [
        PassedOver(
            checkpoint=OpenCheckpoint(row=row, statuses=deliveries.statuses(row)), made_for=line_of(reading, row)
        )
        for row in _newest_first(find_rows(reading, pipeline).rows)
        if row["checkpoint_id"] > after
    ]


def lines_left(reading: Reading, row: Row | None, over: Iterable[PassedOver]) -> frozenset[Line]:
    """The lines of which a driver that was only paused may still have a batch to show.

    Args:
        reading: Where.
        row: The checkpoint that the pipeline goes on from, if any.
        over: What was passed over for it.
    """
    found = {one.line for one in over}
    if row is not None:
        found.add(line_left(reading, row))
        if row["derived_how"]:
            # What was passed over before it was derived lies below it, and whoever derived it closed nothing. Rows say their
            # line themselves: what became of their state does not matter.
            deliveries = Deliveries(reading, row["pipeline"])
            for below in _newest_first(find_rows(reading, row["pipeline"]).rows):
                is_below = below["checkpoint_id"] < row["checkpoint_id"] and batch_said(below)
                made_for = line_of(reading, below) if is_below and not deliveries.is_delivered(below) else None
                found.add(None if made_for is None else made_for[0])
    return frozenset(line for line in found if line is not None)


def was_left(reading: Reading, line: Line) -> bool:
    """Whether a checkpoint of another line was saved after the first of this one: who saved it may have closed this one."""
    began = False
    for row in reversed(_newest_first(find_rows(reading, line.pipeline).rows)):
        # Rows say their line themselves; of older ones that do not, the state is not read for this.
        made_for = line_of(reading, row) if batch_said(row) else None
        if made_for is not None and made_for[0] != line and began:
            return True
        began = began or (made_for is not None and made_for[0] == line)
    return False


def is_given_up(reading: Reading, pipeline: str, one: PassedOver) -> bool:
    """Whether a checkpoint that all sinks have was retired, or is damaged: who starts over all the same knows of it."""
    if not all_committed(one.checkpoint.statuses):
        return False
    row = one.checkpoint.row
    return row["checkpoint_id"] in standing(reading, pipeline).retired or is_damaged(reading, row)


def check_not_shown(
    pipeline: str, head: Head | None, line: Line, sinks: Iterable[str], behind: Iterable[PassedOver]
) -> None:
    """Refuses a line that would give sinks again what another one gave them: they tell batches apart by the line.

    Args:
        pipeline: Whose.
        head: What it goes on from, if anything.
        line: What comes next.
        sinks: Those that tell batches apart by the line.
        behind: What was passed over.

    Raises:
        ConflictError: A sink has one of these, under another line.
    """
    names = list(sinks)
    for one in behind:
        shown = one.shown_by(names)
        if shown and one.line != line:
            raise shown_already(pipeline, head, line, one, shown)


def shown_already(
    pipeline: str, head: Head | None, line: Line, behind: PassedOver, shown: Sequence[str]
) -> ConflictError:
    """What to tell of a checkpoint that was passed over and that sinks have under another line."""
    of, checkpoint_id = behind.line, behind.checkpoint.row["checkpoint_id"]
    before = "what was before" if of is None else f"query {of.query_id}"
    lost, goes_on, rewind = "", "from no checkpoint", ""
    if head is not None:
        goes_on = f"from checkpoint {head.checkpoint_id}"
        rewind = f" and rewind the pipeline to checkpoint {head.checkpoint_id}"
        if of is not None and of.query_id == head.query_id:
            lost = (
                f"; where that is lost, make it with `restore_spark_checkpoint` of checkpoint {head.checkpoint_id} and "
                "`new_query=False`"
            )
    return ConflictError(
        f"query {line.query_id} would give sink {shown[0]!r} the records of checkpoint {checkpoint_id} of pipeline "
        f"{pipeline!r} again: the sink has them from {before}, and recovery goes on {goes_on}",
        expected=None if of is None else of.query_id,
        found=line.query_id,
        next_step=f"Run {before} once more in its own directory{lost}: that completes the batch. Then begin the new query "
        f"behind it. To give the batch up instead, take the sinks back to what they were{rewind}; a query that begins anew and "
        'reads everything again says so: `after_reset="fresh"`.',
        details={"query_id": line.query_id, "checkpoint_id": checkpoint_id, "sinks": list(shown)},
    )


def _generations_of(reading: Reading, pipeline: str, query_id: str) -> Iterable[int]:
    # Rows that cannot be read tell nothing: a takeover needs none of them, and this start's own generation is known.
    said, own = reason_of(query_id, None), col("pipeline").eq(pipeline)
    rows = reading.rows_despite_rot(WRITERS, where=own, exact=False, intact=bool)
    return [row["generation"] for row in rows if row["reason"] == said or (row["reason"] or "").startswith(f"{said},")]


def _newest_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["checkpoint_id"], reverse=True)
