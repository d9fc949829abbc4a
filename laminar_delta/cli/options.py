"""The options that several commands have, spelt once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from laminar_delta.config import LOG_FORMATS, LOG_LEVELS


def _pipelines(incomplete: str) -> list[str]:
    """Pipeline names for the shell, from the catalog that environment and configuration name; nothing if there is none."""
    try:
        import laminar_delta as ld
        from laminar_delta.config import load_settings

        found = load_settings()
        if found.catalog is None:
            return []
        names = ld.open_catalog(found.catalog, engine=found.engine, create=False).pipelines()
    except Exception:  # noqa: BLE001  # a shell that completes must never print an error
        return []
    return [name for name in names if name.startswith(incomplete)]


COMMON: dict[str, Any] = {
    "catalog": Annotated[
        str | None,
        typer.Option("--catalog", "-c", help="The catalog: a directory, URI or schema name.", show_default=False),
    ],
    "engine": Annotated[
        str | None, typer.Option(help="Which engine commits to it: embedded or spark.", show_default=False)
    ],
    "storage_option": Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE for the object store; the environment or the file hide it better.", show_default=False
        ),
    ],
    "config": Annotated[
        Path | None,
        typer.Option(help="The configuration file; laminar-delta.toml here or in conf by default.", show_default=False),
    ],
    "as_json": Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")],
    "yes": Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")],
    "log_level": Annotated[str | None, typer.Option(help=f"{', '.join(LOG_LEVELS)}.", show_default=False)],
    "log_format": Annotated[str | None, typer.Option(help=f"{' or '.join(LOG_FORMATS)}.", show_default=False)],
    "debug": Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.")],
}
"""By the name of their field in `Common`."""

PipelineName = Annotated[str, typer.Argument(help="The pipeline.", autocompletion=_pipelines, metavar="PIPELINE")]
SomePipeline = Annotated[
    str | None,
    typer.Argument(help="Only this pipeline.", autocompletion=_pipelines, metavar="[PIPELINE]", show_default=False),
]
CheckpointId = Annotated[int, typer.Argument(help="The checkpoint.", min=0, metavar="CHECKPOINT")]
SomeCheckpoint = Annotated[
    int | None,
    typer.Argument(help="The checkpoint; the newest by default.", min=0, metavar="[CHECKPOINT]", show_default=False),
]
At = Annotated[
    str | None,
    typer.Option(
        help="As of this time: 2026-11-16T03:12 (UTC), 03:12, or '2h ago'.", metavar="TIME", show_default=False
    ),
]
Limit = Annotated[int, typer.Option(min=1, help="How many rows at most.")]
Reason = Annotated[str, typer.Option(help="Why, for whoever reads the history.", show_default=False)]
SomeReason = Annotated[str | None, typer.Option(help="Why, for whoever reads the history.", show_default=False)]
Apply = Annotated[bool, typer.Option("--apply", help="Do it. Without this it is only told what would be done.")]
Takeover = Annotated[
    bool, typer.Option("--takeover", help="Also while a writer holds the pipeline; it is fenced off for good.")
]
AcceptUndelivered = Annotated[
    bool, typer.Option("--accept-undelivered", help="Also from a checkpoint whose sinks did not get everything.")
]
