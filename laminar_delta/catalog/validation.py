"""Examining a checkpoint: its own rules, its row's digest, its children. Bad data is a finding, never an exception."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from laminar_delta.catalog.attempt import children_digest
from laminar_delta.catalog.checkpoints import child_rows, load_manifest
from laminar_delta.catalog.chunks import raw_of
from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.errors import CorruptionError, LaminarDeltaError
from laminar_delta.model.findings import Finding, Severity, validate_manifest

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row


def examine(reading: Reading, row: Row) -> list[Finding]:
    """Everything there is to say about a checkpoint, fatal or not, in a fixed order."""
    found = list(_examine_row(row))
    if any(finding.is_fatal for finding in found):
        return found
    for child in row["children"]:
        found.extend(_examine_children(reading, row, child))
    if not any(finding.is_fatal for finding in found):
        found.extend(_examine_manifest(reading, row))
    return found


def _examine_row(row: Row) -> Iterator[Finding]:
    digest = row_digest(row, without=["content_digest"])
    if digest != row["content_digest"]:
        yield _fatal("manifest-changed", f"manifest row changed: saved as {row['content_digest']}, found {digest}")
    if row["epoch"] == 0 or row["checkpoint_id"] == 0:
        yield _fatal("zero", "epoch or checkpoint_id is 0 — likely corrupted")


def _examine_children(reading: Reading, row: Row, child: Row) -> Iterator[Finding]:
    table = child["table"]
    try:
        rows = child_rows(reading, row, table)
    except LaminarDeltaError as error:
        yield _fatal("children-unreadable", f"{table} cannot be read: {error}")
        return
    if len(rows) != child["rows"]:
        yield _fatal("children-missing", f"{table} has {len(rows)} of {child['rows']} rows")
    elif children_digest(rows) != child["digest"]:
        yield _fatal("children-changed", f"{table} holds other rows than were saved")
    elif table == OPERATOR_SNAPSHOTS.name:
        for chunk in rows:
            try:
                raw_of(chunk)
            except CorruptionError as error:
                yield _fatal("state-changed", error.message)


def _examine_manifest(reading: Reading, row: Row) -> Iterator[Finding]:
    try:
        yield from validate_manifest(load_manifest(reading, row))
    except LaminarDeltaError as error:
        yield _fatal("manifest-unreadable", f"manifest cannot be put together: {error}")


def _fatal(code: str, message: str) -> Finding:
    return Finding(severity=Severity.FATAL, code=code, message=message)
