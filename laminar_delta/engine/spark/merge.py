"""Merges as Spark SQL text.

Spark commits a MERGE that carries a fence even when it changes nothing, which would move the fence: a merge without effect must
not. So there are two questions to ask beforehand: can this merge be without effect at all, and if so, is it, on these rows?
Where a guard decides, another commit can come between the question and the MERGE: then the MERGE fails, and moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from laminar_delta.engine.predicate import Column, Predicate, Side, all_of, quote_name
from laminar_delta.engine.request import Merge, WhenMatched
from laminar_delta.engine.spark.ddl import SQL

SOURCE_VIEW = "laminar_delta_source"
"""The temporary view of the incoming rows, in a session that is nobody else's."""

GUARD_FAILED = "laminar_delta: the guard of this merge does not hold"
"""What a fenced MERGE fails with whose guard is false in the version it reads."""

_TARGET, _SOURCE = Side.TARGET.value, Side.SOURCE.value


def merge_statement(reference: str, merge: Merge, columns: Sequence[str], *, fenced: bool) -> str | None:
    """The MERGE, or None when nothing is asked for. Fenced, it fails where its guard is false instead of changing nothing."""
    clauses = [_matched_clause(clause, columns) for clause in _reachable(merge)]
    if merge.insert:
        names = ", ".join(quote_name(name, SQL) for name in columns)
        values = ", ".join(Column(name, Side.SOURCE).sql(SQL) for name in columns)
        clauses.append(f"WHEN NOT MATCHED{_and(merge.insert_condition)} THEN INSERT ({names}) VALUES ({values})")
    if merge.delete_absent is not None:
        clauses.append(f"WHEN NOT MATCHED BY SOURCE{_and(_absent(merge))} THEN DELETE")
    if not clauses:
        return None
    source = _incoming(reference, merge, strict=fenced)
    return " ".join([f"MERGE INTO {reference} AS {_TARGET} USING {source} ON {_condition(merge)}", *clauses])


def acts_on_every_row(merge: Merge) -> bool:
    """Whether each source row is inserted or changes something, whatever the table holds."""
    decided = any(clause.condition is None for clause in merge.when_matched)
    return merge.insert and merge.insert_condition is None and decided and merge.guard is None


def effect_query(reference: str, merge: Merge) -> str:
    """A query with a row where the MERGE would change something."""
    target, source, condition = f"{reference} AS {_TARGET}", _incoming(reference, merge), _condition(merge)
    parts = []
    if merge.when_matched:
        told = [clause.condition for clause in _reachable(merge)]
        either = " OR ".join("TRUE" if one is None else one.sql(SQL) for one in told)
        parts.append(f"SELECT 1 FROM {target} JOIN {source} ON {condition} WHERE {either}")
    if merge.insert:
        where = "" if merge.insert_condition is None else f" WHERE {merge.insert_condition.sql(SQL)}"
        parts.append(f"SELECT 1 FROM {source} LEFT ANTI JOIN {target} ON {condition}{where}")
    if merge.delete_absent is not None:
        parts.append(f"SELECT 1 FROM {target} LEFT ANTI JOIN {source} ON {condition} WHERE {_absent(merge).sql(SQL)}")
    return f"SELECT 1 FROM ({' UNION ALL '.join(parts)}) LIMIT 1"


def _incoming(reference: str, merge: Merge, *, strict: bool = False) -> str:
    """The source rows: none, or an error, where the guard does not hold. Delta reads that in the transaction of the MERGE."""
    if merge.guard is None:
        return f"{SOURCE_VIEW} AS {_SOURCE}"
    held = f"EXISTS (SELECT 1 FROM {reference} WHERE {merge.guard.sql(SQL)})"
    if strict:
        held = f"CASE WHEN {held} THEN TRUE ELSE raise_error('{GUARD_FAILED}') END"
    return f"(SELECT * FROM {SOURCE_VIEW} WHERE {held}) AS {_SOURCE}"


def _condition(merge: Merge) -> str:
    parts = [f"{Column(key, Side.TARGET).sql(SQL)} = {Column(key, Side.SOURCE).sql(SQL)}" for key in merge.keys]
    if merge.scope is not None:
        # First and in literals: this is what narrows the conflict to a partition.
        parts.insert(0, merge.scope.sql(SQL))
    return " AND ".join(parts)


def _reachable(merge: Merge) -> list[WhenMatched]:
    """The clauses up to the first that always applies; Spark does not take any after it."""
    found: list[WhenMatched] = []
    for clause in merge.when_matched:
        found.append(clause)
        if clause.condition is None:
            break
    return found


def _matched_clause(clause: WhenMatched, columns: Sequence[str]) -> str:
    if clause.delete:
        return f"WHEN MATCHED{_and(clause.condition)} THEN DELETE"
    taken = ", ".join(
        f"{Column(name, Side.TARGET).sql(SQL)} = {Column(name, Side.SOURCE).sql(SQL)}"
        for name in clause.columns or columns
    )
    return f"WHEN MATCHED{_and(clause.condition)} THEN UPDATE SET {taken}"


def _absent(merge: Merge) -> Predicate:
    found = all_of(part for part in (merge.scope, merge.delete_absent) if part is not None)
    assert found is not None, "asked only where delete_absent is set"
    return found


def _and(condition: Predicate | None) -> str:
    return "" if condition is None else f" AND {condition.sql(SQL)}"
