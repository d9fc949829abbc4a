"""Pieces of HTML. Everything that comes from a catalog passes through `text`: names are whatever users gave."""

from __future__ import annotations

import html


def text(value: object) -> str:
    """A value as text that is safe between tags and in quoted attributes; nothing for None."""
    return "" if value is None else html.escape(str(value), quote=True)


def cell(value: object, *, kind: str = "") -> str:
    """A cell of a table: numbers to the right, text kept from turning its neighbours around."""
    if isinstance(value, bool):
        return f"<td>{'yes' if value else ''}</td>"
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    mark = {"outcome": f' class="outcome {text(value)}"', "time": ' class="number"'}.get(kind, "")
    return f"<td{mark}><bdi>{text(value)}</bdi></td>"


def link_target(number: int) -> str:
    """Where the page shows the pipeline of that number."""
    return f"#pipeline-{number}"


def bytes_text(value: int) -> str:
    """A number of bytes as people read it."""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1000
    raise AssertionError
