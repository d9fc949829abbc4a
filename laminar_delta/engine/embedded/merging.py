"""A merge in delta-rs's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from laminar_delta.engine.predicate import Column, Dialect, Side, quote_name

if TYPE_CHECKING:
    from deltalake.table import TableMerger

    from laminar_delta.engine.request import Merge

_SQL = Dialect.DATAFUSION


def merge_condition(merge: Merge) -> str:
    """When a row of the source and one of the table are the same, and which of the table are looked at."""
    parts = [f"{Column(k, Side.TARGET).sql(_SQL)} = {Column(k, Side.SOURCE).sql(_SQL)}" for k in merge.keys]
    if merge.scope is not None:
        parts.insert(0, merge.scope.sql(_SQL))
    return " AND ".join(parts)


def add_clauses(merger: TableMerger, merge: Merge, columns: Sequence[str]) -> TableMerger:
    """What becomes of rows that both have, that only the source has, that only the table has."""
    for clause in merge.when_matched:
        condition = clause.condition.sql(_SQL) if clause.condition is not None else None
        if clause.delete:
            merger = merger.when_matched_delete(predicate=condition)
        else:
            taken = {quote_name(c, _SQL): Column(c, Side.SOURCE).sql(_SQL) for c in clause.columns or columns}
            merger = merger.when_matched_update(updates=taken, predicate=condition)
    if merge.insert:
        given = {quote_name(c, _SQL): Column(c, Side.SOURCE).sql(_SQL) for c in columns}
        condition = merge.insert_condition.sql(_SQL) if merge.insert_condition is not None else None
        merger = merger.when_not_matched_insert(updates=given, predicate=condition)
    if merge.delete_absent is not None:
        wanted = merge.delete_absent if merge.scope is None else merge.scope & merge.delete_absent
        merger = merger.when_not_matched_by_source_delete(predicate=wanted.sql(_SQL))
    return merger
