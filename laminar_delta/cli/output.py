"""The one place where commands print: tables for people, one JSON document for programs, progress and questions beside it.

Answers go to standard output, everything else to standard error. Names come from data: they are escaped, never interpreted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from laminar_delta.cli.exits import Declined
from laminar_delta.cli.texts import cell, plain, printable
from laminar_delta.errors import InvalidInputError
from laminar_delta.masking import masked

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[int, int | None], None]
"""Is told how many are done, and of how many."""

MOST_ROWS = 50
"""Of a long list, how many rows a table shows unless told otherwise."""
_PIPED_WIDTH = 160
"""Columns where no terminal says how many it has."""
_UNBROKEN = 19
"""A cell as wide as a time stays on one line; a wider one goes on below, between two words."""


@dataclass(frozen=True, slots=True)
class Output:
    """How one call prints."""

    as_json: bool = False
    assume_yes: bool = False
    mask: Callable[[str], str] = masked
    """Takes secrets out of a text."""

    def json(self, document: Mapping[str, object]) -> None:
        """The answer for programs, when that is what was asked for; nothing otherwise."""
        if self.as_json:
            # In a terminal or pipe that is not UTF-8 escapes say the same.
            escaped = not (sys.stdout.encoding or "").lower().startswith("utf")
            typer.echo(self.mask(json.dumps(plain(document), ensure_ascii=escaped, indent=2)))

    @property
    def console(self) -> Console:
        """Where text for people goes; nowhere when the answer is JSON."""
        from rich.console import Console

        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
        return Console(quiet=self.as_json, highlight=False, width=width)

    def line(self, text: str, *, style: str | None = None) -> None:
        """A line of text, taken as it is."""
        if self.as_json:
            return
        said = self.mask(printable(text))
        if style is None or not sys.stdout.isatty():
            # No colour, so none of what draws it is loaded.
            typer.echo(said)
            return
        from rich.text import Text

        self.console.print(Text(said, style=style), soft_wrap=True)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        title: str | None = None,
        right: Sequence[str] = (),
        most: int | None = MOST_ROWS,
        limit: int | None = None,
    ) -> None:
        """A table. Where the columns do not fit beside each other, row after row, with a line for each value.

        Args:
            columns: Their headings.
            rows: What stands below them.
            title: What stands above.
            right: Columns of numbers.
            most: How many rows are shown; all if None.
            limit: The same, as the caller's `--limit` has it, so that it can be told to give another.
        """
        if self.as_json:
            return
        from rich.table import Table
        from rich.text import Text

        found = list(rows)
        most = most if limit is None else limit
        shown = [
            [self.mask(printable(cell(value))) for value in row] for row in (found if most is None else found[:most])
        ]
        heading = None if title is None else self.mask(title)
        console = self.console
        widths = _widths(columns, shown, console.width)
        if widths is None:
            records = _records(columns, shown)
            # Rows have a blank line between them, so the title has one before it.
            console.print(Text(records if heading is None else f"\n{heading}\n{records}"), soft_wrap=True)
        else:
            table = Table(title=None if heading is None else Text(heading), title_justify="left")
            for name, width in zip(columns, widths, strict=True):
                table.add_column(Text(name), justify="right" if name in right else "left", width=width, overflow="fold")
            for row in shown:
                table.add_row(*map(Text, row))
            console.print(table)
        if len(shown) < len(found):
            how = "--json shows all" if limit is None else "--limit shows more, --json all"
            self.line(f"… and {len(found) - len(shown)} more; {how}.")

    @contextmanager
    def progress(self, what: str) -> Iterator[Progress | None]:
        """A bar on the terminal; none where nobody watches."""
        if self.as_json or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def steps(self) -> Iterator[Callable[[str], None] | None]:
        """A line on the terminal that says what comes next; none where nobody watches."""
        if self.as_json or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console

        with Console(stderr=True).status("") as status:
            yield lambda text: status.update(text)

    def confirm(self, what: str) -> None:
        """Asks before something that destroys, naming what goes.

        Raises:
            Declined: The answer was no, or there was none.
            KeyboardInterrupt: Whoever was asked interrupted the command.
            InvalidInputError: There is nobody to ask, and `--yes` was not given.
        """
        if self.assume_yes:
            return
        if not sys.stdin.isatty():
            raise InvalidInputError(
                f"nobody is here to be asked: {what}", expected="--yes, or a terminal", next_step="Add --yes to do it."
            )
        try:
            agreed = typer.confirm(self.mask(printable(f"{what} Go on?")), err=True)
        except typer.Abort as end:
            typer.echo(err=True)  # the question is still on this line
            # An interrupted command is one wherever it is interrupted. The end of the input is an answer.
            raise (Declined if isinstance(end.__context__, EOFError) else KeyboardInterrupt) from None
        if not agreed:
            raise Declined


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """How wide each column of a table is; None where not even the words would be left whole."""
    texts = [[_need(row[at]) for row in rows] for at in range(len(columns))]
    # A heading may go on below too, as a long text does: that of a narrow column is often its widest word.
    heads = [(max(map(len, name.split()), default=0), len(name)) for name in columns]
    needs = ([head, *some] for head, some in zip(heads, texts, strict=True))
    found, whole = zip(*(map(max, zip(*some, strict=True)) for some in needs), strict=True)
    given: list[int] = list(found)
    # Beside its text a column has a blank on either side and a line; the last one has a line more.
    for _ in range(width - sum(given) - 3 * len(columns) - 1):
        narrow = [at for at, wanted in enumerate(whole) if given[at] < wanted]
        if not narrow:
            break
        given[min(narrow, key=given.__getitem__)] += 1
    return given if sum(given) + 3 * len(columns) + 1 <= width else None


def _need(text: str) -> tuple[int, int]:
    """How wide a cell must be for nothing to be broken in it, and for it to be one line."""
    from rich.cells import cell_len

    whole = max(map(cell_len, text.splitlines()), default=0)
    return whole if whole <= _UNBROKEN else max(map(cell_len, text.split()), default=0), whole


def _records(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """What a table says: a line for each value, a blank one between rows."""
    if not rows:
        return f"No rows. The columns are: {', '.join(columns)}."
    # Indented, so that no line of a value looks like another column.
    return "\n\n".join(
        "\n".join(
            f"{name}: {value}".removeprefix(": ").rstrip().replace("\n", "\n  ")
            for name, value in zip(columns, row, strict=True)
        )
        for row in rows
    )
