"""`offsets get|set|undo`, `rewind`, `fork`: new checkpoints made from old ones.

Without `--apply` they are worked out and shown, which needs no generation: a running writer does not notice the question. With
it the pipeline's generation is taken; where a writer holds it, that is refused unless `--takeover` is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import DERIVED, POSITION
from laminar_delta.cli.options import (
    AcceptUndelivered,
    Apply,
    At,
    CheckpointId,
    PipelineName,
    Reason,
    SomeCheckpoint,
    Takeover,
)
from laminar_delta.cli.position import checkpoint_of, position_document, print_head, print_offsets
from laminar_delta.cli.registry import MOVE, command
from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from laminar_delta.catalog.derive import Derived
    from laminar_delta.catalog.writer import Writer


@command("offsets get", group=MOVE, fields=POSITION)
def offsets_get(call: Call, pipeline: PipelineName, checkpoint: SomeCheckpoint = None, at: At = None) -> None:
    """Show the offsets, now or at some time."""
    manifest = checkpoint_of(call.pipeline(pipeline), checkpoint, at)
    call.out.json(position_document(pipeline, manifest))
    print_head(call, pipeline, manifest)
    print_offsets(call, manifest)


@command("offsets set", group=MOVE, fields=DERIVED, asks=True)
def offsets_set(
    call: Call,
    pipeline: PipelineName,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source to move.")],
    offsets: Annotated[
        list[str], typer.Argument(metavar="PARTITION=OFFSET...", help="New offsets; PARTITION= takes a partition out.")
    ],
    reason: Reason,
    checkpoint: Annotated[
        int | None, typer.Option(min=0, help="Start from this one, not the newest.", show_default=False)
    ] = None,
    accept_undelivered: AcceptUndelivered = False,
    takeover: Takeover = False,
    apply: Apply = False,
) -> None:
    """Move a source; --apply does it.

    A new checkpoint like the newest, but with these offsets, becomes the newest. `offsets undo` takes it back.
    """
    edits = {source: _edits(offsets)}
    told = call.pipeline(pipeline).preview(
        "edit", checkpoint, reason=reason, edits=edits, accept_undelivered=accept_undelivered
    )

    def make(writer: Writer) -> Derived:
        # From the very checkpoint that was shown and agreed to, also if there is a newer one by now.
        return writer.edit_offsets(
            edits, reason=reason, checkpoint_id=told.from_id, accept_undelivered=accept_undelivered
        )

    _derive(call, pipeline, told, make, reason, apply=apply, takeover=takeover)


@command("offsets undo", group=MOVE, fields=DERIVED, asks=True)
def offsets_undo(
    call: Call,
    pipeline: PipelineName,
    reason: Reason,
    accept_undelivered: AcceptUndelivered = False,
    takeover: Takeover = False,
    apply: Apply = False,
) -> None:
    """Take back the last move; --apply does it.

    The newest checkpoint must be one that `offsets set`, `rewind` or `fork` made.
    """
    told = call.pipeline(pipeline).preview("undo", reason=reason, accept_undelivered=accept_undelivered)

    def make(writer: Writer) -> Derived:
        return writer.undo(reason=reason, accept_undelivered=accept_undelivered)

    _derive(call, pipeline, told, make, reason, apply=apply, takeover=takeover)


@command("rewind", group=MOVE, fields=DERIVED, asks=True)
def rewind(
    call: Call,
    pipeline: PipelineName,
    checkpoint: CheckpointId,
    reason: Reason,
    accept_undelivered: AcceptUndelivered = False,
    takeover: Takeover = False,
    apply: Apply = False,
) -> None:
    """Go back to an earlier checkpoint; --apply does it.

    A new checkpoint with its content becomes the newest. Nothing in between is lost.
    """
    told = call.pipeline(pipeline).preview("rewind", checkpoint, reason=reason, accept_undelivered=accept_undelivered)

    def make(writer: Writer) -> Derived:
        return writer.rewind(checkpoint, reason=reason, accept_undelivered=accept_undelivered)

    _derive(call, pipeline, told, make, reason, apply=apply, takeover=takeover)


@command("fork", group=MOVE, fields=DERIVED, asks=True)
def fork(
    call: Call,
    origin: Annotated[str, typer.Argument(metavar="FROM", help="The pipeline to start from.")],
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline to start.")],
    reason: Reason,
    checkpoint: Annotated[
        int | None, typer.Option(min=0, help="Of FROM; the newest by default.", show_default=False)
    ] = None,
    takeover: Takeover = False,
    apply: Apply = False,
) -> None:
    """Start a pipeline from another's checkpoint.

    State is used where it is, and the other pipeline goes on unhindered. --apply does it.
    """
    call.pipeline(origin)
    told = call.catalog().pipeline(pipeline).preview("fork", checkpoint, reason=reason, from_pipeline=origin)

    def make(writer: Writer) -> Derived:
        return writer.fork(origin, told.from_id, reason=reason)

    _derive(call, pipeline, told, make, reason, apply=apply, takeover=takeover)


def _derive(
    call: Call,
    pipeline: str,
    told: Derived,
    make: Callable[[Writer], Derived],
    reason: str,
    *,
    apply: bool,
    takeover: bool,
) -> None:
    from laminar_delta.catalog.diff import offset_changes
    from laminar_delta.model.manifest import CheckpointManifest

    catalog = call.catalog()
    newest = catalog.pipeline(pipeline).latest()
    changes = list(offset_changes(newest or CheckpointManifest.new(0, 0, 0), told.manifest))
    if apply:
        over = "" if told.over_id is None else f" over checkpoint {told.over_id}"
        call.out.confirm(
            f"This makes checkpoint {told.from_id} of {told.from_pipeline!r} the newest of {pipeline!r}{over}"
            f", with {len(changes)} changes to its sources."
        )
        with catalog.writer(pipeline, owner=call.settings.owner, reason=reason, takeover=takeover) as writer:
            told = make(writer)
    call.out.json(
        {
            "applied": apply,
            "pipeline": pipeline,
            "how": told.how,
            "checkpoint_id": told.checkpoint_id,
            "from_pipeline": told.from_pipeline,
            "from_id": told.from_id,
            "over_id": told.over_id,
            "changes": changes,
        }
    )
    verb = "is" if apply else "would be"
    call.out.line(
        f"Checkpoint {told.checkpoint_id} of {pipeline} {verb} made from {told.from_id} of {told.from_pipeline} ({told.how})."
    )
    if changes:
        call.out.table(
            ["source", "what", "now", "then", "by"],
            # Of a source that comes or goes the epoch is told, and then its offsets.
            (
                [one.name, "epoch" if one.detail is None else one.detail, one.before, one.after, one.difference]
                for one in changes
            ),
            right=("now", "then", "by"),
        )
    else:
        call.out.line("Its sources are where those of the newest checkpoint were.")
    if not apply:
        call.out.line("Nothing was changed: --apply does it.")


def _edits(texts: list[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in texts:
        partition, equals, offset = text.rpartition("=")
        if not equals or not partition:
            raise InvalidInputError(
                f"{text!r} is not PARTITION=OFFSET",
                expected="PARTITION=OFFSET",
                found=text,
                next_step="Write 0=1500, for example.",
            )
        found[partition] = offset or None
    return found
