"""`history`, `audit`: what happened to a pipeline, and what was committed to the tables."""

from __future__ import annotations

from typing import Annotated

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import of_each
from laminar_delta.cli.options import Limit, PipelineName, SomePipeline
from laminar_delta.cli.output import MOST_ROWS
from laminar_delta.cli.registry import LOOK, command
from laminar_delta.cli.times import moment_of, parse_moment
from laminar_delta.errors import InvalidInputError


@command(
    "history",
    group=LOOK,
    fields={
        "pipeline": "name",
        **of_each(
            "events",
            "what happened, newest first",
            {
                "at": "when, by the clock of whoever did it",
                "kind": "`saved`, `derived`, `sink`, `decision`, `recovery`, `takeover` or `release`",
                "checkpoint_id": "checkpoint it is about",
                "what": "in words",
                "generation": "of the writer",
                "owner": "who",
                "reason": "why",
            },
        ),
    },
)
def history(
    call: Call,
    pipeline: PipelineName,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; can be given several times.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Not what was before.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Not what came after.", show_default=False)] = None,
    limit: Limit = MOST_ROWS,
) -> None:
    """Tell what happened to a pipeline, newest first.

    Saves, deliveries, pins and other decisions, recoveries and why they chose, takeovers.
    """
    from laminar_delta.catalog.timeline import KINDS

    unknown = sorted(set(kind or ()) - set(KINDS))
    if unknown:
        raise InvalidInputError(
            f"there is no kind {unknown[0]!r}",
            expected=KINDS,
            found=unknown,
            next_step=f"There are: {', '.join(KINDS)}.",
        )
    first = None if since is None else parse_moment(since)
    last = None if until is None else parse_moment(until)
    if first and last and first > last:
        raise InvalidInputError(
            f"--since {first:%Y-%m-%d %H:%M:%S} UTC is after --until {last:%Y-%m-%d %H:%M:%S} UTC",
            expected="a time before --until",
            found=since,
            next_step="Give both with their dates: a time of day alone is the last time it was that late.",
        )
    found = [
        one
        for one in reversed(call.pipeline(pipeline).timeline())
        if (not kind or one.kind in kind)
        and (not first or (one.at is not None and one.at >= first))
        and (not last or (one.at is not None and one.at <= last))
    ]
    call.out.json({"pipeline": pipeline, "events": found})
    if not found:
        asked = (" of that kind" if kind else "", " in that time" if since or until else "")
        call.out.line(f"Nothing{asked[0]} happened to {pipeline}{asked[1]}.")
        return
    call.out.table(
        ["when (UTC)", "what", "why", "who", "generation"],
        ([one.at, one.what, one.reason, one.owner, one.generation] for one in found),
        right=("generation",),
        limit=limit,
    )


@command(
    "audit",
    group=LOOK,
    fields=of_each(
        "commits",
        "commits of all tables as far back as their logs reach, newest first",
        {
            "at": "when",
            "table": "which table",
            "version": "the table version it made",
            "operation": "what for; Delta's own word where the commit does not say",
            "pipeline": "whose",
            "checkpoint_id": "about which checkpoint",
            "attempt_id": "under which attempt",
            "generation": "of which writer",
            "owner": "by whom",
            "reason": "why",
        },
    ),
)
def audit(
    call: Call,
    pipeline: SomePipeline = None,
    table: Annotated[str | None, typer.Option(help="Only commits to this table.", show_default=False)] = None,
    limit: Limit = MOST_ROWS,
) -> None:
    """List the commits: who changed what, when and why."""
    from laminar_delta.catalog.tables import BY_NAME

    if table is not None and table not in BY_NAME:
        raise InvalidInputError(
            f"the catalog has no table {table!r}",
            expected=sorted(BY_NAME),
            found=table,
            next_step=f"There are: {', '.join(sorted(BY_NAME))}.",
        )
    if pipeline is not None:
        call.pipeline(pipeline)
    found = [
        {
            "at": moment_of(entry.timestamp_ms),
            "table": entry.table,
            "version": entry.version,
            "operation": entry.operation,
            "pipeline": entry.pipeline,
            "checkpoint_id": entry.checkpoint_id,
            "attempt_id": entry.attempt_id,
            "generation": entry.generation,
            "owner": entry.owner,
            "reason": entry.reason,
        }
        for entry in call.catalog().audit(pipeline=pipeline)
        if table is None or entry.table == table
    ]
    call.out.json({"commits": found})
    columns = ["at", "table", "version", "operation", "pipeline", "checkpoint_id", "owner", "reason"]
    call.out.table(
        ["when (UTC)", "table", "version", "operation", "pipeline", "checkpoint", "who", "why"],
        ([entry[name] for name in columns] for entry in found),
        right=("version", "checkpoint"),
        limit=limit,
    )
