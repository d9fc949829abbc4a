"""Whether what a caller hands in is what a checkpoint already holds, and what of it is news.

A caller keeps its own copy of the manifest it saved. The copy lacks what the save filled in, the state's checksum and size, and
the statuses that others recorded meanwhile. What the copy does not say is no difference: it never takes anything away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from laminar_delta.errors import ConflictError
from laminar_delta.model.status import SinkCommitKind

if TYPE_CHECKING:
    from laminar_delta.model import CheckpointManifest, SinkCommitStatus


def check_same(pipeline: str, manifest: CheckpointManifest, stored: CheckpointManifest) -> None:
    """Raises `ConflictError`, naming the fields, when a manifest says something else than the stored one.

    When it was made, and how far its sinks are, does not make it another checkpoint.
    """
    alike = replace(
        manifest,
        timestamp_ms=stored.timestamp_ms,
        sink_commit_statuses=stored.sink_commit_statuses,
        state_checksum=stored.state_checksum if manifest.state_checksum is None else manifest.state_checksum,
        size_bytes=manifest.size_bytes or stored.size_bytes,
    )
    if alike == stored:
        return
    given, kept = alike.to_dict(), stored.to_dict()
    changed = [name for name in kept if given[name] != kept[name]]
    raise ConflictError(
        f"checkpoint {stored.checkpoint_id} of pipeline {pipeline!r} is committed with another {', '.join(changed)}",
        expected={name: given[name] for name in changed},
        found={name: kept[name] for name in changed},
        next_step="Save other content under another id; only sink statuses of a checkpoint can change.",
    )


def news(given: Mapping[str, SinkCommitStatus], current: Mapping[str, SinkCommitStatus]) -> dict[str, SinkCommitStatus]:
    """The statuses worth recording: Committed stands for good, and Pending in an old copy does not undo what came since."""
    return {
        sink: status
        for sink, status in given.items()
        if status != current.get(sink)
        and not (sink in current and (status.kind is SinkCommitKind.PENDING or current[sink].is_committed))
    }
