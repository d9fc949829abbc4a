"""`prune`, `restore`, `pin`, `unpin`, `orphans`, `maintain`: what stays, what goes, and what was left behind.

What cannot be taken back is only told until `--apply` is given, and then asked about, unless `--yes` is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import of_each
from laminar_delta.cli.options import Apply, CheckpointId, PipelineName, Reason, SomePipeline, SomeReason
from laminar_delta.cli.registry import KEEP, command
from laminar_delta.config import parse_duration
from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.catalog.maintenance import MaintenancePolicy, MaintenanceReport
    from laminar_delta.catalog.retention import RetentionPolicy

_DECIDED = {"pipeline": "name", "checkpoint_id": "id", "decision": "what was decided", "reason": "why"}


@command(
    "prune",
    group=KEEP,
    asks=True,
    fields={
        "applied": "whether it was done, or only told",
        **of_each(
            "pipelines",
            "what it comes to for each",
            {
                "pipeline": "name",
                "retire": "checkpoints that go",
                "keep": "those that stay: `checkpoint_id` and `reason`",
            },
        ),
    },
)
def prune(
    call: Call,
    pipeline: SomePipeline = None,
    keep_last: Annotated[int | None, typer.Option(min=0, help="Keep the newest so many.", show_default=False)] = None,
    keep_for: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Keep those younger than this, such as 7d.", show_default=False)
    ] = None,
    apply: Apply = False,
) -> None:
    """Tell what a policy lets go; --apply retires it.

    What is retired is gone for readers at once; `restore` brings it back until `maintain` removes it.
    """
    policy = _retention(call, keep_last, keep_for)
    catalog = call.catalog()
    chosen = [call.pipeline(pipeline)] if pipeline is not None else [catalog.pipeline(n) for n in catalog.pipelines()]
    plans = {one.name: one.prune(policy, dry_run=True) for one in chosen}
    going = {name: plan.retire for name, plan in plans.items() if plan.retire}
    if apply and going:
        call.out.confirm(f"This retires {_named(going)}.")
        plans |= {one.name: one.prune(policy, owner=call.settings.owner) for one in chosen if one.name in going}
    call.out.json(
        {
            "applied": apply,
            "pipelines": [{"pipeline": name, "retire": plan.retire, "keep": plan.keep} for name, plan in plans.items()],
        }
    )
    rows: list[list[object]] = []
    for name, plan in plans.items():
        rows += [[name, number, "retired" if apply else "would go", ""] for number in plan.retire]
        rows += [[name, kept.checkpoint_id, "stays", kept.reason] for kept in plan.keep]
    call.out.table(["pipeline", "checkpoint", "", "because"], rows, right=("checkpoint",))
    gone = sum(len(plan.retire) for plan in plans.values())
    call.out.line(f"{gone} retired." if apply else f"{gone} would go; nothing was changed: --apply does it.")


@command("restore", group=KEEP, fields=_DECIDED)
def restore(call: Call, pipeline: PipelineName, checkpoint: CheckpointId, reason: SomeReason = None) -> None:
    """Bring back a checkpoint that was retired.

    That is possible as long as maintenance has not removed it.
    """
    call.pipeline(pipeline).restore(checkpoint, reason=reason, owner=call.settings.owner)
    _decided(call, pipeline, checkpoint, "restored", reason, "is visible")


@command("pin", group=KEEP, fields=_DECIDED)
def pin(call: Call, pipeline: PipelineName, checkpoint: CheckpointId, reason: Reason) -> None:
    """Keep a checkpoint, whatever the policy says."""
    call.pipeline(pipeline).pin(checkpoint, reason=reason, owner=call.settings.owner)
    _decided(call, pipeline, checkpoint, "pinned", reason, "is pinned")


@command("unpin", group=KEEP, fields=_DECIDED)
def unpin(call: Call, pipeline: PipelineName, checkpoint: CheckpointId, reason: SomeReason = None) -> None:
    """Let retention decide on a checkpoint again."""
    chosen = call.pipeline(pipeline)
    chosen.describe(checkpoint)
    chosen.unpin(checkpoint, reason=reason, owner=call.settings.owner)
    _decided(call, pipeline, checkpoint, "released", reason, "is not pinned")


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
        "put_off": "per table or pipeline what others kept from being done; running it again does it",
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
    rows: list[list[object]] = [["checkpoints removed", name, _ids(ids)] for name, ids in report.removed.items()]
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


def _decided(call: Call, pipeline: str, checkpoint: int, word: str, reason: str | None, text: str) -> None:
    call.out.json({"pipeline": pipeline, "checkpoint_id": checkpoint, "decision": word, "reason": reason})
    call.out.line(f"Checkpoint {checkpoint} of {pipeline} {text}.")


def _retention(call: Call, keep_last: int | None, keep_for: str | None) -> RetentionPolicy:
    """The policy of the options; of the settings where they say nothing."""
    from laminar_delta.catalog.retention import RetentionPolicy

    given = keep_last is not None or keep_for is not None
    last = keep_last if given else call.settings.keep_last
    span = (None if keep_for is None else parse_duration(keep_for)) if given else call.settings.keep_for
    if last is None and span is None:
        raise InvalidInputError(
            "nothing says what to keep",
            expected="--keep-last or --keep-for",
            next_step="Give --keep-last or --keep-for, or set them under [retention] in the configuration.",
        )
    return RetentionPolicy(keep_last=last, keep_for_ms=None if span is None else int(span.total_seconds() * 1000))


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


def _named(going: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{_ids(numbers)} of {name!r}" for name, numbers in going.items())


def _deleted(report: MaintenanceReport) -> str:
    parts = [f"checkpoints {_named(report.removed)}"] if report.removed else []
    if report.progress:
        parts.append(f"{report.progress} rows of what streaming queries said of themselves")
    if report.vacuumed:
        parts.append(f"{sum(report.vacuumed.values())} files that no version needs any more")
    return " and ".join(parts)


def _ids(numbers: Sequence[int]) -> str:
    """Ids in few words: runs as `1-5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
