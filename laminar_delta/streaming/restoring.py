"""Making a checkpoint directory for Spark from a checkpoint, so that a query goes on right after it.

The batch is written as planned and committed; Spark begins the one after. Nothing but what Spark needs for that is written:
the last two entries of the offset log, the commit, what the sources noted, and the files of the state. A batch after it that
was begun and not delivered is written as planned too: some sink may have it, and it must not come to them with other records.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laminar_delta.engine.local.durability import fsync_path, make_directory
from laminar_delta.engine.local.swapping import swap
from laminar_delta.errors import ConflictError, ErrorCode, NotFoundError
from laminar_delta.interop.place import Limits, Place
from laminar_delta.interop.sparkdir.archive import unpack
from laminar_delta.interop.sparkdir.source import RESTORED, STORE
from laminar_delta.interop.writing import Output
from laminar_delta.model import new_attempt_id
from laminar_delta.streaming.finding import find_batch, find_captured

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow.fs import FileSystem

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.streaming.kept import KeptBatch

MAY_HAVE_MORE = (
    "the query keeps its id, and what it began after this batch was not captured: a sink that goes by id and number, as "
    "Delta's streaming sink does, skips the next batch without a word if it has one of that number, and that may have had "
    "fewer records. If so, take the sink back to this batch and say new_query=True"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredCheckpoint:
    """A checkpoint directory that was made, or would be."""

    location: str
    pipeline: str
    checkpoint_id: int
    batch_id: int
    """The batch it stands behind: the next one is the first that runs."""
    query_id: str
    is_new_query: bool
    """Whether the query goes on under an id of its own: then no sink takes its batches for ones it has already."""
    unfinished_batch_id: int | None = None
    """The next one, where it was begun and not delivered: it stands there as it was planned, and the query runs it again."""
    files: int
    state_files: int
    replaced: str | None = None
    """Where the directory is now that was there before."""
    notes: tuple[str, ...] = ()
    dry_run: bool = False


def restore_spark_checkpoint(
    catalog: Catalog,
    pipeline: str,
    checkpoint_id: int,
    location: str | Path,
    *,
    filesystem: FileSystem | None = None,
    captured_in: str | None = None,
    new_query: bool | None = None,
    overwrite: bool = False,
    without_state: bool = False,
    dry_run: bool = False,
) -> RestoredCheckpoint:
    """Makes a checkpoint directory from which a query goes on right after a checkpoint.

    On a local disk the directory appears complete or not at all. Elsewhere the newest entry of the offset log is written last.

    Args:
        catalog: Where from.
        pipeline: Whose.
        checkpoint_id: Which: one that was captured, or saved by `foreach_batch`, or derived from such.
        location: Where to make it, a path or URI; with `filesystem`, a path on it.
        filesystem: Any Arrow filesystem.
        captured_in: The pipeline into which the query's directory was captured, where that is another: its batch has what only
            a finished one has, state and commit.
        new_query: Whether the query gets a new id. Delta and others know a batch by the query's id and its number, and skip one
            they have. So going back needs a new id, and so does a fork; going on where it was needs the
            old one. By default it is new when the catalog has later batches of the query that were delivered (one that only
            some sinks have is still to be completed), and for a checkpoint that was forked off another pipeline.
        overwrite: Also where there is a directory with something in it, on a local disk only. It is moved aside, not deleted.
        without_state: Also when the query has state and the checkpoint was captured without it.
        dry_run: Only tell.

    Raises:
        ConflictError: There is something at that place.
        NotFoundError: There is no such checkpoint, or it is not one of a query, or something of it was not captured.
    """
    kept = find_batch(catalog, pipeline, checkpoint_id)
    if captured_in is not None:
        kept = kept.captured(find_captured(catalog, captured_in, kept))
    if kept.lacks_state and not without_state:
        raise NotFoundError(
            f"checkpoint {checkpoint_id} of pipeline {pipeline!r} is of a query with state, and was kept without it",
            code=ErrorCode.FILE_MISSING,
            expected="state files",
            found=None,
            next_step="Choose a checkpoint whose state was captured; `without_state=True` writes the logs alone.",
        )
    place = Place.of(location, filesystem, Limits())
    is_taken = bool(place.entries())
    if is_taken and not (overwrite and place.local_root is not None):
        raise ConflictError(
            f"there is something at {place.root}",
            expected="nothing, or an empty directory",
            found=[entry.name for entry in place.entries()][:10],
            next_step="Name another place; `overwrite=True` moves a local directory aside."
            if not overwrite
            else "Name another place: only a local directory can be moved aside.",
        )
    fresh = kept.has_later or kept.is_forked if new_query is None else new_query
    query_id = str(uuid.uuid4()) if fresh or kept.query_id is None else kept.query_id
    goes_on = query_id == kept.query_id
    made = RestoredCheckpoint(
        location=place.root,
        pipeline=pipeline,
        checkpoint_id=checkpoint_id,
        batch_id=kept.batch_id,
        query_id=query_id,
        is_new_query=not goes_on,
        unfinished_batch_id=kept.batch_id + 1 if goes_on and kept.unfinished else None,
        files=0,
        state_files=0,
        notes=(*kept.notes, *([MAY_HAVE_MORE] if goes_on and kept.is_capture else [])),
        dry_run=dry_run,
    )
    return made if dry_run else _make(kept, made, place, is_taken=is_taken)


def _make(kept: KeptBatch, made: RestoredCheckpoint, place: Place, *, is_taken: bool) -> RestoredCheckpoint:
    root = place.local_root
    if root is None:
        output = Output(place)
        states = _write(kept, made, output)
        return replace(made, files=output.written, state_files=states)
    attempt = new_attempt_id()
    fresh = root.with_name(f".{root.name}.{attempt}")
    output = Output(Place.of(str(fresh)))
    make_directory(fresh)
    try:
        states = _write(kept, made, output)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    aside = root.with_name(f"{root.name}.replaced-{attempt}") if is_taken else None
    if aside is not None and swap(fresh, root):
        fresh.rename(aside)
    else:
        if aside is not None:
            root.rename(
                aside
            )  # until the next rename there is no directory: where the system can swap, this is not done
        elif root.exists():
            root.rmdir()
        fresh.rename(root)
    fsync_path(root.parent)
    return replace(made, files=output.written, state_files=states, replaced=None if aside is None else str(aside))


def _write(kept: KeptBatch, made: RestoredCheckpoint, output: Output) -> int:
    """Writes everything, the newest entry of the offset log last; how many of the files are state."""
    states = 0
    for name, pieces in _state_files(kept):
        output.write(f"state/{name}", pieces, sha256="")
        states += 1
    for name, text in kept.source_logs.items():
        output.write(name, [text], sha256="")
    note = {
        "pipeline": made.pipeline,
        "checkpoint_id": made.checkpoint_id,
        "batch_id": made.batch_id,
        "query_id": made.query_id,
        "from_query_id": kept.query_id,
    }
    output.write(RESTORED, [json.dumps(note, sort_keys=True).encode()], sha256="")
    output.write("metadata", [json.dumps({"id": made.query_id}, separators=(",", ":")).encode()], sha256="")
    for batch, entry in sorted(kept.commits.items()):
        output.write(f"commits/{batch}", [entry], sha256="")
    for batch, entry in sorted(kept.offsets.items()):
        output.write(f"offsets/{batch}", [entry], sha256="")
    if made.unfinished_batch_id is not None:
        for name, entry in kept.unfinished.items():
            output.write(name, [entry], sha256="")
    return states


def _state_files(kept: KeptBatch) -> Iterator[tuple[str, Iterator[bytes]]]:
    for operator, partitions in kept.state.partitions().items():
        if operator == STORE or operator.startswith(f"{STORE}/"):
            for partition in partitions:
                with kept.state.open(operator, partition) as data:
                    yield from unpack(data)
