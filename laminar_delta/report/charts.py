"""The charts, in Altair: each takes rows of `data.py`, or a name under which the page supplies them later.

Colours are not the only difference between marks: shapes, lanes and the tables beside the charts say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from laminar_delta.errors import NotInstalledError

if TYPE_CHECKING:
    from altair import Chart

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.report.data import PipelineData

Rows = Sequence[Mapping[str, Any]]

_OUTCOMES = {"delivered": "#2e9e5b", "pending": "#d99a00", "failed": "#d1453b", "abandoned": "#8a8f98"}
_EVENTS = {**_OUTCOMES, "recovery": "#3b7dd8", "takeover": "#9a5bd1", "decision": "#6b7280"}
_FORMS = {"full": "#3b7dd8", "delta": "#e08a2c", "inline": "#8a8f98"}
_STATUSES = {"Committed": "#2e9e5b", "Pending": "#d99a00", "Failed": "#d1453b", "no status": "#8a8f98"}
_STANDINGS = {"live": "#2e9e5b", "pinned": "#3b7dd8", "reclaimable": "#e08a2c", "staged": "#8a8f98"}
_LANES = ["checkpoints", "recoveries", "writers", "decisions"]


def altair() -> Any:
    """The library. Raises `NotInstalledError` without the extra `report`."""
    try:
        import altair as found
    except ImportError as error:
        raise NotInstalledError(
            f"charts need altair: {error}",
            expected="laminar-delta[report]",
            found=error.name,
            next_step="Install the extra: pip install 'laminar-delta[report]'.",
        ) from error
    return found


def _data(rows: Rows | str) -> Any:
    alt = altair()
    return alt.NamedData(name=rows) if isinstance(rows, str) else alt.InlineData(values=[dict(row) for row in rows])


_LEGEND_COLUMNS = 3
"""As many as a phone has room for."""


def _color(alt: Any, field: str, colors: Mapping[str, str], title: str) -> Any:
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    return alt.Color(
        f"{field}:N", title=title, scale=scale, legend=alt.Legend(orient="bottom", columns=_LEGEND_COLUMNS)
    )


def _time(alt: Any) -> Any:
    # Of a single moment the axis would show nothing but the fraction of a second.
    axis = alt.Axis(labelOverlap=True, format={"milliseconds": "%H:%M:%S.%L"})
    return alt.X("time:T", title="time (UTC)", scale=alt.Scale(type="utc", padding=14), axis=axis)


def _numbered(alt: Any) -> Any:
    return alt.X("id:O", title="checkpoint", axis=alt.Axis(labelOverlap=True, labelAngle=0))


def _zoom(alt: Any) -> Any:
    # With shift only: a wheel without it scrolls the page.
    return alt.selection_interval(bind="scales", encodings=["x"], zoom="wheel![event.shiftKey]")


def timeline(rows: Rows | str) -> Chart:
    """What happened when: checkpoints, recoveries, takeovers, decisions, each in a lane. Rows are `events`."""
    alt = altair()
    made: Chart = (
        alt.Chart(_data(rows), width="container", height=150)
        .mark_point(filled=True, size=90, opacity=0.85)
        .encode(
            x=_time(alt),
            y=alt.Y("lane:N", title=None, sort=_LANES, scale=alt.Scale(domain=_LANES)),
            color=_color(alt, "kind", _EVENTS, "kind"),
            # With the same title and legend as the colour, so that the two are one legend.
            shape=alt.Shape(
                "kind:N",
                title="kind",
                scale=alt.Scale(domain=list(_EVENTS)),
                legend=alt.Legend(orient="bottom", columns=_LEGEND_COLUMNS),
            ),
            tooltip=[alt.Tooltip("what:N"), alt.Tooltip("time:N")],
        )
        .add_params(_zoom(alt))
    )
    return made


def sizes(rows: Rows | str) -> Chart:
    """What each checkpoint stores, whole against changes. Rows are `sizes`."""
    alt = altair()
    made: Chart = (
        alt.Chart(_data(rows), width="container", height=180)
        .mark_bar()
        .encode(
            x=_numbered(alt),
            y=alt.Y("bytes:Q", title="bytes before compression", axis=alt.Axis(format="~s"), stack="zero"),
            color=_color(alt, "form", _FORMS, "stored as"),
            tooltip=["id:N", "form:N", alt.Tooltip("bytes:Q", format=",")],
        )
    )
    return made


def durations(rows: Rows | str) -> Chart:
    """How long each save took, from the beginning of the attempt to the commit. Rows are `checkpoints`."""
    alt = altair()
    made: Chart = (
        alt.Chart(_data(rows), width="container", height=160)
        .transform_filter("datum.duration_ms !== null")
        .mark_line(point=True)
        .encode(
            x=_time(alt),
            y=alt.Y("duration_ms:Q", title="milliseconds"),
            tooltip=["id:N", alt.Tooltip("duration_ms:Q", format=","), "owner:N", "time:N"],
        )
        .add_params(_zoom(alt))
    )
    return made


def sinks(rows: Rows | str) -> Chart:
    """The current status of each sink in each checkpoint. Rows are `sinks`."""
    alt = altair()
    # The page counts the sinks itself: a width that follows the page does not go with a height that follows the rows.
    height = 120 if isinstance(rows, str) else alt.Step(26)
    made: Chart = (
        alt.Chart(_data(rows), width="container", height=height)
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            x=_numbered(alt),
            y=alt.Y("sink:N", title=None, axis=alt.Axis(labelLimit=140)),
            color=_color(alt, "status", _STATUSES, "status"),
            tooltip=["id:N", "sink:N", "status:N", "error:N"],
        )
    )
    return made


def offsets(rows: Rows | str) -> Chart:
    """How far each partition of each source is. Rows are `offsets`; a click in the legend picks lines."""
    alt = altair()
    picked = alt.selection_point(fields=["source"], bind="legend")
    made: Chart = (
        alt.Chart(_data(rows), width="container", height=220)
        .mark_line(point=True)
        .encode(
            x=_time(alt),
            y=alt.Y("offset:Q", title="offset", axis=alt.Axis(format="~s"), scale=alt.Scale(zero=False)),
            color=alt.Color(
                "source:N",
                title="source",
                legend=alt.Legend(orient="bottom", columns=3, labelLimit=160, symbolLimit=24),
            ),
            opacity=alt.condition(picked, alt.value(1), alt.value(0.15)),
            tooltip=["source:N", "id:N", alt.Tooltip("offset:Q", format=","), "time:N"],
        )
        .add_params(picked)
    )
    return made


def chains(rows: Rows | str) -> Chart:
    """How many earlier checkpoints each one needs for its state. Rows are `checkpoints`."""
    alt = altair()
    made: Chart = (
        alt.Chart(_data(rows), width="container", height=140)
        .mark_bar()
        .encode(
            x=_numbered(alt),
            y=alt.Y("needs:Q", title="checkpoints needed", axis=alt.Axis(tickMinStep=1, format="d")),
            tooltip=["id:N", "needs:Q", "needed:N", "derived:N"],
        )
    )
    return made


def recoveries(rows: Rows | str) -> Chart:
    """How long each recovery took, and how many checkpoints it passed over. Rows are `recoveries`."""
    alt = altair()
    made: Chart = (
        alt.Chart(_data(rows), width="container", height=160)
        .mark_point(filled=True, size=110)
        .encode(
            x=_time(alt),
            y=alt.Y("elapsed_ms:Q", title="milliseconds"),
            size=alt.Size("skipped:Q", title="passed over", legend=None, scale=alt.Scale(range=[80, 500])),
            tooltip=["time:N", "chosen:N", "examined:Q", "skipped:Q", "healed:Q", "owner:N", "why:N"],
        )
    )
    return made


def storage(rows: Rows | str) -> Chart:
    """How much state is live, pinned, or could be given back. Rows are `storage`."""
    alt = altair()
    made: Chart = (
        alt.Chart(_data(rows), width="container", height=120)
        .mark_bar()
        .encode(
            x=alt.X("bytes:Q", title="bytes of files", axis=alt.Axis(format="~s")),
            y=alt.Y("standing:N", title=None, sort=list(_STANDINGS), scale=alt.Scale(domain=list(_STANDINGS))),
            color=alt.Color(
                "standing:N",
                legend=None,
                scale=alt.Scale(domain=list(_STANDINGS), range=list(_STANDINGS.values())),
            ),
            tooltip=["standing:N", alt.Tooltip("bytes:Q", format=",")],
        )
    )
    return made


CHARTS: Mapping[str, tuple[str, str, Callable[[Rows | str], Any]]] = {
    "timeline": ("What happened when", "events", timeline),
    "sizes": ("Checkpoint size: full against delta", "sizes", sizes),
    "durations": ("Duration of each save", "checkpoints", durations),
    "sinks": ("Sink statuses", "sinks", sinks),
    "offsets": ("Offset progress", "offsets", offsets),
    "chains": ("Chains of state", "checkpoints", chains),
    "recoveries": ("Recoveries", "recoveries", recoveries),
    "storage": ("Storage: live, pinned, to be given back", "storage", storage),
}
"""By name: the title, the rows of `PipelineData` it draws, and the function that draws them."""


def chart(catalog: Catalog, pipeline: str, name: str = "timeline") -> Chart:
    """One chart of one pipeline, for notebooks.

    Args:
        catalog: Where.
        pipeline: Whose.
        name: One of `CHARTS`: timeline, sizes, durations, sinks, offsets, chains, recoveries, storage.

    Raises:
        InvalidInputError: There is no such chart.
        NotFoundError: The pipeline has no checkpoint.
        NotInstalledError: Without the extra `report`.
    """
    from laminar_delta.errors import InvalidInputError
    from laminar_delta.report.data import gather

    if name not in CHARTS:
        raise InvalidInputError(
            f"there is no chart {name!r}",
            expected=list(CHARTS),
            found=name,
            next_step=f"There are: {', '.join(CHARTS)}.",
        )
    altair()
    return drawn(gather(catalog, [pipeline]).pipelines[0], name)


def drawn(data: PipelineData, name: str) -> Chart:
    """A chart of what was gathered."""
    title, rows, draw = CHARTS[name]
    made: Chart = draw(getattr(data, rows)).properties(title=f"{data.name}: {title.lower()}", width=640)
    return made
