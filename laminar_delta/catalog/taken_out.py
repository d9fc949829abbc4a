"""Pipelines whose manifest rows somebody took out or changed: one look for all of them, and a dear one only where it shows.

The log tells of every commit that may have done it. As a rule there is none, and then every row is as it was committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.catalog.attempt import births
from laminar_delta.catalog.committed import is_intact
from laminar_delta.catalog.healing import FoundRows, find_rows
from laminar_delta.catalog.losses import losses, taken_rows
from laminar_delta.catalog.tables import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laminar_delta.catalog.reading import Reading
    from laminar_delta.catalog.standing import Standing
    from laminar_delta.engine.answer import HistoryEntry


def taken_out(reading: Reading, decided: Mapping[str, Standing]) -> dict[str, FoundRows]:
    """By pipeline all its rows that can be had, for those of which some are not as they were committed.

    Args:
        reading: Where.
        decided: What was decided on the pipelines' checkpoints: rows that maintenance removed are missed by nobody.
    """
    entries = reading.history(MANIFESTS).entries
    if not any(losses(entries)):
        return {}
    there: set[tuple[str, int]] = set()
    harmed: set[str] = set()
    # Batch by batch: with the state inside them all rows of a catalog can be a lot.
    for batch in reading.batches(MANIFESTS, columns=MANIFESTS.schema.names):
        for row in batch.to_pylist():
            there.add((row["pipeline"], row["checkpoint_id"]))
            if not is_intact(row):
                harmed.add(row["pipeline"])
    for pipeline, number in _committed(reading, entries) - there:
        if pipeline not in decided or number not in decided[pipeline].removed:
            harmed.add(pipeline)
    return {pipeline: find_rows(reading, pipeline) for pipeline in sorted(harmed)}


def _committed(reading: Reading, entries: list[HistoryEntry]) -> set[tuple[str, int]]:
    """The checkpoints, by pipeline and id, that the log tells of, or a version before rows were taken out."""
    columns = ["pipeline", "checkpoint_id"]
    taken = taken_rows(reading, MANIFESTS, entries, lambda before: before.rows(MANIFESTS, columns=columns))
    found = {(row["pipeline"], row["checkpoint_id"]) for _, row in taken.rows}
    for entry in entries:
        for born in births(entry):
            pipeline, number = born.get("pipeline"), born["checkpoint"]
            if isinstance(pipeline, str) and isinstance(number, int):
                found.add((pipeline, number))
    return found
