"""`orphans`, `maintain`: what was left behind, and what nobody needs any more.

What cannot be taken back is only told until `--apply` is given, and then asked about, unless `--yes` is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import of_each
from laminar_delta.cli.options import Apply, SomePipeline
from laminar_delta.cli.registry import KEEP, command
from laminar_delta.config import parse_duration
from laminar_delta.model.ranges import named, ranges

if TYPE_CHECKING:
    from laminar_delta.catalog.maintenance import MaintenancePolicy, MaintenanceReport


@command(
    "orphans",
    group=KEEP,
    asks=True,
    fields={
        "applied": "whether they were removed, or only told",
        **of_each(
            "orphans",
            "attempts that never became checkpoints and never will",
            {
                "pipeline": "name",
                "checkpoint_id": "what it would have become",
                "attempt_id": "attempt",
                "generation": "of its writer",
            },
        ),
    },
)
def orphans(call: Call, pipeline: SomePipeline = None, apply: Apply = False) -> None:
    """Tell what failed attempts left; --apply removes it.

    Only what provably never becomes a checkpoint: attempts under way are not touched.
    """
    catalog = call.catalog()
    if pipeline is not None:
        chosen = [call.pipeline(pipeline)]
    else:
        chosen = [catalog.pipeline(one.pipeline) for one in catalog.overview()]
    found = {one.name: one.orphans() for one in chosen}
    count = sum(len(some) for some in found.values())
    if apply and count:
        names = ", ".join(repr(name) for name, some in found.items() if some)
        call.out.confirm(f"This deletes what {count} failed attempts of {names} left behind.")
        found = {one.name: one.remove_orphans(owner=call.settings.owner) for one in chosen if found[one.name]}
        count = sum(len(some) for some in found.values())
    rows = [
        {
            "pipeline": name,
            "checkpoint_id": orphan.checkpoint_id,
            "attempt_id": orphan.attempt_id,
            "generation": orphan.generation,
        }
        for name, some in found.items()
        for orphan in some
    ]
    call.out.json({"applied": apply, "orphans": rows})
    if rows:
        call.out.table(
            ["pipeline", "checkpoint", "attempt", "generation"],
            (list(row.values()) for row in rows),
            right=("checkpoint", "generation"),
        )
    if not rows:
        call.out.line("Nothing was left behind.")
    else:
        call.out.line(f"{count} removed." if apply else f"{count} found; nothing was changed: --apply removes them.")


@command(
    "maintain",
    group=KEEP,
    asks=True,
    fields={
        "applied": "whether it was done, or only told",
        "removed": "per pipeline the checkpoints whose rows go",
        "steps": "per pipeline how many steps of sessions that ended go",
        "progress": "how many rows of what streaming queries said of themselves go",
        "compacted": "per table how many commits are compacted",
        "vacuumed": "per table how many files are deleted",
        "put_off": "per table or pipeline what could not be done, and why; if others came in between, run it again",
    },
)
def maintain(
    call: Call,
    grace: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Since when a checkpoint must be retired to go.", show_default=False),
    ] = None,
    vacuum: Annotated[
        bool | None, typer.Option("--vacuum/--no-vacuum", help="Delete files no version needs.", show_default=False)
    ] = None,
    keep_progress_for: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN", help="How long what streaming queries said of themselves is kept.", show_default="for ever"
        ),
    ] = None,
    apply: Apply = False,
) -> None:
    """Tell what maintenance would do; --apply does it.

    Removes what was retired long enough ago, compacts, shortens the logs, deletes unused files. Run it daily.
    """
    policy = maintenance_policy(call, grace, vacuum=vacuum, keep_progress_for=keep_progress_for)
    catalog = call.catalog()
    with call.out.steps() as progress:
        report = catalog.maintain(policy, owner=call.settings.owner, dry_run=True, progress=progress)
    if apply:
        if report.removed or report.progress or report.vacuumed:
            call.out.confirm(f"This deletes {_deleted(report)} for good.")
        with call.out.steps() as progress:
            report = catalog.maintain(policy, owner=call.settings.owner, progress=progress)
    call.out.json(
        {
            "applied": apply,
            "removed": report.removed,
            "steps": report.steps,
            "progress": report.progress,
            "compacted": report.compacted,
            "vacuumed": report.vacuumed,
            "put_off": report.put_off,
        }
    )
    rows: list[list[object]] = [["checkpoints removed", name, ranges(ids)] for name, ids in report.removed.items()]
    rows += [["steps removed", name, count] for name, count in report.steps.items()]
    rows += [["rows removed", "query_progress", report.progress]] if report.progress else []
    rows += [["commits compacted", name, count] for name, count in report.compacted.items()]
    rows += [["files deleted", name, count] for name, count in report.vacuumed.items()]
    rows += [["put off", name, why] for name, why in report.put_off.items()]
    if rows:
        call.out.table(["what", "where", "how much"], rows)
    else:
        call.out.line("There is nothing to do.")
    if rows and not apply:
        call.out.line("Nothing was changed: --apply does it.")
    if report.put_off:
        call.finding()


def maintenance_policy(
    call: Call, grace: str | None = None, *, vacuum: bool | None = None, keep_progress_for: str | None = None
) -> MaintenancePolicy:
    """The policy of the options; of the settings, and then the defaults, where they say nothing."""
    from laminar_delta.catalog.maintenance import MaintenancePolicy

    wanted: dict[str, Any] = {
        "grace": call.settings.grace if grace is None else parse_duration(grace),
        "compact_after": call.settings.compact_after,
        "vacuum": call.settings.vacuum if vacuum is None else vacuum,
        "vacuum_after": call.settings.vacuum_after,
        "keep_progress_for": call.settings.keep_progress_for
        if keep_progress_for is None
        else parse_duration(keep_progress_for),
    }
    return MaintenancePolicy(**{name: value for name, value in wanted.items() if value is not None})


def _deleted(report: MaintenanceReport) -> str:
    parts = [f"checkpoints {named(report.removed)}"] if report.removed else []
    if report.progress:
        parts.append(f"{report.progress} rows of what streaming queries said of themselves")
    if report.vacuumed:
        parts.append(f"{sum(report.vacuumed.values())} files that no version needs any more")
    return " and ".join(parts)
