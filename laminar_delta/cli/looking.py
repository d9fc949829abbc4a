"""`ls`, `show`, `latest`, `history`, `audit`, `diff`: where pipelines are, where they were, what happened to them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import HEAD, OVERVIEW, POSITION, of_each
from laminar_delta.cli.options import At, CheckpointId, Limit, PipelineName, SomeCheckpoint, SomePipeline
from laminar_delta.cli.output import MOST_ROWS, ago, size
from laminar_delta.cli.registry import LOOK, command
from laminar_delta.cli.times import parse_moment, when_saved
from laminar_delta.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from laminar_delta.catalog.pipeline import Pipeline
    from laminar_delta.model.manifest import CheckpointManifest


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
            ["pipeline", "latest", "epoch", "saved", "state", "kept", "pinned", "sinks owed", "writer"],
            (
                [
                    one.pipeline,
                    one.latest_id,
                    one.latest_epoch,
                    ago(one.latest_at),
                    size(one.latest_size_bytes),
                    one.checkpoints,
                    one.pinned or None,
                    one.sinks_pending + one.sinks_failed or None,
                    f"{one.owner} (generation {one.generation})" if one.held else "",
                ]
                for one in found
            ),
            right=("latest", "epoch", "state", "kept", "pinned", "sinks owed"),
            most=limit,
        )
        if not found:
            call.out.line("The catalog is empty.")
        return
    chosen = call.pipeline(pipeline)
    standing = chosen.standing()
    heads: list[dict[str, Any]] = [
        {
            "checkpoint_id": head.checkpoint_id,
            "epoch": head.epoch,
            "created_at": _moment(head.timestamp_ms),
            "generation": head.generation,
            "is_pinned": head.checkpoint_id in standing.pinned,
            "is_abandoned": head.checkpoint_id in standing.abandoned,
            "parent_id": head.parent_id,
            "needs": sorted({f"{name}/{number}" for name, number in head.needs}),
        }
        for head in reversed(chosen.list())
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
                ", ".join(_short(pipeline, needed) for needed in head["needs"]),
            ]
            for head in heads
        ),
        right=("checkpoint", "epoch", "generation"),
        most=limit,
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
    found = chosen.describe(checkpoint_of(chosen, checkpoint, at).checkpoint_id if checkpoint is None else checkpoint)
    call.out.json({name: getattr(found, name) for name in found.__dataclass_fields__} if call.out.as_json else {})
    words = [word for word, told in (("pinned", found.is_pinned), ("retired", found.is_retired)) if told]
    if found.is_abandoned:
        words.append("abandoned")
    _print_position(call, pipeline, found.manifest, ", ".join(words))
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
    _print_position(call, pipeline, manifest, "")


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
    first, last = since and parse_moment(since), until and parse_moment(until)
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
        most=limit,
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
            "at": _moment(entry.timestamp_ms),
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
        most=limit,
    )


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


def checkpoint_of(pipeline: Pipeline, checkpoint: int | None, at: str | None) -> CheckpointManifest:
    """The checkpoint that is meant: by its id, by a time, or the newest. Raises `NotFoundError` when there is none."""
    if checkpoint is not None and at is not None:
        raise InvalidInputError("give a checkpoint or a time, not both", expected="one of them", found="both")
    if checkpoint is not None:
        return pipeline.get(checkpoint)
    found = pipeline.latest() if at is None else pipeline.at(parse_moment(at))
    if found is None:
        when = "" if at is None else f" as old as {at}"
        raise NotFoundError(
            f"pipeline {pipeline.name!r} has no checkpoint{when}",
            next_step=f"See `laminar-delta history {pipeline.name}` for what it had.",
        )
    return found


def position_document(pipeline: str, manifest: CheckpointManifest) -> dict[str, object]:
    """Where a pipeline is at a checkpoint, as JSON."""
    return {
        "pipeline": pipeline,
        "checkpoint_id": manifest.checkpoint_id,
        "epoch": manifest.epoch,
        "created_at": _moment(manifest.timestamp_ms),
        "watermark": manifest.watermark,
        "sources": {
            name: {"offsets": source.offsets, "epoch": source.epoch, "watermark": manifest.source_watermarks.get(name)}
            for name, source in sorted(manifest.source_offsets.items())
        },
        "sinks": {
            name: {"status": status.kind.value, "error": status.message}
            for name, status in sorted(manifest.sink_commit_statuses.items())
        },
    }


def _print_position(call: Call, pipeline: str, manifest: CheckpointManifest, words: str) -> None:
    call.out.line(
        f"{pipeline}: checkpoint {manifest.checkpoint_id}, epoch {manifest.epoch}, saved {when_saved(manifest.timestamp_ms)}"
        + (f" ({words})" if words else "")
    )
    if manifest.watermark is not None:
        call.out.line(f"Watermark {manifest.watermark}")
    print_offsets(call, manifest)
    if manifest.sink_commit_statuses:
        call.out.table(
            ["sink", "epoch", "status", "error"],
            (
                [name, manifest.sink_epochs.get(name), status.kind.value, status.message]
                for name, status in sorted(manifest.sink_commit_statuses.items())
            ),
            title="Sinks",
            right=("epoch",),
        )


def print_offsets(call: Call, manifest: CheckpointManifest) -> None:
    """The offsets of a checkpoint as a table."""
    rows = [
        [name, partition, offset, manifest.source_watermarks.get(name)]
        for name, source in sorted(manifest.source_offsets.items())
        for partition, offset in sorted(source.offsets.items()) or [("", "")]
    ]
    if rows:
        call.out.table(
            ["source", "partition", "offset", "watermark"], rows, title="Sources", right=("offset", "watermark")
        )


def _moment(timestamp_ms: int) -> dt.datetime | None:
    from laminar_delta.catalog.rows import created_at

    return created_at(timestamp_ms)


def _short(pipeline: str, needed: str) -> str:
    return needed.removeprefix(f"{pipeline}/")
