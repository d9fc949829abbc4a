"""Queries answered in a session of the engine's own, over temporary views that nobody else sees and that end with the query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from laminar_delta.engine.spark.faults import answering, quietly

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
"""Texts, quoted names and comments: what begins one of them inside another is part of it."""


def answer(
    session: SparkSession, sql: str, tables: Sequence[str], views: Mapping[str, str], known: Sequence[str]
) -> pa.Table:
    """The answer to a query. The tables are temporary views already; `known` is for messages."""
    text = _literally(sql)
    with answering(tables, known):
        for name, body in views.items():
            session.sql(body).createOrReplaceTempView(name)
        # Spark carries a command out as soon as it is given. In brackets only a query is possible, and this one is merely
        # analysed. It is not run so, because brackets may lose the order of its rows.
        session.sql(f"SELECT * FROM (\n{text}\n) AS answer")
        return session.sql(text).toArrow()


def _literally(sql: str) -> str:
    """The query with every text in it as the SQL standard reads it: there a backslash is a backslash, for Spark it escapes.

    Spark's own setting for that will not do: with it a quote within a text can no longer be written.
    """
    return _QUOTED.sub(lambda found: found[0].replace("\\", "\\\\") if found[0][0] == "'" else found[0], sql)


def forget(session: SparkSession, names: Iterable[str]) -> None:
    """Drops temporary views, those that were never made included."""
    with quietly():
        for name in names:
            session.catalog.dropTempView(name)
