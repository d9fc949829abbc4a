"""Steps staged as rows: by many tasks of a job, or by earlier tasks of a workflow, committed by one session in one merge.

A step is a row with the columns

    kind         `source` (the default), `result`, `config` or `clear`
    source       the source; for `result` the query
    sequence     for `source` and `result`
    position     for `source`; null removes a stored one
    config_hash  for `config`

Rows of parallel tasks have no order, and a task that is repeated stages its rows twice. So a clear comes first wherever it
stands, and of several rows for one source or query the highest sequence counts, then the highest position; of several hashes
the highest. The statements in `laminar_delta/sql` follow the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.buffer import Buffer
from laminar_delta.catalog.clock import now
from laminar_delta.catalog.position_rows import RESULT, SOURCE
from laminar_delta.catalog.positions import Positions, read_positions
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.session_log import session_history
from laminar_delta.catalog.step_rows import CLEAR, COLUMNS, CONFIG, as_table, checked_rows
from laminar_delta.catalog.tables import SESSION_STEPS, SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row
    from laminar_delta.catalog.session_commit import SessionToken
    from laminar_delta.engine.base import Engine


@dataclass(slots=True)
class Steps:
    """Steps folded into what they come to."""

    rows: int = 0
    cleared: bool = False
    config_hash: int | None = None
    sources: dict[str, tuple[int, bytes | None]] = field(default_factory=dict)
    """Sequence and position of each."""
    results: dict[str, int] = field(default_factory=dict)

    def stage(self, buffer: Buffer, base: Positions) -> None:
        """Stages them in a session's buffer."""
        if self.cleared:
            buffer.clear()
        for name, step in self.sources.items():
            buffer.stage(name, *step)
        for query, sequence in self.results.items():
            buffer.raise_result(base, query, sequence)
        if self.config_hash is not None:
            buffer.stage_config_hash(self.config_hash)


def fold_steps(rows: object) -> Steps:
    """What steps come to.

    Args:
        rows: An Arrow table, a Spark DataFrame, a list of dictionaries, or anything else that Arrow takes.

    Raises:
        InvalidInputError: A column, a kind or a value is none that a step can have.
    """
    table = as_table(rows)
    steps = Steps(rows=table.num_rows)
    for row in checked_rows(table):
        kind = row["kind"]
        if kind == CLEAR:
            steps.cleared = True
        elif kind == CONFIG:
            steps.config_hash = max(int(row["config_hash"]), steps.config_hash or 0)
        elif kind == RESULT:
            steps.results[row["source"]] = max(row["sequence"], steps.results.get(row["source"], 0))
        elif kind == SOURCE:
            found = row["sequence"], row["position"]
            known = steps.sources.get(row["source"])
            steps.sources[row["source"]] = found if known is None else max(known, found, key=_rank)
    return steps


def write_steps(engine: Engine, token: SessionToken, rows: object, *, owner: str) -> int:
    """Stages steps for a session from any process: one append, visible to nobody but its commit. How many rows.

    Raises:
        InvalidInputError: A row is no step. Nothing was staged.
    """
    checked = checked_rows(as_table(rows))
    common: Row = {
        "pipeline": token.pipeline,
        "session_id": token.session_id,
        "generation": token.generation,
        "staged_at": now(),
        "staged_by": owner,
    }
    staged = [{**row, "source": row["source"] or "", **common} for row in checked]
    metadata = {
        "operation": "stage",
        "pipeline": token.pipeline,
        "session": token.session_id,
        "generation": token.generation,
        "owner": owner,
        "steps": len(staged),
    }
    engine.append(SESSION_STEPS.name, pa.Table.from_pylist(staged, schema=SESSION_STEPS.schema), metadata=metadata)
    return len(staged)


def read_steps(engine: Engine, token: SessionToken) -> pa.Table:
    """What was staged for a session so far."""
    where = col("pipeline").eq(token.pipeline) & col("session_id").eq(token.session_id)
    return engine.read(SESSION_STEPS.name, columns=list(COLUMNS), where=where)


def remove_steps(engine: Engine, pipeline: str, *, owner: str, dry_run: bool = False) -> int:
    """Removes the steps of a pipeline that no session commits any more. How many rows. No generation is needed, no clock asked.

    A session commits under the generation of the head row or not at all, so those of earlier ones are fenced off for good; of
    that generation's own only the committed ones are done with. Rows that say no session, nobody takes. Those that say one and
    no generation its commit takes all the same: they stay until it is there.
    """
    now = read_positions(Reading(engine), pipeline)
    done = {record.session_id for record in session_history(engine, pipeline)}
    # Of statements that said nothing of themselves in the log the rows tell.
    there = Reading(engine).rows(SOURCE_CHECKPOINTS, where=col("pipeline").eq(pipeline), columns=["session_id"])
    done |= {row["session_id"] for row in there if row["session_id"] is not None}
    own = col("pipeline").eq(pipeline)
    found = Reading(engine).rows(SESSION_STEPS, where=own, columns=["session_id", "generation"])
    dead = [
        row["session_id"]
        for row in found
        if row["session_id"] is None
        or row["session_id"] in done
        or (row["generation"] is not None and row["generation"] < now.generation)
    ]
    if not dead or dry_run:
        return len(dead)
    sessions = sorted({session_id for session_id in dead if session_id is not None})
    where = own & (col("session_id").is_in(sessions) | col("session_id").is_null())
    metadata = {"operation": "remove-steps", "pipeline": pipeline, "sessions": len(sessions), "owner": owner}
    return engine.delete(SESSION_STEPS.name, where, metadata=metadata).deleted or 0


def _rank(step: tuple[int, bytes | None]) -> tuple[int, bool, bytes]:
    sequence, position = step
    return sequence, position is not None, position or b""
