"""What workers on a table were told, held against what is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from laminar_delta.testing.conformance.tables import LINES
from laminar_delta.testing.invariants import assert_fences_rise
from laminar_delta.testing.workers import Worker

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine


def assert_nothing_acknowledged_is_lost(
    engine: Engine, workers: Sequence[Worker], rows: Sequence[Mapping[str, Any]], *, killed: bool = False
) -> None:
    """Every acknowledged attempt is in the table once, and nothing else but what a killed worker could not tell any more."""
    assert_fences_rise(engine, LINES.name)
    stored = Counter(row["attempt"] for row in rows)
    assert not [attempt for attempt, count in stored.items() if count > 1]
    acknowledged = {line["attempt"] for worker in workers for line in worker.said if line["told"] == "committed"}
    refused = {line["attempt"] for worker in workers for line in worker.said if line["told"] != "committed"}
    assert acknowledged <= set(stored)
    assert not refused & set(stored)
    if not killed:
        assert set(stored) == acknowledged
