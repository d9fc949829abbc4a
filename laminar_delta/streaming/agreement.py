"""Whether a query and its pipeline agree on where to go on, beyond the number of the batch.

A query that begins anew was begun behind some checkpoint, by options that were worked out before its first batch came. What
was found out about the sinks since then, those options do not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from laminar_delta.catalog.healing import find_rows
from laminar_delta.catalog.statuses import intact_changes
from laminar_delta.catalog.tables import WRITERS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError
from laminar_delta.model.status import SinkCommitKind
from laminar_delta.streaming.lines import line_of

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.streaming.lines import Head


def reason_of(query_id: str, run_id: str | None) -> str:
    """Why a pipeline is taken over by a query: by this the catalog knows what a query found out itself."""
    return f"query {query_id}" + (f", run {run_id}" if run_id else "")


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


def _generations_of(reading: Reading, pipeline: str, query_id: str) -> Iterable[int]:
    # Rows that cannot be read tell nothing: a takeover needs none of them, and this start's own generation is known.
    said, own = reason_of(query_id, None), col("pipeline").eq(pipeline)
    rows = reading.rows_despite_rot(WRITERS, where=own, exact=False, intact=bool)
    return [row["generation"] for row in rows if row["reason"] == said or (row["reason"] or "").startswith(f"{said},")]


def _newest_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["checkpoint_id"], reverse=True)
