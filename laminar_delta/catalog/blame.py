"""Which files keep a checkpoint from being used: for the reasons that recovery gives.

What cannot be read names its file by itself. What can be read and is not what was saved is known by its digest only, so the
files with such rows are looked for, once the checkpoint has been given up.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import child_rows, children_problem
from laminar_delta.catalog.committed import is_intact
from laminar_delta.catalog.healing import stores
from laminar_delta.catalog.reading import STATE_TABLES, named, owned_by, raise_unless_damage
from laminar_delta.catalog.state.chunks import raw_of
from laminar_delta.catalog.state.layout import LAYOUT_CHUNK, Layout
from laminar_delta.catalog.statuses import is_intact_change
from laminar_delta.catalog.tables import BY_NAME, MANIFESTS, PAYLOADS, SINK_STATUSES
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, LaminarDeltaError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.engine.predicate import Predicate


def lost_row(reading: Reading) -> str:
    """The damaged files of `manifests`, for the end of a reason; nothing where none is: somebody took the row out."""
    return named(reading.changed_files(MANIFESTS, intact=is_intact))


def missed_status(reading: Reading, row: Row) -> str:
    """The same for the status changes of a checkpoint: one that has rotted leaves its sink as it was before."""
    where = col("pipeline").eq(row["pipeline"]) & col("checkpoint_id").eq(row["checkpoint_id"])
    return named(reading.changed_files(SINK_STATUSES, where=where, intact=is_intact_change))


def changed_children(reading: Reading, row: Row) -> str:
    """The same for what belongs to a checkpoint."""
    found: list[str] = []
    for child in row["children"]:
        spec = BY_NAME[child["table"]]
        columns = [name for name in spec.schema.names if name not in PAYLOADS]
        try:
            problem = children_problem(child, child_rows(reading, row, spec.name, columns=columns))
        except LaminarDeltaError as error:
            # The finding has its words already.
            raise_unless_damage(error)
            continue
        if problem is not None:
            own = owned_by(row, spec)
            # Which of its rows it is cannot be told: their digest is over all of them.
            intact = partial(_is_anothers, own) if problem[0] == "children-changed" else None
            found.extend(reading.changed_files(spec, where=own, intact=intact))
    return named(list(dict.fromkeys([*found, *_changed_state(reading, row)])))


def _is_anothers(own: Predicate, row: Row) -> bool:
    return own.holds({None: row}) is not True


def _changed_state(reading: Reading, row: Row) -> list[str]:
    """The files with chunks that are not what was saved, of all checkpoints that store some of this one's state."""
    # Of a derived one: what the checkpoint whose state it uses is stored upon.
    numbers = [row["state_checkpoint_id"] or row["checkpoint_id"], *(number for _, number in stores(reading, row))]
    where = col("pipeline").eq(row["state_pipeline"] or row["pipeline"]) & col("checkpoint_id").is_in(numbers)
    return [
        file
        for table in STATE_TABLES
        for file in reading.engine.damaged(
            table,
            version=reading.versions.get(table),
            where=where,
            columns=BY_NAME[table].schema.names,
            intact=_is_whole,
        )
    ]


def _is_whole(chunk: Mapping[str, Any]) -> bool:
    try:
        if chunk["chunk"] == LAYOUT_CHUNK:
            Layout.from_row(dict(chunk))
        else:
            raw_of(dict(chunk))
    except CorruptionError:
        return False
    return True
