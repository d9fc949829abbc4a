"""`validate`, `recover`: is what is stored sound, and what would a restart go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import RECOVERY, of_each
from laminar_delta.cli.options import PipelineName
from laminar_delta.cli.registry import SAFETY, command
from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.model.report import RecoveryReport


@command(
    "validate",
    group=SAFETY,
    fields={
        "pipeline": "name",
        "valid": "whether all that were looked at can be used",
        **of_each(
            "checkpoints",
            "those that were looked at",
            {
                "checkpoint_id": "id",
                "valid": "whether recovery may use it",
                "findings": "what was noticed: `severity` (`info`, `warning`, `fatal`), `code`, `message`",
            },
        ),
    },
)
def validate(
    call: Call,
    pipeline: PipelineName,
    checkpoint: Annotated[
        list[int] | None,
        typer.Argument(min=0, metavar="[CHECKPOINT]...", help="Which; the newest by default.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All visible ones.")] = False,
) -> None:
    """Read checkpoints whole: can they be used?

    Every byte is read and held against its checksum. Exit code 1 if recovery could not use one.
    """
    chosen = call.pipeline(pipeline)
    if every and checkpoint:
        raise InvalidInputError("give checkpoints or --all, not both", expected="one of them", found="both")
    visible = [head.checkpoint_id for head in chosen.list()]
    numbers = list(checkpoint or (visible if every else visible[-1:]))
    results = []
    with call.out.progress("Reading") as progress:
        for done, number in enumerate(numbers):
            if progress is not None:
                progress(done, len(numbers))
            results.append(chosen.validate(number))
    sound = all(result.valid for result in results)
    call.out.json({"pipeline": pipeline, "valid": sound, "checkpoints": results})
    for result in results:
        call.out.line(
            f"{pipeline} {result.checkpoint_id}: " + ("valid" if result.valid else "cannot be used"),
            style="green" if result.valid else "red",
        )
        for finding in result.findings:
            call.out.line(f"  {finding.severity}: {finding.message}")
    if not results:
        call.out.line(f"{pipeline} has no checkpoint.")
    if not sound:
        call.finding()


@command(
    "recover",
    group=SAFETY,
    fields={
        **RECOVERY,
        **of_each(
            "recoveries", "with --past: those on record, newest first; the other fields are missing then", RECOVERY
        ),
    },
)
def recover(
    call: Call,
    pipeline: PipelineName,
    past: Annotated[bool, typer.Option("--past", help="Show the recoveries on record instead.")] = False,
    chose: Annotated[
        int | None, typer.Option(min=0, help="With --past: only those that chose this.", show_default=False)
    ] = None,
    accept_failed: Annotated[bool, typer.Option("--accept-failed", help="Also use one whose sink failed.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Keep the report in the catalog.")] = False,
) -> None:
    """Say where a restart would go on, and why there.

    The newest checkpoint that proves valid, and why newer ones are passed over. A running writer is not touched. With --past
    the recoveries on record are shown instead.
    """
    from laminar_delta.catalog.recovery import FailedSinks

    chosen = call.pipeline(pipeline)
    if past:
        reports = [report for report in chosen.recoveries() if chose is None or report.chosen_id == chose]
        call.out.json({"recoveries": reports})
        for report in reports:
            _print(call, report)
        if not reports:
            call.out.line(
                f"No recovery of {pipeline} is on record" + (f" that chose {chose}." if chose is not None else ".")
            )
        return
    report = chosen.recover(
        failed_sinks=FailedSinks.ACCEPT if accept_failed else FailedSinks.SKIP,
        dry_run=not record,
        owner=call.settings.owner,
    )
    call.out.json(report.to_dict())
    _print(call, report)
    if report.chosen_id is None and not report.is_fresh_start:
        call.finding()


def _print(call: Call, report: RecoveryReport) -> None:
    import datetime as dt

    when = dt.datetime.fromtimestamp(report.started_at_ms / 1000, dt.timezone.utc)
    by = "" if report.generation is None else f", under generation {report.generation}"
    if report.is_fresh_start:
        call.out.line(f"{report.pipeline}: nothing to recover from: a fresh start.")
    elif report.chosen_id is None:
        call.out.line(f"{report.pipeline}: none of {report.examined} checkpoints can be used.", style="red")
    else:
        verb = "would go on" if report.dry_run else "goes on"
        call.out.line(
            f"{report.pipeline} {verb} from checkpoint {report.chosen_id} ({when:%Y-%m-%d %H:%M:%S} UTC{by}).",
            style="green",
        )
    if report.skipped:
        call.out.table(
            ["passed over", "because"],
            ([skipped.checkpoint_id, skipped.reason] for skipped in report.skipped),
            right=("passed over",),
        )
    for healed in report.healed:
        call.out.line(
            f"Healed: {healed.table} of checkpoint {healed.checkpoint_id} from version {healed.version}: {healed.reason}"
        )
    for note in report.notes:
        call.out.line(f"Note: {note}")
