"""`prune`, `restore`, `pin`, `unpin`: which checkpoints stay, and which go.

What cannot be taken back is only told until `--apply` is given, and then asked about, unless `--yes` is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import of_each
from laminar_delta.cli.options import Apply, CheckpointId, PipelineName, Reason, SomePipeline, SomeReason
from laminar_delta.cli.registry import KEEP, command
from laminar_delta.config import parse_duration
from laminar_delta.errors import InvalidInputError
from laminar_delta.model.ranges import named

if TYPE_CHECKING:
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
        call.out.confirm(f"This retires {named(going)}.")
        plans |= {one.name: one.prune(policy, owner=call.settings.owner) for one in chosen if one.name in going}
    call.out.json(
        {
            "applied": apply,
            "pipelines": [{"pipeline": name, "retire": plan.retire, "keep": plan.keep} for name, plan in plans.items()],
        }
    )
    # What goes comes first, and is named below once more: a long list of what stays must not hide it.
    rows: list[list[object]] = [
        [name, number, "retired" if apply else "would go", ""] for name, plan in plans.items() for number in plan.retire
    ]
    rows += [[name, kept.checkpoint_id, "stays", kept.reason] for name, plan in plans.items() for kept in plan.keep]
    call.out.table(["pipeline", "checkpoint", "what", "because"], rows, right=("checkpoint",))
    gone = {name: plan.retire for name, plan in plans.items() if plan.retire}
    if not gone:
        call.out.line("Nothing was retired." if apply else "Nothing would go.")
    elif apply:
        call.out.line(f"Retired: {named(gone)}. `restore` brings one back until `maintain` has removed it.")
    else:
        call.out.line(f"Would go: {named(gone)}. Nothing was changed: --apply does it.")


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
