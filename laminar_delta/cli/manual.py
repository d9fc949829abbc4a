"""The parts of `docs/cli.md` that follow from the code: exit codes, settings, log events, metrics, commands and their fields.

    python -m laminar_delta.cli.manual docs/cli.md

writes them anew between their markers. A test fails when the page is not what this would write.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from laminar_delta.cli.application import FAMILIES
from laminar_delta.cli.exits import MEANING
from laminar_delta.cli.prometheus import PER_PIPELINE, PREFIX
from laminar_delta.cli.registry import COMMANDS, GROUPS, in_order
from laminar_delta.config import KEYS, variable_of
from laminar_delta.logs import Event


def exit_codes() -> str:
    """What each exit code means."""
    return _table(("code", "means"), [(str(int(code)), meaning) for code, meaning in MEANING.items()])


def settings() -> str:
    """Keys, their environment variables, and what they are for."""
    rows = [(f"`{name}`", f"`{variable_of(name)}`", key.meaning) for name, key in KEYS.items()]
    return _table(("key", "environment", "meaning"), rows)


def events() -> str:
    """The names of what is logged."""
    return ", ".join(f"`{event}`" for event in Event) + "."


def metrics() -> str:
    """The metrics that have a sample for each pipeline."""
    rows = [
        (f"`{PREFIX}{one.name}{'_total' if one.kind == 'counter' else ''}`", one.kind, one.meaning)
        for one in PER_PIPELINE
    ]
    return _table(("metric", "kind", "meaning"), rows)


def commands() -> str:
    """Every command under its heading, with the JSON fields it prints."""
    families = [import_module(f"laminar_delta.cli.{name}") for name in FAMILIES]
    parts = []
    for group in GROUPS:
        parts.append(f"### {group}")
        for found in in_order(families):
            if found.group == group:
                rows = [(f"`{path}`", meaning) for path, meaning in found.fields.items()]
                parts += [f"#### {found.name}", found.summary, _table(("field", "meaning"), rows)]
    return "\n\n".join(parts)


SECTIONS: Mapping[str, Callable[[], str]] = {
    "exit codes": exit_codes,
    "settings": settings,
    "events": events,
    "metrics": metrics,
    "commands": commands,
}
"""By the name in their markers."""


def written(page: str) -> str:
    """A page with its sections as the code has them. Raises `KeyError` for a section without markers."""
    for name, section in SECTIONS.items():
        pattern = re.compile(rf"(<!-- {name}: written by .*? -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if pattern.search(page) is None:
            raise KeyError(name)
        text = section()
        page = pattern.sub(lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}", page)  # type: ignore[misc]
    return page


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    cells = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{path}: {len(COMMANDS)} commands")
