"""The page: one HTML file with its data, charts, style and scripts inside. It loads nothing and, by its own policy, may not.

Data goes in as JSON in which no markup can begin, and comes out as text nodes; what is written here is escaped.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laminar_delta._version import __version__
from laminar_delta.errors import InvalidInputError, NotInstalledError, StorageError
from laminar_delta.report.charts import CHARTS, altair
from laminar_delta.report.data import gather
from laminar_delta.report.markup import bytes_text, cell, link_target, text

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.report.data import ReportData
    from laminar_delta.report.rows import Row

_OVERVIEW = {
    "latest": "latest",
    "epoch": "epoch",
    "time": "saved (UTC)",
    "outcome": "sinks",
    "waiting": "waiting for",
    "delivered": "delivered",
    "checkpoints": "kept",
    "pinned": "pinned",
    "bytes": "state",
    "recoveries": "recoveries",
}
_TABLES = {
    "checkpoints": {
        "id": "checkpoint",
        "epoch": "epoch",
        "time": "saved (UTC)",
        "outcome": "sinks",
        "pinned": "pinned",
        "generation": "generation",
        "owner": "owner",
        "state_bytes": "state bytes",
        "needed": "needs",
        "duration_ms": "took ms",
        "derived": "derived",
    },
    "recoveries": {
        "time": "started (UTC)",
        "elapsed_ms": "took ms",
        "chosen": "chose",
        "examined": "of",
        "skipped": "passed over",
        "healed": "healed",
        "owner": "owner",
        "why": "why",
    },
}
AUDIT = {
    "time": "committed (UTC)",
    "table": "table",
    "version": "version",
    "operation": "operation",
    "pipeline": "pipeline",
    "id": "checkpoint",
    "generation": "generation",
    "owner": "owner",
    "reason": "reason",
}


def write_report(catalog: Catalog, path: Path | str, *, pipelines: Sequence[str] | None = None) -> None:
    """Writes a page about a catalog: one HTML file that needs no network. An older one at that path is replaced at the end.

    Args:
        catalog: What to report on; also one as it was (`as_of`).
        path: The file to write.
        pipelines: Only these; by default all that have checkpoints.

    Raises:
        NotFoundError: A pipeline that was asked for has no checkpoint.
        NotInstalledError: Without the extra `report`.
        InvalidInputError: The directory of the file does not exist.
        StorageError: The file cannot be written.
    """
    place = Path(path)
    if not place.parent.is_dir() or place.is_dir():
        raise InvalidInputError(
            f"{str(place)!r} is no place for a file",
            expected="a file in a directory that exists",
            found=str(place),
            next_step="Make the directory, or name a file in another one.",
        )
    scripts = _libraries()
    html = page(gather(catalog, pipelines), scripts)
    try:
        _replace(place, html)
    except OSError as error:
        raise StorageError(f"the report cannot be written to {str(place)!r}: {error}", found=str(error)) from error


def page(data: ReportData, scripts: str) -> str:
    """The whole page."""
    template = files("laminar_delta.report").joinpath("assets")
    rows = [pipeline.summary() for pipeline in data.pipelines]
    parts = {
        "title": text(f"Checkpoints in {data.location}"),
        "location": text(data.location),
        "made_at": text(data.made_at),
        "version": text(__version__),
        "style": template.joinpath("page.css").read_text(),
        "count": str(len(rows)),
        "verdict": _verdict(rows),
        "overview": _overview(rows),
        "figures": "\n".join(_figure(name) for name in CHARTS),
        "data": _json(_contents(data)),
        "libraries": scripts.replace("</script", "<\\/script"),
        "script": template.joinpath("page.js").read_text(),
    }
    html = template.joinpath("page.html").read_text()
    pieces = html.split("{{")
    return pieces[0] + "".join(
        parts[piece[: piece.index("}}")]] + piece[piece.index("}}") + 2 :] for piece in pieces[1:]
    )


def _contents(data: ReportData) -> dict[str, Any]:
    return {
        "pipelines": [{**asdict(pipeline), "summary": pipeline.summary()} for pipeline in data.pipelines],
        "audit": [{key: row[key] for key in AUDIT} for row in data.audit],
        "columns": {**_TABLES, "audit": AUDIT},
        "charts": {
            name: {"title": title, "rows": rows, "spec": _spec(draw(rows))}
            for name, (title, rows, draw) in CHARTS.items()
        },
    }


def _spec(chart: Any) -> dict[str, Any]:
    found: dict[str, Any] = chart.to_dict()
    # The theme Altair would add; the page has its own, light and dark.
    found.pop("config", None)
    return found


def _verdict(rows: Sequence[Row]) -> str:
    """The answer to the first question, in a sentence."""
    waiting = [row for row in rows if row["outcome"] in ("pending", "failed", "abandoned")]
    if not rows:
        return "There are no checkpoints yet."
    if not waiting:
        return "The newest checkpoint of every pipeline is delivered to all of its sinks."
    lost = [row for row in waiting if row["delivered"] is None]
    tail = (
        f" {len(lost)} of them {'has' if len(lost) == 1 else 'have'} no delivered checkpoint to go back to."
        if lost
        else ""
    )
    return f"{len(waiting)} of {len(rows)} pipelines wait for a sink.{tail}"


def _overview(rows: Sequence[Row]) -> str:
    head = "".join(f'<th scope="col">{text(title)}</th>' for title in ("pipeline", *_OVERVIEW.values()))
    lines = []
    for number, row in enumerate(rows):
        shown = {**row, "bytes": bytes_text(row["bytes"]), "time": (row["time"] or "")[:19].replace("T", " ")}
        cells = "".join(cell(shown[key], kind=key) for key in _OVERVIEW)
        name = f'<a href="{link_target(number)}" data-pipeline="{number}"><bdi>{text(row["pipeline"])}</bdi></a>'
        lines.append(f'<tr data-pipeline="{number}"><th scope="row">{name}</th>{cells}</tr>')
    return f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"


def _figure(name: str) -> str:
    title = text(CHARTS[name][0])
    return (
        f'<figure id="figure-{name}"><figcaption><h3>{title}</h3></figcaption>'
        f'<div class="chart" id="chart-{name}" role="group" aria-label="{title}"></div>'
        f'<p class="empty" hidden>Nothing to draw.</p>'
        f'<details id="table-{name}"><summary>The same as a table</summary><div class="scroll" tabindex="0"></div></details>'
        "</figure>"
    )


def _json(contents: dict[str, Any]) -> str:
    """JSON that can stand in a script element: no `<` in it, so no end tag and no comment."""
    found = json.dumps(contents, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return found.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _libraries() -> str:
    """Vega, Vega-Lite and vega-embed as one script."""
    altair()
    try:
        import vl_convert
    except ImportError as error:
        raise NotInstalledError(
            f"the report needs vl-convert-python: {error}",
            expected="laminar-delta[report]",
            found=error.name,
            next_step="Install the extra: pip install 'laminar-delta[report]'.",
        ) from error
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _replace(place: Path, html: str) -> None:
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(html)
        Path(name).chmod(0o644)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
