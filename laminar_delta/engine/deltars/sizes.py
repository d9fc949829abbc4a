"""How much a table's files take, as its log tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.engine.answer import PartitionSize

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PREFIX = "partition."


def partition_sizes(handle: DeltaTable) -> list[PartitionSize]:
    """The sizes of the version a handle stands at."""
    columns = handle.metadata().partition_columns
    actions = pa.table(handle.get_add_actions(flatten=True)).to_pylist()
    return summed(({name: row[f"{_PREFIX}{name}"] for name in columns}, row["size_bytes"]) for row in actions)


def summed(files: Iterable[tuple[Mapping[str, object], int]]) -> list[PartitionSize]:
    """Files of one partition together."""
    found: dict[tuple[tuple[str, object], ...], tuple[int, int]] = {}
    for partition, size in files:
        key = tuple(partition.items())
        count, total = found.get(key, (0, 0))
        found[key] = count + 1, total + size
    return [PartitionSize(partition=dict(key), files=n, size_bytes=total) for key, (n, total) in found.items()]
