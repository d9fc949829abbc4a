"""What a piece of work reads, counted below the catalog: costs are asserted in rows and looks, never in time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from laminar_delta.engine.base import Engine


@contextmanager
def rows_read(engine: Engine, table: str) -> Iterator[list[int]]:
    """Within: the rows that every scan of a table gave, a number for each."""
    found: list[int] = []
    real = engine.scan

    def scan(name: str, **arguments: Any) -> pa.RecordBatchReader:
        stream = real(name, **arguments)
        if name != table:
            return stream
        rows = stream.read_all()
        found.append(rows.num_rows)
        return rows.to_reader()

    with patch.object(engine, "scan", scan):
        yield found
