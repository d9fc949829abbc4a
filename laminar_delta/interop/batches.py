"""LCB1 batches in files: writing them as LaminarDB names them, reading them back, and bringing them into a catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from laminar_delta.catalog.batches import BatchAppender
from laminar_delta.catalog.healing import find_rows
from laminar_delta.catalog.pipeline import default_owner
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.tables import STATE_BATCHES
from laminar_delta.codec import BatchEntry, decode_batch
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, LaminarDeltaError, NotFoundError
from laminar_delta.interop.laminardb.layout import batch_name, batch_order, parse_batch_name
from laminar_delta.interop.place import Limits, Place
from laminar_delta.interop.reports import Skipped
from laminar_delta.interop.writing import Output
from laminar_delta.model import check_ordering_number

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.pipeline import Pipeline
    from laminar_delta.interop.source import Source


class BatchFiles:
    """Batches as files `checkpoints/batch-000007.lz4`; a target for `CheckpointBatcher`, and its reader.

    A second flush of an epoch goes to a file of its own beside the first, named by its attempt: later ones sort later. On an
    object store, which Arrow cannot ask to create a file only if there is none, one process should write per prefix.
    """

    def __init__(
        self,
        location: str | Path,
        *,
        filesystem: FileSystem | None = None,
        prefix: str = "",
        limits: Limits | None = None,
    ) -> None:
        self._place = Place.of(location, filesystem, limits)
        self._directory = f"{prefix}checkpoints"

    def write(self, epoch: int, payload: bytes, attempt_id: str) -> object:
        """See `stores.batcher.BatchTarget.write`."""
        output = Output(self._place)
        for name in (batch_name(epoch), batch_name(epoch, attempt_id)):
            path = f"{self._directory}/{name}"
            # The same bytes are there after a flush whose answer was lost, and was tried again.
            if output.create(path, payload) or self._place.read(path, limit=self._place.limits.batch_bytes) == payload:
                return path
        raise NotFoundError(f"no name was free for a batch of epoch {epoch}")  # pragma: no cover  # attempts are unique

    def epochs(self) -> list[int]:
        """The epochs that have batches."""
        return sorted({epoch for epoch, _ in self._files()})

    def entries(self, epoch: int) -> list[BatchEntry]:
        """Everything flushed for an epoch, in order, verified."""
        limit = self._place.limits.batch_bytes
        return [
            entry
            for number, path in self._files()
            if number == epoch
            for entry in decode_batch(self._place.read(path, limit=limit), max_bytes=limit)
        ]

    def read(self, epoch: int, key: str) -> bytes:
        """The blob of a key: the one added last, when there are several. Raises `NotFoundError`."""
        for entry in reversed(self.entries(epoch)):
            if entry.key == key:
                return entry.data
        raise NotFoundError(f"no blob {key!r} in the batches of epoch {epoch}", expected=(epoch, key))

    def prune(self, pipeline: Pipeline) -> list[int]:
        """Removes the batches of epochs whose checkpoints maintenance removed for good, and of epochs that never got one.

        Those of retired checkpoints stay as long as these can be restored, and those above the newest checkpoint: theirs may
        be on its way.

        Returns:
            The epochs.

        Raises:
            CorruptionError: A checkpoint's row is lost, so that nobody knows which epoch is still needed. Nothing is removed.
        """
        removed = standing(pipeline.reading, pipeline.name).removed
        found = find_rows(pipeline.reading, pipeline.name)
        lost = [one for one in found.lost if one.row is None and one.checkpoint_id not in removed]
        if lost:
            raise CorruptionError(
                f"batches stay: checkpoint {lost[0].checkpoint_id} of pipeline {pipeline.name!r} is lost: {lost[0].problem}",
                found=lost[0].problem,
                next_step="Bring the table `manifests` back from a backup, or remove files by hand.",
            )
        needed = {int(row["epoch"]) for row in found.rows if row["checkpoint_id"] not in removed}
        files = [
            (epoch, path) for epoch, path in self._files() if needed and epoch not in needed and epoch < max(needed)
        ]
        output = Output(self._place)
        for _, path in files:
            output.remove(path)
        return sorted({epoch for epoch, _ in files})

    def _files(self) -> list[tuple[int, str]]:
        names = [
            entry.name
            for entry in self._place.entries(self._directory)
            if not entry.is_directory and parse_batch_name(entry.name) is not None
        ]
        return [(batch_order(name)[0], f"{self._directory}/{name}") for name in sorted(names, key=batch_order)]


def bring_in_batches(
    source: Source, catalog: Catalog, pipeline: str, skipped: list[Skipped], *, dry_run: bool = False
) -> int:
    """Copies the batches beside a source's checkpoints into the catalog, those that are not there yet; how many.

    Args:
        source: Whose `candidates` were listed: batches are found on the way.
        catalog: Where to.
        pipeline: Whose.
        skipped: Damaged ones are added here.
        dry_run: Only verify and count.
    """
    if not source.batches:
        return 0
    appender = BatchAppender(catalog.engine, pipeline, owner=default_owner())
    limit = source.place.limits.batch_bytes
    brought = 0
    for path in source.batches:
        name = path.rpartition("/")[2]
        epoch = parse_batch_name(name)
        assert epoch is not None
        try:
            check_ordering_number("epoch", epoch)
            payload = source.place.read(path, limit=limit)
            decode_batch(payload, max_bytes=limit)
        except LaminarDeltaError as error:
            skipped.append(Skipped(name=name, reason=error.message))
            continue
        where = col("pipeline").eq(pipeline) & col("epoch").eq(epoch)
        there = catalog.reading.rows(STATE_BATCHES, where=where, columns=["payload"])
        if any(row["payload"] == payload for row in there):
            continue
        brought += 1
        if not dry_run:
            appender.append(epoch, payload)
    return brought
