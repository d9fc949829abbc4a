"""Examining a checkpoint: its own rules, its row's digest, its children. Bad data is a finding, never an exception."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import child_rows, children_problem, load_manifest
from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.healing import committed_row
from laminar_delta.catalog.reading import STATE_TABLES, raise_unless_damage
from laminar_delta.catalog.sidecar import SIDECAR, SidecarDigests, damaged_sidecar, examine_checksum, examine_operators
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.catalog.tables import BY_NAME, PAYLOADS
from laminar_delta.errors import CorruptionError, ErrorCode, LaminarDeltaError
from laminar_delta.model.findings import Finding, Severity, validate_manifest

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.state.layout import Layout

HISTORY_GONE = "history-gone"
"""The finding of what was to be read as it was, and is not kept any more."""


def examine(reading: Reading, row: Row) -> list[Finding]:
    """Everything there is to say about a checkpoint, in a fixed order. Raises only where storage does not answer."""
    digest = row_digest(row, without=["content_digest"])
    if digest != row["content_digest"]:
        changed = f"manifest row changed: saved as {row['content_digest']}, found {digest}"
        return [_fatal("manifest-changed", changed)]
    found = [finding for child in row["children"] for finding in _examine_children(reading, row, child)]
    found.extend(_examine_state(reading, row))
    if not any(finding.is_fatal for finding in found):
        found.extend(_examine_manifest(reading, row))
    if row["epoch"] == 0 or row["checkpoint_id"] == 0:
        found.append(_fatal("zero", "epoch or checkpoint_id is 0 — likely corrupted"))
    return found


def missing_row(reading: Reading, pipeline: str, checkpoint_id: int) -> Finding:
    """What is wrong with a checkpoint that has no row now. Raises `NotFoundError` for one that never was, or was removed."""
    try:
        committed_row(reading, pipeline, checkpoint_id)
    except CorruptionError as error:
        return _fatal("manifest-gone", error.message)
    return _fatal("manifest-gone", "manifest row is gone: only an earlier version of the table has it")


def _examine_children(reading: Reading, row: Row, child: Row) -> Iterator[Finding]:
    columns = [name for name in BY_NAME[child["table"]].schema.names if name not in PAYLOADS]
    try:
        problem = children_problem(child, child_rows(reading, row, child["table"], columns=columns))
    except LaminarDeltaError as error:
        raise_unless_damage(error)
        if _is_gone(reading, error, child["table"]):
            yield _fatal(HISTORY_GONE, f"the history of {child['table']} is gone: {error}")
        else:
            yield _fatal("children-unreadable", f"{child['table']} cannot be read: {error}")
    else:
        if problem is not None:
            yield _fatal(*problem)


def _examine_state(reading: Reading, row: Row) -> Iterator[Finding]:
    """Every byte of the state, streamed by."""
    state = CheckpointState(reading, row)
    sidecar: SidecarDigests | None = None
    try:
        # The children were counted before, and are a finding of their own.
        layouts = state.present()
        if any(layout.operator == SIDECAR for layout in layouts):
            sidecar = SidecarDigests(row)

        def take(layout: Layout, piece: memoryview) -> None:
            if sidecar is not None and layout.operator == SIDECAR:
                sidecar.update(piece)

        state.verify_all(layouts, take)
    except CorruptionError as error:
        yield _fatal("state-changed", error.message)
        if error.details.get("operator") == SIDECAR and row["state_checksum"] is not None:
            yield damaged_sidecar(row, error)
    except LaminarDeltaError as error:
        raise_unless_damage(error)
        if _is_gone(reading, error, *STATE_TABLES):
            yield _fatal(HISTORY_GONE, f"the history of the state is gone: {error}")
        else:
            yield _fatal("state-unreadable", f"state cannot be read: {error}")
    else:
        yield from examine_checksum(row, layouts, sidecar)
        yield from examine_operators(row, layouts)


def _examine_manifest(reading: Reading, row: Row) -> Iterator[Finding]:
    try:
        yield from validate_manifest(load_manifest(reading, row))
    except LaminarDeltaError as error:
        raise_unless_damage(error)
        yield _fatal("manifest-unreadable", f"manifest cannot be put together: {error}")


def _is_gone(reading: Reading, error: LaminarDeltaError, *tables: str) -> bool:
    """Whether an earlier version was asked for, and its log or its files have been cleaned away."""
    return any(table in reading.versions for table in tables) and error.code in (
        ErrorCode.VERSION_GONE,
        ErrorCode.FILE_MISSING,
    )


def _fatal(code: str, message: str) -> Finding:
    return Finding(severity=Severity.FATAL, code=code, message=message)
