"""`inspect`, `import`, `export`, `report`: checkpoints of other systems in and out, and a page to hand around."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import of_each
from laminar_delta.cli.registry import BRING, command
from laminar_delta.cli.texts import size

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog

_Prefix = Annotated[str, typer.Option(help="Put before all names of an object-store layout, as LaminarDB does it.")]
_Pipeline = Annotated[str, typer.Option(help="The pipeline's name in the catalog.", show_default=False)]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Report what would happen, change nothing.")]
_Kind = Annotated[
    str | None,
    typer.Option(help="Which layout it is, when that cannot be told from the names.", show_default=False),
]
_Source = Annotated[
    str, typer.Argument(metavar="PATH", help="A directory or URI with checkpoints of LaminarDB or Spark.")
]
_SKIPPED = {"name": "checkpoint", "reason": "why"}


@command(
    "inspect",
    group=BRING,
    catalog=False,
    fields={
        "kind": "which layout it is",
        "location": "where",
        **of_each(
            "checkpoints",
            "ascending",
            {
                "name": "what the source calls it",
                "checkpoint_id": "number it has or would get",
                "epoch": "epoch",
                "timestamp_ms": "milliseconds since 1970",
                "state_bytes": "bytes of state",
                "problems": "in words",
                "usable": "whether it can be used",
            },
        ),
        "pointer": "what the source's own latest pointer says",
        "chosen": "checkpoint that recovery would use",
        **of_each("skipped", "what recovery would pass over, newest first", _SKIPPED),
        "notes": "further remarks",
        "details": "what else there is to say of this kind of source",
        "intact": "whether everything there is can be used",
    },
)
def inspect_path(call: Call, path: _Source, prefix: _Prefix = "", kind: _Kind = None) -> None:
    """Look at checkpoints of LaminarDB or Spark.

    What the place is, what is in it, whether it is intact. Exit code 1 if something cannot be used.
    """
    from laminar_delta.cli.reporting import print_inspection
    from laminar_delta.interop import inspect_source

    with call.out.progress("Reading") as progress:
        report = inspect_source(path, prefix=prefix, kind=kind, progress=progress)
    call.out.json({**report.to_dict(), "intact": report.intact})
    print_inspection(call.out, report)
    if not report.intact:
        call.finding()


@command(
    "import",
    group=BRING,
    fields={
        "kind": "which layout it is",
        "location": "where",
        "pipeline": "into which pipeline",
        "imported": "ids that are new in the catalog",
        "already_there": "how many an earlier run brought in",
        "updated": "of those, ids whose sink statuses went on since",
        **of_each("skipped", "what was left out", _SKIPPED),
        "state_bytes": "bytes of state brought in",
        "batches": "LCB1 batches brought in",
        "notes": "further remarks",
        "dry_run": "whether nothing was changed",
    },
)
def import_path(
    call: Call,
    path: _Source,
    pipeline: _Pipeline,
    dry_run: _DryRun = False,
    prefix: _Prefix = "",
    kind: _Kind = None,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="Also while another writer holds the pipeline; it is fenced off.")
    ] = False,
) -> None:
    """Bring checkpoints of LaminarDB or Spark in.

    Each is verified. Run again it goes on where it was. Exit code 1 if some are left out.
    """
    from laminar_delta.cli.reporting import print_import
    from laminar_delta.interop import check_apart, import_checkpoints, open_source

    # Before a catalog is made: a wrong path leaves nothing behind.
    check_apart(path, call.location)
    open_source(path, prefix=prefix, kind=kind)
    opened = _for_looking(call) if dry_run else call.catalog(create=True)
    with call.out.progress("Importing") as progress:
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
    call.out.json(report.to_dict())
    print_import(call.out, report)
    if report.skipped:
        call.finding()


@command(
    "export",
    group=BRING,
    fields={
        "layout": "which layout was written",
        "location": "where",
        "pipeline": "of which pipeline",
        "exported": "ids",
        **of_each("skipped", "what was left out", _SKIPPED),
        "files_written": "how many",
        "files_unchanged": "how many were there already",
        "latest": "what the latest pointer says now",
        "notes": "further remarks",
        "dry_run": "whether nothing was changed",
    },
)
def export_path(
    call: Call,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="An empty directory or URI, or one an earlier run wrote to.")
    ],
    pipeline: _Pipeline,
    layout: Annotated[str, typer.Option(help="files, objects, distributed or distributed-0.18.")] = "files",
    checkpoint: Annotated[
        list[int] | None, typer.Option(help="Only this one; can be given several times.", show_default=False)
    ] = None,
    dry_run: _DryRun = False,
    prefix: _Prefix = "",
) -> None:
    """Write checkpoints as LaminarDB would have.

    The latest pointer comes last. Exit code 1 if some are left out.
    """
    from laminar_delta.cli.reporting import print_export
    from laminar_delta.interop import export_checkpoints

    call.pipeline(pipeline)
    with call.out.progress("Exporting") as progress:
        report = export_checkpoints(
            call.catalog(),
            pipeline,
            target,
            layout=layout,
            prefix=prefix,
            checkpoints=checkpoint or None,
            dry_run=dry_run,
            progress=progress,
        )
    call.out.json(report.to_dict())
    print_export(call.out, report)
    if report.skipped:
        call.finding()


@command(
    "report",
    group=BRING,
    fields={"path": "the page that was written", "pipelines": "those in it", "size_bytes": "of the page"},
)
def report(
    call: Call,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")] = Path("report.html"),
    pipeline: Annotated[
        list[str] | None, typer.Option(help="Only this one; can be given several times.", show_default=False)
    ] = None,
) -> None:
    """Write one self-contained HTML page to hand around.

    Timeline, sizes, sinks, offsets, recoveries, storage, audit.
    """
    catalog = call.catalog()
    # By name and late: what draws it is an extra, and takes its time to import.
    with call.out.steps() as tell:
        if tell is not None:
            tell(f"Writing {output}")
        import_module("laminar_delta.report").write_report(catalog, output, pipelines=pipeline or None)
    names = pipeline or catalog.pipelines()
    written = output.stat().st_size
    call.out.json({"path": str(output), "pipelines": names, "size_bytes": written})
    count = "1 pipeline" if len(names) == 1 else f"{len(names)} pipelines"
    call.out.line(f"Wrote {output}: {count}, {size(written)}. Open it in a browser.")


def _for_looking(call: Call) -> Catalog:
    import laminar_delta as ld

    try:
        return call.catalog()
    except ld.NotFoundError:
        # Nothing is made for a look: what would come into a new catalog is told of an empty one in memory.
        return ld.open_catalog(call.location, engine="memory", store={})
