"""`validate`, `recover`: is what is stored sound, and what would a restart go on from."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import RECOVERY, of_each
from laminar_delta.cli.options import PipelineName
from laminar_delta.cli.registry import SAFETY, command
from laminar_delta.cli.times import when_saved
from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.model.report import RecoveryReport


@command(
    "validate",
    group=SAFETY,
    fields={
        "pipeline": "name",
        "valid": "whether all that were looked at are intact",
        **of_each(
            "checkpoints",
            "those that were looked at",
            {
                "checkpoint_id": "id",
                "valid": "whether it is intact: all of it is there, as it was saved",
                "passed_over": "why recovery passes over it although it is intact; null when it does not",
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
    """Read checkpoints whole: are they intact?

    Every byte is read and held against its checksum; exit code 1 if one is damaged. An intact one that recovery passes over,
    because a sink does not have it, is told as such.
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
        told, style = ("intact", "green") if result.valid else ("damaged", "red")
        if result.passed_over is not None:
            told, style = f"intact, but {result.passed_over}, so recovery passes over it", "yellow"
        call.out.line(f"{pipeline} {result.checkpoint_id}: {told}", style=style)
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
        int | None,
        typer.Option(min=0, help="Only those on record that chose this; implies --past.", show_default=False),
    ] = None,
    accept_failed: Annotated[bool, typer.Option("--accept-failed", help="Also use one whose sink failed.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Keep the report in the catalog.")] = False,
) -> None:
    """Say where a restart would go on, and why there.

    The newest checkpoint that proves valid, and why newer ones are passed over. A running writer is not touched. With --past
    the recoveries on record are shown instead.
    """
    from laminar_delta.catalog.choosing import FailedSinks

    if past or chose is not None:
        new = [option for option, given in (("--record", record), ("--accept-failed", accept_failed)) if given]
        if new:
            raise InvalidInputError(
                f"{new[0]} is for a new recovery, --past and --chose show those on record",
                expected="one of them",
                found="both",
            )
        chosen = call.pipeline(pipeline)
        reports = [report for report in chosen.recoveries() if chose is None or report.chosen_id == chose]
        call.out.json({"recoveries": reports})
        for report in reports:
            _print(call, report, past=True)
        if not reports:
            call.out.line(
                f"No recovery of {pipeline} is on record"
                + (f" that chose {chose}; --past shows those there are." if chose is not None else ".")
            )
        return
    report = call.pipeline(pipeline).recover(
        failed_sinks=FailedSinks.ACCEPT if accept_failed else FailedSinks.SKIP,
        dry_run=not record,
        owner=call.settings.owner,
    )
    call.out.json(report.to_dict())
    _print(call, report, past=False)
    if report.chosen_id is None and not report.is_fresh_start:
        call.finding()


def _print(call: Call, report: RecoveryReport, *, past: bool) -> None:
    if past:
        line, style = _chose(report), None
    elif report.is_fresh_start:
        line, style = f"{report.pipeline}: nothing to recover from: a fresh start.", None
    elif report.manifest is None:
        line, style = f"{report.pipeline}: none of {report.examined} checkpoints can be used.", "red"
    else:
        saved = when_saved(report.manifest.timestamp_ms)
        line = f"{report.pipeline} would go on from checkpoint {report.chosen_id}, saved {saved}: {_why(report)}."
        style = "green"
    call.out.line(line, style=style)
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


def _why(report: RecoveryReport) -> str:
    """Why recovery chose what it chose, in a few words; a table says more of each that it passed over."""
    if not report.skipped:
        return "it is the newest, and valid"
    return f"the newest of {report.examined} that can be used"


def _chose(report: RecoveryReport) -> str:
    """What a recovery on record did, and when: its checkpoint may be much older, and gone."""
    when = dt.datetime.fromtimestamp(report.started_at_ms / 1000, dt.timezone.utc)
    if report.is_fresh_start:
        did = "found nothing: a fresh start"
    elif report.chosen_id is None:
        did = f"could use none of {report.examined}"
    else:
        did = f"chose {report.chosen_id}"
    by = "" if report.generation is None else f", under generation {report.generation}"
    return f"On {when:%Y-%m-%d %H:%M:%S} UTC {report.pipeline} {did}{by}."
