"""`sql`, `usage`, `metrics`: questions over everything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import OVERVIEW, of_each
from laminar_delta.cli.options import At, Limit
from laminar_delta.cli.output import MOST_ROWS
from laminar_delta.cli.registry import LOOK, SAFETY, command
from laminar_delta.cli.texts import size
from laminar_delta.cli.times import parse_moment
from laminar_delta.errors import InvalidInputError, LaminarDeltaError

_USAGE = {
    "pipeline": "name",
    "live_bytes": "of checkpoints that are visible, or that visible ones need",
    "pinned_bytes": "of that, what pinned checkpoints are or need",
    "reclaimable_bytes": "of checkpoints that are retired and needed by nobody",
    "staged_bytes": "under ids that no checkpoint has: being saved, or left behind",
}


@command(
    "sql",
    group=LOOK,
    fields={
        **of_each("columns", "of the answer", {"name": "name", "type": "Arrow type"}),
        "rows": "objects by column; times as ISO 8601, bytes as base64",
    },
)
def sql(
    call: Call,
    query: Annotated[
        str | None,
        typer.Argument(metavar="[QUERY]", help="One SELECT; - reads it from standard input.", show_default=False),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the query from this file.", show_default=False)] = None,
    at: At = None,
    limit: Limit = MOST_ROWS,
) -> None:
    """Ask in SQL over views and tables; see docs/sql.md.

    With --at the catalog is asked as it was then, as far back as its logs reach.
    """
    text = _query(query, file)
    catalog = call.catalog()
    if at is not None:
        catalog = catalog.as_of(timestamp_ms=int(parse_moment(at).timestamp() * 1000))
    answer = catalog.sql(text)
    rows = answer.to_pylist()
    columns = [{"name": field.name, "type": str(field.type)} for field in answer.schema]
    call.out.json({"columns": columns, "rows": rows})
    call.out.table(answer.column_names, (list(row.values()) for row in rows), limit=limit)


@command(
    "usage",
    group=LOOK,
    fields={
        **of_each("pipelines", "what the operator state of each takes", _USAGE),
        **of_each(
            "tables",
            "what the newest version of each takes",
            {"table": "name", "files": "how many", "size_bytes": "together"},
        ),
    },
)
def usage(call: Call) -> None:
    """Say how much storage is live, pinned, reclaimable.

    What is reclaimable is given back by `maintain`.
    """
    found = call.catalog().usage()
    call.out.json({"pipelines": found.pipelines, "tables": found.tables})
    call.out.table(
        ["pipeline", "live", "of it pinned", "reclaimable", "staged"],
        (
            [
                one.pipeline,
                size(one.live_bytes),
                size(one.pinned_bytes),
                size(one.reclaimable_bytes),
                size(one.staged_bytes),
            ]
            for one in found.pipelines
        ),
        title="Operator state by pipeline",
        right=("live", "of it pinned", "reclaimable", "staged"),
        most=None,
    )
    call.out.table(
        ["table", "files", "bytes"],
        ([one.table, one.files, size(one.size_bytes)] for one in found.tables),
        title="Tables, newest version",
        right=("files", "bytes"),
        most=None,
    )


@command(
    "metrics",
    group=SAFETY,
    fields={
        **of_each("pipelines", "the same facts as `ls`", OVERVIEW),
        **of_each("usage", "the same facts as `usage`", _USAGE),
        **of_each(
            "invalid",
            "with --validate: newest checkpoints that are damaged",
            {"pipeline": "name", "checkpoint_id": "id"},
        ),
    },
)
def metrics(
    call: Call,
    validate: Annotated[bool, typer.Option("--validate", help="Also read each newest checkpoint whole.")] = False,
) -> None:
    """Print metrics for Prometheus; see conf/alerts.yml.

    Age, counts, sizes, generations, sinks, recoveries, damage.
    """
    from laminar_delta.cli.prometheus import DOWN, render

    try:
        catalog = call.catalog()
        found, used = catalog.overview(), catalog.usage().pipelines
        looked_at = {one.pipeline: one.latest_id for one in found if validate and one.latest_id is not None}
        invalid = {
            name: number for name, number in looked_at.items() if not catalog.pipeline(name).validate(number).valid
        }
    except LaminarDeltaError:
        if not call.out.as_json:
            # What scrapes this sees that there is no answer, and not only that there are no samples.
            typer.echo(DOWN, nl=False)
        raise
    call.out.json(
        {
            "pipelines": found,
            "usage": used,
            "invalid": [{"pipeline": name, "checkpoint_id": number} for name, number in invalid.items()],
        }
    )
    if not call.out.as_json:
        typer.echo(render(found, used, looked_at, invalid), nl=False)
    if invalid:
        call.finding()


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise InvalidInputError(
            "give a query or --file",
            expected="one of them",
            next_step="For example: laminar-delta sql 'SELECT pipeline, checkpoint_id FROM latest_checkpoints'.",
        )
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(
                f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
            ) from error
    return sys.stdin.read() if query == "-" else str(query)
