"""Payload files: rows that are large, or large together, are written by Arrow itself and handed to delta-rs as files to add.

delta-rs would take them through a query engine, at a quarter of the speed and several times the memory. The files are ordinary
Parquet of the table's columns; they are in no version before the commit that names them, and nobody's if it never comes.
Executors write theirs the same way, also to an object store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from deltalake.transaction import AddAction

from laminar_delta.engine.local.place import local_path

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

PAYLOAD_BYTES = 32 << 10
"""Rows of this size on average are payloads."""
TOGETHER_BYTES = 1 << 20
"""So many bytes in binary columns are payloads in rows of any size: states of many small partitions come to parts as large as
those of one large state."""
ROW_GROUP_BYTES = 3 << 19
"""How much of payloads is read to get at one of them, at most. Of a long chain every window of a state needs a chunk or two of
each checkpoint: larger groups would be read several times over. Each group costs time to read: of
smaller ones a load of a fresh snapshot takes longer. See the benchmark `state`."""


def are_payloads(rows: pa.Table) -> bool:
    """Whether rows are large enough to be written as payloads."""
    if not rows.num_rows:
        return False
    together = sum(column.nbytes for column in rows.columns if pa.types.is_binary(column.type))
    return rows.nbytes >= PAYLOAD_BYTES * rows.num_rows or together >= TOGETHER_BYTES


def files_of(location: str, table: str, options: Mapping[str, str] | None = None) -> FileSystem:
    """The place of a table's files: below a directory, or in the object store that delta-rs opens with these options."""
    # Imported where they are used, here and below: they take as long as all else that opening a catalog imports.
    from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

    root = local_path(location)
    if root is not None:
        return SubTreeFileSystem(str(root / table), LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return PyFileSystem(DeltaStorageHandler(f"{location}/{table}", dict(options or {})))


def write_files(
    files: FileSystem, rows: pa.Table, partition_by: Sequence[str], stats: Sequence[str]
) -> list[AddAction]:
    """Writes rows among a table's files, a file for each partition among them.

    Args:
        files: The table's; see `files_of`.
        rows: In the table's columns.
        partition_by: The table's partition columns.
        stats: The columns whose bounds go into the log.

    Returns:
        What the commit has to add.
    """
    return [
        _write(files, part.drop_columns(list(partition_by)), values, stats)
        for values, part in _partitions(rows, partition_by)
    ]


def _partitions(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[tuple[dict[str, str], pa.Table]]:
    import pyarrow.compute as pc

    if not partition_by:
        yield {}, rows
        return
    keys = rows.select(list(partition_by)).group_by(list(partition_by)).aggregate([]).to_pylist()
    for key in keys:
        values = {name: str(value) for name, value in key.items()}
        if len(keys) == 1:
            # Nearly always: not worth a copy of everything.
            yield values, rows
            return
        matches = [pc.equal(rows[name], pa.scalar(value, rows.schema.field(name).type)) for name, value in key.items()]
        yield values, rows.filter(reduce(pc.and_, matches))


def _write(files: FileSystem, rows: pa.Table, values: dict[str, str], stats: Sequence[str]) -> AddAction:
    import pyarrow.parquet as pq

    # Delta takes partitions from the log, never from names: a pipeline's name in a path would need escaping twice.
    name = f"part-{uuid4()}.parquet"
    per_group = max(1, rows.num_rows * ROW_GROUP_BYTES // max(1, rows.nbytes))
    known = [name for name in stats if name in rows.column_names]
    try:
        with files.open_output_stream(name, compression=None) as sink:
            pq.write_table(
                rows, sink, compression="none", use_dictionary=False, write_statistics=known, row_group_size=per_group
            )
    except BaseException:
        # Half a file is of no use; on a full disk it is in the way. An object store that is out of reach raises anything.
        with suppress(Exception):
            files.delete_file(name)
        raise
    return AddAction(
        path=name,
        size=files.get_file_info(name).size,
        partition_values=values,
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(_bounds(rows, known)),
    )


def _bounds(rows: pa.Table, columns: Sequence[str]) -> dict[str, object]:
    import pyarrow.compute as pc

    low: dict[str, object] = {}
    high: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        nulls[name] = rows[name].null_count
        least = pc.min(rows[name]).as_py()
        if least is not None:
            low[name], high[name] = least, pc.max(rows[name]).as_py()
    return {"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
