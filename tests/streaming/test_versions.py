"""Which version of a table a checkpoint left, without a JVM: delta-rs writes the tables."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import laminar_delta as ld
from laminar_delta.errors import NotFoundError
from laminar_delta.streaming import Batch, DeltaSink, restore_spark_checkpoint
from tests.support.stream_plans import Asked, DeltaFrame, Planned


def test_a_batch_that_gave_a_table_nothing_has_the_version_before(tmp_path: Path) -> None:
    """A rewind to it takes the table there; only what the history does not have any more is not found."""
    catalog = ld.open_catalog("memory", engine="memory")
    first, place = Planned(tmp_path / "first"), tmp_path / "lake" / "out"

    def run(query: Planned, batch: int, *numbers: int, **options: Any) -> int:
        def fn(frame: Any, batch: Batch) -> Any:
            return frame if numbers else None

        return query.run(catalog, batch, DeltaFrame(*numbers), fn, [DeltaSink(place)], **options).checkpoint_id

    def version(number: int, name: str | None = None) -> int:
        return DeltaSink(place, name=name).version_of(catalog, "orders", number, asked)

    asked: Any = Asked()
    nothing_yet = run(first, 0)
    ids = [run(first, batch, *numbers) for batch, numbers in enumerate([(1,), (), (), (2,), ()], 1)]
    assert [version(number) for number in ids] == [0, 0, 0, 1, 1]
    # Whatever it is called here.
    assert [version(number, "other") for number in ids] == [0, 0, 0, 1, 1]
    with pytest.raises(NotFoundError, match="does not have the batch"):
        version(nothing_yet)
    # A line that was taken back, before it gave the table anything: what the batch it went back to left.
    with catalog.writer("orders") as writer:
        derived = writer.rewind(ids[2], reason="the fifth was wrong")
    made = restore_spark_checkpoint(catalog, "orders", derived.checkpoint_id, tmp_path / "again")
    again = Planned(tmp_path / "again", made.query_id)
    assert version(run(again, 4)) == 0
    left = version(run(again, 5, 3))
    assert left == DeltaTable(place).version()
    # One that begins anew adds to what the line before it left.
    reset = Planned(tmp_path / "reset")
    assert version(run(reset, 0)) == left
    # It was given something, and the table does not have it.
    with pytest.raises(NotFoundError, match="does not have the batch"):
        DeltaSink(tmp_path / "lake" / "elsewhere", name="out").version_of(catalog, "orders", ids[0], asked)
