"""`inspect`, `import` and `export`: looking at checkpoints of other systems, bringing them in, taking them out.

Exit codes: 0 all is well; 3 done, but something is damaged or was left out, as the report says; 1 an error, in one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.interop.importing import Progress
    from laminar_delta.interop.reports import Report

LEFT_OUT = 3
"""The exit code for: done, but not with everything."""

_Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON and nothing else.")]
_Prefix = Annotated[str, typer.Option(help="Put before all names of an object-store layout, as LaminarDB does it.")]
_Catalog = Annotated[str, typer.Option(envvar="LAMINAR_CATALOG", help="The catalog: a directory, URI or schema name.")]
_Pipeline = Annotated[str, typer.Option(help="The pipeline's name in the catalog.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Report what would happen, change nothing.")]
_Kind = Annotated[str | None, typer.Option(help="Which layout it is, when that cannot be told from the names.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("inspect")(inspect_path)
    app.command("import")(import_path)
    app.command("export")(export_path)


def inspect_path(
    path: Annotated[str, typer.Argument(help="A directory or URI with checkpoints of LaminarDB or Spark.")],
    as_json: _Json = False,
    prefix: _Prefix = "",
    kind: _Kind = None,
) -> None:
    """Tell what a place is, what is in it, and whether it is intact."""
    from laminar_delta.cli.reporting import print_inspection
    from laminar_delta.interop import inspect_source

    with _progress("Reading", as_json) as progress:
        report = inspect_source(path, prefix=prefix, kind=kind, progress=progress)
    _print_json(report, intact=report.intact) if as_json else print_inspection(report)
    raise typer.Exit(0 if report.intact else LEFT_OUT)


def import_path(
    path: Annotated[str, typer.Argument(help="A directory or URI with checkpoints of LaminarDB or Spark.")],
    catalog: _Catalog,
    pipeline: _Pipeline,
    dry_run: _DryRun = False,
    as_json: _Json = False,
    prefix: _Prefix = "",
    kind: _Kind = None,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="Also while another writer holds the pipeline; it is fenced off.")
    ] = False,
) -> None:
    """Bring checkpoints in, verified; again and again: it goes on where it was."""
    from laminar_delta.cli.reporting import print_import
    from laminar_delta.interop import check_apart, import_checkpoints, open_source

    # Before a catalog is made: a wrong path leaves nothing behind.
    check_apart(path, catalog)
    open_source(path, prefix=prefix, kind=kind)
    opened = _open(catalog, for_looking=dry_run)
    with _progress("Importing", as_json) as progress:
        report = import_checkpoints(
            path,
            opened,
            pipeline,
            prefix=prefix,
            kind=kind,
            dry_run=dry_run,
            takeover=takeover,
            progress=progress,
        )
    _print_json(report) if as_json else print_import(report)
    raise typer.Exit(LEFT_OUT if report.skipped else 0)


def export_path(
    target: Annotated[str, typer.Argument(help="An empty directory or URI, or one an earlier run wrote to.")],
    catalog: _Catalog,
    pipeline: _Pipeline,
    layout: Annotated[str, typer.Option(help="files, objects, distributed or distributed-0.18.")] = "files",
    checkpoint: Annotated[list[int] | None, typer.Option(help="Only this one; can be given several times.")] = None,
    dry_run: _DryRun = False,
    as_json: _Json = False,
    prefix: _Prefix = "",
) -> None:
    """Write checkpoints as LaminarDB would have, the latest pointer last."""
    import laminar_delta as ld
    from laminar_delta.cli.reporting import print_export
    from laminar_delta.interop import export_checkpoints

    with _progress("Exporting", as_json) as progress:
        report = export_checkpoints(
            ld.open_catalog(catalog, create=False),
            pipeline,
            target,
            layout=layout,
            prefix=prefix,
            checkpoints=checkpoint or None,
            dry_run=dry_run,
            progress=progress,
        )
    _print_json(report) if as_json else print_export(report)
    raise typer.Exit(LEFT_OUT if report.skipped else 0)


def _open(location: str, *, for_looking: bool) -> Catalog:
    import laminar_delta as ld

    if for_looking:
        try:
            return ld.open_catalog(location, create=False)
        except ld.NotFoundError:
            # Nothing is made for a look: what would come into a new catalog is told of an empty one in memory.
            return ld.open_catalog(location, engine="memory", store={})
    return ld.open_catalog(location)


@contextmanager
def _progress(what: str, quiet: bool) -> Iterator[Progress | None]:
    """A bar on the terminal; none where the output is read by a program."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_json(report: Report, **more: object) -> None:
    typer.echo(json.dumps({**report.to_dict(), **more}, ensure_ascii=False, indent=2, default=str))
