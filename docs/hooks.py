"""What MkDocs does beyond its settings: pages that the navigation does not name are added, reasons not to test left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_REASON = re.compile(r"^( *```\w+) notest:[^\n]*$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Adds the pages that the navigation does not name, decisions in a section of their own."""
    docs = Path(config["docs_dir"])
    named = set(_pages(config["nav"]))
    rest = sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))
    rest = [page for page in rest if page not in named and not page.endswith("-template.md")]
    for title, pages in (
        ("More", [page for page in rest if not page.startswith("adr/")]),
        ("Decisions", [page for page in rest if page.startswith("adr/")]),
    ):
        if pages:
            config["nav"].append({title: pages})
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leaves the language alone on the first line of a block."""
    return _REASON.sub(r"\1", markdown)


def _pages(entries: list[Any]) -> list[str]:
    found = []
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            found.extend(_pages(value) if isinstance(value, list) else [value])
    return found
