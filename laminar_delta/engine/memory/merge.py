"""What a merge does to rows, by the book: SQL's rules, one target row at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.engine.predicate import Predicate, Side

if TYPE_CHECKING:
    from laminar_delta.engine.request import Merge

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOutcome:
    """The fragments a merge rewrites, the rows it adds, and its counts."""

    added: pa.Table
    removed: frozenset[int]
    inserted: int
    updated: int
    deleted: int
    would_read: Callable[[pa.Table], bool]
    """Whether rows that came meanwhile fall into what the merge looked at."""

    @property
    def changed(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.inserted or self.updated or self.deleted)


def merge_rows(fragments: Mapping[int, pa.Table], rows: pa.Table, merge: Merge) -> MergeOutcome:
    """Merges `rows` into the table made of `fragments`."""
    incoming: dict[tuple[Any, ...], _Row] = {}
    unmatchable: list[_Row] = []
    for row in rows.to_pylist():
        key = _key(row, merge)
        if None in key:
            unmatchable.append(row)
        else:
            incoming[key] = row
    unmatched = dict(incoming)
    added: list[_Row] = []
    removed: set[int] = set()
    updated = deleted = 0
    for number, fragment in fragments.items():
        kept: list[_Row] = []
        touched = False
        for row in fragment.to_pylist():
            source = incoming.get(_key(row, merge)) if _in_scope(row, merge) else None
            if source is not None:
                unmatched.pop(_key(row, merge), None)
            result = _apply(row, source, merge)
            if result is not row:
                touched = True
                updated += result is not None
                deleted += result is None
            if result is not None:
                kept.append(result)
        if touched:
            removed.add(number)
            added.extend(kept)
    fresh = [
        row
        for row in [*unmatched.values(), *unmatchable]
        if merge.insert and _true(merge.insert_condition, {Side.SOURCE: row})
    ]
    return MergeOutcome(
        added=pa.Table.from_pylist([*added, *fresh], schema=rows.schema),
        removed=frozenset(removed),
        inserted=len(fresh),
        updated=updated,
        deleted=deleted,
        would_read=lambda table: any(_in_scope(row, merge) for row in table.to_pylist()),
    )


def _apply(row: _Row, source: _Row | None, merge: Merge) -> _Row | None:
    """What becomes of a target row: itself, a new row, or None when it is deleted."""
    if source is None:
        gone = merge.delete_absent is not None and _in_scope(row, merge)
        return None if gone and _true(merge.delete_absent, {Side.TARGET: row}) else row
    for clause in merge.when_matched:
        if _true(clause.condition, {Side.TARGET: row, Side.SOURCE: source}):
            if clause.delete:
                return None
            return {**row, **{name: source[name] for name in clause.columns or source}}
    return row


def _in_scope(row: _Row, merge: Merge) -> bool:
    return _true(merge.scope, {Side.TARGET: row})


def _true(condition: Predicate | None, rows: Mapping[Side | None, _Row]) -> bool:
    return condition is None or condition.holds(rows) is True


def _key(row: _Row, merge: Merge) -> tuple[Any, ...]:
    return tuple(row[name] for name in merge.keys)
