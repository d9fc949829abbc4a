"""Bringing the checkpoint directory of a streaming query into the catalog, with the state that is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, InvalidInputError
from laminar_delta.interop.detecting import check_apart, open_source
from laminar_delta.interop.importing import import_source
from laminar_delta.interop.place import Limits
from laminar_delta.interop.sparkdir import SparkSource
from laminar_delta.interop.sparkdir.source import DOCUMENT
from laminar_delta.streaming.documents import batch_said, document_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow.fs import FileSystem

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.interop.importing import Progress
    from laminar_delta.interop.reports import ImportReport


def capture_spark_checkpoint(
    catalog: Catalog,
    pipeline: str,
    location: str | Path,
    *,
    filesystem: FileSystem | None = None,
    states: int | None = None,
    takeover: bool = False,
    owner: str | None = None,
    dry_run: bool = False,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Brings in every committed batch of a checkpoint directory: offsets, log entries, and the files of its state.

    The directory is only read, and may be one that a query is using. Calling it again brings in what is new. A batch whose
    state files Spark has removed comes in without them, and the report says so; one that is in the catalog stays as it is.
    Batch n of a query becomes checkpoint n+1 of a pipeline that has only this query's; otherwise it gets the next id there
    is. Its epoch is n+1 in any case.

    Args:
        catalog: Where to.
        pipeline: Under which name.
        location: The checkpoint directory, a path or URI; with `filesystem`, a path on it.
        filesystem: Any Arrow filesystem.
        states: Take the state of so many of the newest batches; of all that still have it by default.
        takeover: Also while another writer holds the pipeline, which is fenced off by it.
        owner: Who, for the audit.
        dry_run: Read and report, change nothing.
        limits: How much of a file is read.
        progress: Told how far it is.

    Raises:
        ConflictError: Another writer holds the pipeline, or it is that of a `foreach_batch`.
        NotFoundError: There is no checkpoint directory at that place.
    """
    if states is not None and states < 0:
        raise InvalidInputError("states is negative", expected="0 or more", found=states)
    if filesystem is None and catalog.engine.persistent:
        check_apart(location, catalog.engine.location)
    source = spark_source(location, filesystem=filesystem, limits=limits)
    _check_own(catalog, pipeline)
    planned = source.planned()
    first = 0 if states is None else planned[max(0, len(planned) - states)] if states and planned else 2**63
    source = SparkSource(source.place, states_from=first, numbered=_only_of(catalog, pipeline, source.query_id))
    return import_source(source, catalog, pipeline, dry_run=dry_run, takeover=takeover, owner=owner, progress=progress)


def spark_source(
    location: str | Path, *, filesystem: FileSystem | None = None, limits: Limits | None = None
) -> SparkSource:
    """The checkpoint directory at a place. Raises `NotFoundError` when there is none."""
    source = open_source(location, filesystem=filesystem, limits=limits)
    if not isinstance(source, SparkSource):
        raise InvalidInputError(
            f"{source.place.root} is no checkpoint directory of Spark",
            expected=SparkSource.kind,
            found=source.kind,
            next_step="Bring it in with `interop.import_checkpoints`.",
        )
    return source


def _check_own(catalog: Catalog, pipeline: str) -> None:
    """Refuses a pipeline that `foreach_batch` keeps: what is captured would be its head, without the state of its function.

    Raises:
        ConflictError: It has checkpoints of batches that were not captured.
    """
    # In a pipeline of captures only what was derived is looked at. The newest first: one is enough.
    where = col("pipeline").eq(pipeline) & col("external_id").is_null()
    rows = catalog.reading.rows(MANIFESTS, where=where, columns=["checkpoint_id", "operators"])
    for row in sorted(rows, key=lambda row: -int(row["checkpoint_id"])):
        if DOCUMENT not in (entry["operator"] for entry in row["operators"]):
            continue
        number = row["checkpoint_id"]
        told = batch_said(row) or document_of(catalog.pipeline(pipeline).state(number)) or {}
        query_id = told.get("query_id")
        if query_id is not None:
            raise ConflictError(
                f"pipeline {pipeline!r} is kept by `foreach_batch`: checkpoint {number} is of query {query_id}",
                expected="a pipeline of captures",
                found=query_id,
                next_step=f"Capture into `{pipeline}.spark`, and name it in `captured_in` when restoring.",
                details={"checkpoint_id": number},
            )


def _only_of(catalog: Catalog, pipeline: str, query_id: str | None) -> bool:
    """Whether all checkpoints a pipeline has are batches of this query, under the ids that their numbers give."""
    rows = catalog.reading.rows(MANIFESTS, where=col("pipeline").eq(pipeline), columns=["checkpoint_id", "external_id"])
    return all(row["external_id"] == f"{query_id}/{row['checkpoint_id'] - 1}" for row in rows)
