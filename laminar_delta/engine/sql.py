"""SQL as both engines understand it: which statements are answered, which tables they need, what each spells in its own way.

Queries are the same text for DataFusion and Spark. Definitions of views are too, but for two functions that have no common
name; they are written as `EACH(list)` and `BYTES(column)` and spelled out here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from laminar_delta.engine.predicate import Dialect
from laminar_delta.errors import InvalidInputError

_BEFORE_THE_STATEMENT = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_WORD = re.compile(r"\w+")

_EACH = {Dialect.DATAFUSION: "unnest", Dialect.SPARK: "explode"}
"""One row per item of a list: Spark has no UNNEST, DataFusion no EXPLODE."""

_BYTES = {
    # DataFusion measures text only. Two digits are one byte.
    Dialect.DATAFUSION: r"CAST(octet_length(encode(\1, 'hex')) / 2 AS BIGINT)",
    Dialect.SPARK: r"CAST(octet_length(\1) AS BIGINT)",
}


def select_only(sql: str) -> str:
    """The statement without a closing semicolon, if it begins as a query does; otherwise `InvalidInputError`.

    This is the first look, for a clear answer. That a `WITH` ends in a query is left to the engines' own parsers.
    """
    text = sql.strip().removesuffix(";")
    begin = _BEFORE_THE_STATEMENT.match(text)
    word = _WORD.match(text, begin.end() if begin else 0)
    if word is None or word[0].upper() not in ("SELECT", "WITH"):
        raise InvalidInputError(
            f"only queries are answered, and this one begins with {word[0] if word else text[:20]!r}"
            if text
            else "the query is empty",
            expected="SELECT … or WITH …",
            found=text[:200],
            next_step="Begin with SELECT or WITH, for example `SELECT * FROM latest_checkpoints`. Write through the catalog's "
            "methods: rows changed behind its back are damage.",
        )
    return text


def not_a_query(text: str, known: Iterable[str]) -> InvalidInputError:
    """What a user is told whose query the engine refused in the words `text`."""
    names = sorted(known)
    return InvalidInputError(
        f"the query cannot be answered: {text}",
        expected=names,
        found=text,
        next_step=f"Mend the query. There are: {', '.join(names)}.",
    )


def spelled(text: str, dialect: Dialect) -> str:
    """The definition of a view in one dialect."""
    return re.sub(r"\bBYTES\((\w+)\)", _BYTES[dialect], re.sub(r"\bEACH\(", f"{_EACH[dialect]}(", text))


def mentioned(sql: str, known: Mapping[str, str | None]) -> set[str]:
    """Which of the known names a query may need, directly or through views: every one whose name it has as a word.

    Args:
        sql: The query.
        known: The definition of each view, and None for each table.
    """
    found: set[str] = set()
    todo = [sql]
    while todo:
        words = {word.lower() for word in _WORD.findall(todo.pop())}
        fresh = (words & known.keys()) - found
        found |= fresh
        todo.extend(text for name in fresh if (text := known[name]) is not None)
    return found


def placed(text: str, places: Mapping[str, str]) -> str:
    """The definition of a view with each table and view it reads, by its plain name, written as the place says."""
    return re.sub(r"\b(FROM|JOIN) (\w+)\b", lambda m: f"{m[1]} {places.get(m[2], m[2])}", text)
