"""`ls`, `show`, `latest`, `diff`: where pipelines are, where they were, what one checkpoint holds and another does not."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import HEAD, OVERVIEW, POSITION, of_each
from laminar_delta.cli.options import At, CheckpointId, Limit, PipelineName, SomeCheckpoint, SomePipeline
from laminar_delta.cli.output import MOST_ROWS
from laminar_delta.cli.position import checkpoint_of, position_document, print_position
from laminar_delta.cli.registry import LOOK, command
from laminar_delta.cli.texts import ago, size
from laminar_delta.cli.times import moment_of
from laminar_delta.model.ranges import needed


@command(
    "ls",
    group=LOOK,
    fields={
        **of_each("pipelines", "without a pipeline: all there are, by name", OVERVIEW),
        "pipeline": "with a pipeline: its name",
        **of_each("checkpoints", "with a pipeline: the visible ones, newest first", HEAD),
    },
)
def ls(call: Call, pipeline: SomePipeline = None, limit: Limit = MOST_ROWS) -> None:
    """List pipelines and where they are, or one's checkpoints."""
    if pipeline is None:
        found = call.catalog().overview()
        call.out.json({"pipelines": found})
        call.out.table(
            ["pipeline", "latest", "saved", "state", "kept", "pinned", "sinks owed", "writer"],
            (
                [
                    one.pipeline,
                    one.latest_id,
                    ago(one.latest_at),
                    size(one.latest_size_bytes),
                    one.checkpoints,
                    one.pinned or None,
                    one.sinks_pending + one.sinks_failed or None,
                    one.owner if one.held else "",
                ]
                for one in found
            ),
            right=("latest", "state", "kept", "pinned", "sinks owed"),
            limit=limit,
        )
        if not found:
            call.out.line("The catalog is empty.")
        return
    chosen = call.pipeline(pipeline)
    standing = chosen.standing()
    listed = list(reversed(chosen.list()))
    heads: list[dict[str, Any]] = [
        {
            "checkpoint_id": head.checkpoint_id,
            "epoch": head.epoch,
            "created_at": moment_of(head.timestamp_ms),
            "generation": head.generation,
            "is_pinned": head.checkpoint_id in standing.pinned,
            "is_abandoned": head.checkpoint_id in standing.abandoned,
            "parent_id": head.parent_id,
            "needs": [f"{name}/{number}" for name, number in sorted(set(head.needs))],
        }
        for head in listed
    ]
    call.out.json({"pipeline": pipeline, "checkpoints": heads})
    call.out.table(
        ["checkpoint", "epoch", "saved (UTC)", "generation", "pinned", "abandoned", "needs"],
        (
            [
                head["checkpoint_id"],
                head["epoch"],
                head["created_at"],
                head["generation"],
                head["is_pinned"],
                head["is_abandoned"],
                needed(one.needs, pipeline),
            ]
            for one, head in zip(listed, heads, strict=True)
        ),
        right=("checkpoint", "epoch", "generation"),
        limit=limit,
    )


@command(
    "show",
    group=LOOK,
    fields={
        "pipeline": "name",
        "checkpoint_id": "id",
        "epoch": "epoch",
        "created_at": "when it was saved",
        "attempt_id": "attempt that was committed",
        "generation": "of the writer that saved it",
        "external_id": "what another system calls it",
        "is_pinned": "whether it is pinned",
        "is_retired": "whether it is retired: gone for readers, to be restored until removed",
        "is_abandoned": "whether a writer's recovery passed over it for good",
        "derived": "for a derived checkpoint `how`, `from_pipeline`, `from_id`, `over_id`, `reason`; else null",
        **of_each(
            "state",
            "operator state",
            {
                "operator": "name",
                "partition": "number",
                "length": "bytes of the whole state",
                "form": "`inline`, `full` or `delta`",
                "stored_in": "checkpoints that hold its bytes",
            },
        ),
        "manifest": "the manifest document, with the current statuses of its sinks",
    },
)
def show(call: Call, pipeline: PipelineName, checkpoint: SomeCheckpoint = None, at: At = None) -> None:
    """Show everything about one checkpoint.

    Offsets, watermarks, sinks, state, pins, where it comes from; the newest unless told which, or --at which time.
    """
    chosen = call.pipeline(pipeline)
    # A retired one is shown too, so not through `checkpoint_of` where its id is known.
    if checkpoint is None or at is not None:
        checkpoint = checkpoint_of(chosen, checkpoint, at).checkpoint_id
    found = chosen.describe(checkpoint)
    call.out.json({name: getattr(found, name) for name in found.__dataclass_fields__} if call.out.as_json else {})
    words = [word for word, told in (("pinned", found.is_pinned), ("retired", found.is_retired)) if told]
    if found.is_abandoned:
        words.append("abandoned")
    print_position(call, pipeline, found.manifest, ", ".join(words))
    if found.derived is not None:
        origin = found.derived
        call.out.line(f"Made by {origin.how} from {origin.from_pipeline} {origin.from_id}: {origin.reason}")
    if found.state:
        call.out.table(
            ["operator", "partition", "length", "form", "stored in"],
            (
                [part.operator, part.partition, size(part.length), part.form, ", ".join(map(str, part.stored_in))]
                for part in found.state
            ),
            title="State",
            right=("partition", "length"),
        )


@command("latest", group=LOOK, fields=POSITION)
def latest(call: Call, pipeline: PipelineName, at: At = None) -> None:
    """Say where a pipeline is, or was at some time.

    That is its newest checkpoint, or with --at the one that was its newest then.
    """
    manifest = checkpoint_of(call.pipeline(pipeline), None, at)
    call.out.json(position_document(pipeline, manifest))
    print_position(call, pipeline, manifest)


@command(
    "diff",
    group=LOOK,
    fields={
        "pipeline": "name",
        "before": "checkpoint that is compared",
        "other_pipeline": "pipeline of the other one",
        "after": "checkpoint it is compared to",
        **of_each(
            "changes",
            "what differs",
            {
                "kind": "`source`, `table`, `offset`, `watermark`, `sink`, `operator`, `inflight` or `field`",
                "name": "of the source, sink, operator or field",
                "detail": "what of it",
                "change": "`added`, `removed` or `changed`",
                "before": "value in the first",
                "after": "value in the second",
                "difference": "`after - before` where both are whole numbers",
            },
        ),
    },
)
def diff(
    call: Call,
    pipeline: PipelineName,
    before: CheckpointId,
    after: CheckpointId,
    other: Annotated[str | None, typer.Option(help="The pipeline of the second one.", show_default=False)] = None,
) -> None:
    """Compare two checkpoints.

    Offsets, watermarks, sinks, operator state, every other field.
    """
    found = call.pipeline(pipeline).diff(before, after, other_pipeline=other)
    call.out.json(found.to_dict())
    call.out.line(str(found))
