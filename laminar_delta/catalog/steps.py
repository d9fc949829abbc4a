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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.catalog.buffer import Buffer
from laminar_delta.catalog.clock import now
from laminar_delta.catalog.position_rows import RESULT, SOURCE
from laminar_delta.catalog.positions import Positions, read_positions
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.session_log import session_history
from laminar_delta.catalog.tables import SESSION_STEPS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row
    from laminar_delta.catalog.session_commit import SessionToken
    from laminar_delta.engine.base import Engine

CONFIG = "config"
"""The kind of a step that sets the config hash."""
CLEAR = "clear"
"""The kind of a step that removes everything first."""

_COLUMNS = ("kind", "source", "sequence", "position", "config_hash")
_SCHEMA = pa.schema([SESSION_STEPS.schema.field(name) for name in _COLUMNS])


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
    table = _as_table(rows)
    steps = Steps(rows=table.num_rows)
    for row in table.to_pylist():
        kind = SOURCE if row["kind"] is None else row["kind"]
        if kind == CLEAR:
            steps.cleared = True
        elif kind == CONFIG:
            _require(row, "config_hash")
            steps.config_hash = max(int(row["config_hash"]), steps.config_hash or 0)
        elif kind == RESULT:
            _require(row, "source", "sequence")
            steps.results[row["source"]] = max(row["sequence"], steps.results.get(row["source"], 0))
        elif kind == SOURCE:
            _require(row, "source", "sequence")
            found = row["sequence"], row["position"]
            known = steps.sources.get(row["source"])
            steps.sources[row["source"]] = found if known is None else max(known, found, key=_rank)
        else:
            raise InvalidInputError(
                f"{kind!r} is no kind of step", expected=[SOURCE, RESULT, CONFIG, CLEAR], found=kind
            )
    return steps


def write_steps(engine: Engine, token: SessionToken, rows: object, *, owner: str) -> int:
    """Stages steps for a session from any process: one append, visible to nobody but its commit. How many rows.

    Raises:
        InvalidInputError: A row is no step. Nothing was staged.
    """
    table = _as_table(rows)
    fold_steps(table).stage(Buffer(), Positions(pipeline=token.pipeline))
    common: Row = {
        "pipeline": token.pipeline,
        "session_id": token.session_id,
        "generation": token.generation,
        "staged_at": now(),
        "staged_by": owner,
    }
    staged = [
        {**row, "kind": row["kind"] or SOURCE, "source": row["source"] or "", **common} for row in table.to_pylist()
    ]
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
    return engine.read(SESSION_STEPS.name, columns=list(_COLUMNS), where=where)


def remove_steps(engine: Engine, pipeline: str, *, owner: str, dry_run: bool = False) -> int:
    """Removes the steps of a pipeline that no session commits any more. How many rows. No generation is needed, no clock asked.

    A session commits under the generation of the head row or not at all, so those of earlier ones are fenced off for good; of
    that generation's own only the committed ones are done with.
    """
    now = read_positions(Reading(engine), pipeline)
    done = {record.session_id for record in session_history(engine, pipeline)} | {now.session_id}
    found = Reading(engine).rows(
        SESSION_STEPS, where=col("pipeline").eq(pipeline), columns=["session_id", "generation"]
    )
    dead = [row["session_id"] for row in found if row["generation"] < now.generation or row["session_id"] in done]
    if not dead or dry_run:
        return len(dead)
    where = col("pipeline").eq(pipeline) & col("session_id").is_in(sorted(set(dead)))
    metadata = {"operation": "remove-steps", "pipeline": pipeline, "sessions": len(set(dead)), "owner": owner}
    return engine.delete(SESSION_STEPS.name, where, metadata=metadata).deleted or 0


def _rank(step: tuple[int, bytes | None]) -> tuple[int, bool, bytes]:
    sequence, position = step
    return sequence, position is not None, position or b""


def _require(row: Mapping[str, Any], *columns: str) -> None:
    missing = [name for name in columns if row[name] is None]
    if missing:
        raise InvalidInputError(
            f"a step of kind {row['kind'] or SOURCE!r} has no {missing[0]}", expected=missing[0], found=dict(row)
        )


def _check_whole_numbers(rows: list[Any]) -> None:
    """Arrow cuts off what is behind the point; a position that nobody was at is no step."""
    for row in rows:
        for name in ("sequence", "config_hash"):
            if isinstance(row, Mapping) and isinstance(row.get(name), float | bool):
                raise InvalidInputError(
                    f"the {name} of a step is no whole number", expected="an integer", found=str(row[name])
                )


def _check_columns(table: pa.Table) -> None:
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise InvalidInputError(f"a step has several columns {twice[0]!r}", expected=list(_COLUMNS), found=twice)
    if "config_hash" in table.column_names and pa.types.is_floating(table["config_hash"].type):
        raise InvalidInputError(
            "the config_hash of a step is no whole number", expected="integers", found=str(table["config_hash"].type)
        )


def _as_table(rows: Any) -> pa.Table:
    """Rows in the columns of a step; what is left out is null, what is unknown is refused."""
    if hasattr(rows, "toArrow"):  # a Spark DataFrame, known here by what it can do
        rows = rows.toArrow()
    try:
        if isinstance(rows, list):
            _check_whole_numbers(rows)
            unknown = {name for row in rows for name in row} - set(_COLUMNS)
            table = pa.Table.from_pylist(rows, schema=_SCHEMA)
        else:
            table = rows if isinstance(rows, pa.Table) else pa.table(rows)
            unknown = set(table.column_names) - set(_COLUMNS)
            _check_columns(table)
        if unknown:
            raise InvalidInputError(
                f"a step has no column {sorted(unknown)[0]!r}", expected=list(_COLUMNS), found=sorted(unknown)
            )
        columns = [
            table[name].cast(wanted.type) if name in table.column_names else pa.nulls(table.num_rows, wanted.type)
            for name, wanted in zip(_COLUMNS, _SCHEMA, strict=True)
        ]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"these are no steps: {error}", expected=str(_SCHEMA), found=type(rows).__name__
        ) from error
    return pa.table(columns, schema=_SCHEMA)
