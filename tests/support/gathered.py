"""States put together from chunks the way executors do it, with Spark's part done here: bringing together and sorting."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from laminar_delta.catalog.reading import Row
from laminar_delta.catalog.state.layout import Layout
from laminar_delta.catalog.state.streaming import CHUNK_COLUMNS
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.distributed.gathering import INLINE, ORDER, RUNS, in_order, wanted_runs

_CHUNKS = pa.schema([OPERATOR_SNAPSHOTS.schema.field(name) for name in CHUNK_COLUMNS])


def runs_of(layouts: Sequence[Layout], chunks: Sequence[Row], per_batch: int = 3) -> list[Row]:
    """What goes from the first step to the second, in its order."""
    given = [{name: row[name] for name in CHUNK_COLUMNS} for row in chunks]
    found = wanted_runs({_key(layout): [layout] for layout in layouts}, batches(given, _CHUNKS, per_batch))
    rows = [row for batch in found for row in batch.to_pylist()]
    first = {"member": INLINE, "position": 0, "data": None}
    rows += [{**dict(zip(ORDER, _key(layout), strict=False)), **first} for layout in layouts]
    return sorted(rows, key=lambda row: [row[name] for name in ORDER])


def gathered(layouts: Sequence[Layout], chunks: Sequence[Row], per_batch: int = 3) -> dict[tuple[str, int], bytes]:
    """The states by operator and partition."""
    lines = {_key(layout): [layout] for layout in layouts}
    given = batches(runs_of(layouts, chunks, per_batch), RUNS, per_batch)
    return {key: b"".join(pieces) for key, pieces in in_order(lines, given)}


def batches(rows: Sequence[Row], schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    """Rows as they come from Spark."""
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(list(rows[at : at + size]), schema=schema)


def _key(layout: Layout) -> tuple[str, int]:
    return layout.operator, layout.partition
