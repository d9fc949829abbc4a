"""What saving frames refuses before any executor runs, and before the driver commits what it does not see."""

import time
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake.transaction import AddAction

from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.state.policy import DEFAULT_POLICY
from laminar_delta.distributed.saving import check_there, stage_frame
from laminar_delta.engine import open_engine
from laminar_delta.errors import InvalidInputError, StorageError

ATTEMPT = Attempt(pipeline="orders", checkpoint_id=1, attempt_id="a", generation=1, owner="job")


@pytest.mark.parametrize(("engine", "place"), [("embedded", "s3://bucket/checkpoints"), ("memory", "here")])
def test_places_that_executors_cannot_write_to_are_refused(engine: str, place: str) -> None:
    frame = cast("Any", None)  # not looked at
    with pytest.raises(InvalidInputError, match="a directory that they share with the driver") as caught:
        stage_frame(open_engine(engine, place), ATTEMPT, frame, policy=DEFAULT_POLICY, upon={})
    assert caught.value.found == place
    assert "cp.state" in str(caught.value)


def _added(name: str, size: int) -> AddAction:
    return AddAction(
        path=name, size=size, partition_values={}, modification_time=int(time.time()), data_change=True, stats="{}"
    )


@pytest.mark.parametrize("size", [None, 9])
def test_files_that_the_driver_does_not_see_whole_are_not_committed(tmp_path: Path, size: int | None) -> None:
    (tmp_path / "there.parquet").write_bytes(bytes(10))
    if size is not None:
        (tmp_path / "part.parquet").write_bytes(bytes(size))
    check_there(tmp_path, [_added("there.parquet", 10)])
    with pytest.raises(StorageError, match=r"part\.parquet, which the driver does not see") as caught:
        check_there(tmp_path, [_added("there.parquet", 10), _added("part.parquet", 10)])
    assert (caught.value.expected, caught.value.found) == (10, size)
