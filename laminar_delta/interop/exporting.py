"""Taking checkpoints out, into a directory or bucket that LaminarDB loads.

Whatever is written before the latest pointer nobody is pointed to; it comes last. What an interrupted run wrote is
recognised by its content, so running again completes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from laminar_delta.catalog.healing import find_row
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, CorruptionError, InvalidInputError, NotFoundError
from laminar_delta.interop.detecting import open_source
from laminar_delta.interop.laminardb.outgoing import Outgoing
from laminar_delta.interop.laminardb.trees import TREES, Tree
from laminar_delta.interop.place import Place
from laminar_delta.interop.reports import ExportReport, Skipped
from laminar_delta.interop.writing import Output

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.reading import Row

LAYOUTS = tuple(TREES)
"""What can be written."""


def export_checkpoints(
    catalog: Catalog,
    pipeline: str,
    location: str | Path,
    *,
    filesystem: FileSystem | None = None,
    layout: str = "files",
    prefix: str = "",
    checkpoints: Collection[int] | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ExportReport:
    """Writes the visible checkpoints of a pipeline as LaminarDB would have, the latest pointer last.

    Repeating it after it was interrupted completes it. A checkpoint that is damaged here is skipped and reported.

    Args:
        catalog: Where from.
        pipeline: Whose.
        location: A path or URI; with `filesystem`, a path on it.
        filesystem: Any Arrow filesystem.
        layout: One of `LAYOUTS`.
        prefix: Put before all names, as LaminarDB does it.
        checkpoints: Only these.
        dry_run: Report what would be written.
        progress: Told how far it is.

    Raises:
        ConflictError: The place holds other checkpoints.
        NotFoundError: There is nothing to export.
    """
    if layout not in TREES:
        raise InvalidInputError(
            f"there is no layout {layout!r}",
            expected=list(TREES),
            found=layout,
            next_step=f"There are: {', '.join(TREES)}.",
        )
    found = catalog.pipeline(pipeline)
    numbers = [head.checkpoint_id for head in found.list()]
    chosen = numbers if checkpoints is None else sorted(checkpoints)
    missing = sorted(set(chosen) - set(numbers))
    if missing or not chosen:
        what = f"checkpoint {missing[0]}" if missing else "checkpoints"
        raise NotFoundError(f"pipeline {pipeline!r} has no {what} to export", expected=chosen, found=numbers)
    place = Place.of(location, filesystem)
    output = Output(place, dry_run=dry_run)
    tree = TREES[layout](output, prefix)
    _check_alone(place, tree, prefix, _heads(catalog, pipeline, chosen))
    exported, skipped, latest = [], [], None
    for done, number in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        try:
            latest = tree.write(_outgoing(catalog, pipeline, number))
        except (CorruptionError, InvalidInputError) as error:
            skipped.append(Skipped(name=str(number), reason=str(error)))
            continue
        exported.append(number)
    if latest is not None:
        tree.point_to(latest)
    if progress is not None:
        progress(len(chosen), len(chosen))
    return ExportReport(
        layout=layout,
        location=place.root,
        pipeline=pipeline,
        exported=tuple(exported),
        skipped=tuple(skipped),
        files_written=output.written,
        files_unchanged=output.unchanged,
        latest=latest,
        notes=tree.notes(),
        dry_run=dry_run,
    )


def _outgoing(catalog: Catalog, pipeline: str, number: int) -> Outgoing:
    row = find_row(catalog.reading, pipeline, number)
    if row is None:
        raise CorruptionError(f"checkpoint {number} of pipeline {pipeline!r} is gone", expected=number)
    return Outgoing.of(catalog.reading, row)


def _heads(catalog: Catalog, pipeline: str, chosen: Collection[int]) -> list[Row]:
    columns = ["checkpoint_id", "timestamp_ms", "external_id"]
    rows = catalog.reading.rows(MANIFESTS, where=col("pipeline").eq(pipeline), columns=columns)
    own = set(chosen)
    return sorted((row for row in rows if row["checkpoint_id"] in own), key=lambda row: int(row["checkpoint_id"]))


def _check_alone(place: Place, tree: Tree, prefix: str, heads: list[Row]) -> None:
    """Refuses to write among checkpoints that are not of this export: recovery would take the newest of them all."""
    names = set(tree.plan(heads))
    there = open_source(place.root, filesystem=place.filesystem, prefix=prefix, kind=tree.source_kind).candidates()
    strangers = [one.label for one in there if one.label not in names]
    if strangers:
        raise ConflictError(
            f"{place.root} holds checkpoint {strangers[0]}, which is not one of this export",
            expected=sorted(names)[:10],
            found=strangers[:10],
            next_step="Name an empty directory.",
        )
