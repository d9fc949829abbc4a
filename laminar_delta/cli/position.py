"""Where a pipeline is at one of its checkpoints: which one is meant, and how it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.cli.call import Call
from laminar_delta.cli.times import moment_of, parse_moment, when_saved
from laminar_delta.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from laminar_delta.catalog.pipeline import Pipeline
    from laminar_delta.model.manifest import CheckpointManifest


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
        "created_at": moment_of(manifest.timestamp_ms),
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


def print_position(call: Call, pipeline: str, manifest: CheckpointManifest, words: str = "") -> None:
    """Where a pipeline is, for people.

    Args:
        call: Where it is printed.
        pipeline: Its name.
        manifest: The checkpoint.
        words: What else is to be said of it.
    """
    print_head(call, pipeline, manifest, words)
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


def print_head(call: Call, pipeline: str, manifest: CheckpointManifest, words: str = "") -> None:
    """Which checkpoint it is, and of when."""
    call.out.line(
        f"{pipeline}: checkpoint {manifest.checkpoint_id}, epoch {manifest.epoch}, saved {when_saved(manifest.timestamp_ms)}"
        + (f" ({words})" if words else "")
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
