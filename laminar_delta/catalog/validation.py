"""Examining a checkpoint: its own rules, its row's digest, its children. Bad data is a finding, never an exception."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import child_rows, children_problem, load_manifest
from laminar_delta.catalog.chunks import raw_of
from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.sidecar import examine_checksum, examine_operators
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.errors import CorruptionError, LaminarDeltaError
from laminar_delta.model.findings import Finding, Severity, validate_manifest

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row


def examine(reading: Reading, row: Row) -> list[Finding]:
    """Everything there is to say about a checkpoint, in a fixed order. Raises only where storage does not answer."""
    digest = row_digest(row, without=["content_digest"])
    if digest != row["content_digest"]:
        changed = f"manifest row changed: saved as {row['content_digest']}, found {digest}"
        return [_fatal("manifest-changed", changed)]
    found: list[Finding] = []
    chunks: list[Row] = []
    for child in row["children"]:
        try:
            rows = child_rows(reading, row, child["table"])
        except LaminarDeltaError as error:
            raise_unless_damage(error)
            found.append(_fatal("children-unreadable", f"{child['table']} cannot be read: {error}"))
            continue
        found.extend(_examine_children(child, rows))
        if child["table"] == OPERATOR_SNAPSHOTS.name:
            chunks = rows
    found.extend(examine_checksum(row, chunks))
    if not any(finding.is_fatal for finding in found):
        found.extend(examine_operators(row, chunks))
        found.extend(_examine_manifest(reading, row))
    if row["epoch"] == 0 or row["checkpoint_id"] == 0:
        found.append(_fatal("zero", "epoch or checkpoint_id is 0 — likely corrupted"))
    return found


def _examine_children(child: Row, rows: list[Row]) -> Iterator[Finding]:
    problem = children_problem(child, rows)
    if problem is not None:
        yield _fatal(*problem)
    elif child["table"] == OPERATOR_SNAPSHOTS.name:
        for chunk in rows:
            try:
                raw_of(chunk)
            except CorruptionError as error:
                yield _fatal("state-changed", error.message)


def _examine_manifest(reading: Reading, row: Row) -> Iterator[Finding]:
    try:
        yield from validate_manifest(load_manifest(reading, row))
    except LaminarDeltaError as error:
        raise_unless_damage(error)
        yield _fatal("manifest-unreadable", f"manifest cannot be put together: {error}")


def _fatal(code: str, message: str) -> Finding:
    return Finding(severity=Severity.FATAL, code=code, message=message)
