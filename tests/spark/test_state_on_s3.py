"""State frames of a catalog on an object store, through a real S3 server: executors read it, and saving a frame is refused."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import laminar_delta as ld
from laminar_delta.errors import InvalidInputError
from tests.support.s3 import s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.soak]


def test_executors_read_with_the_drivers_credentials(spark: "SparkSession", tmp_path: Path) -> None:
    states = {("agg", 0): bytes(range(256)) * 1_000, ("agg", 1): b"small", ("inline", 0): b"in the row"}
    with s3_server(tmp_path) as server:
        server.filesystem().create_dir("bucket")
        catalog = ld.open_catalog("s3://bucket/catalog", storage_options=server.storage_options)
        writer = catalog.writer("orders")
        with writer.checkpoint() as cp:
            for (operator, partition), state in states.items():
                cp.state(operator, state, partition=partition)
        frame = catalog.pipeline("orders").state(cp.id).frame(spark)
        assert {(row["operator"], row["partition"]): bytes(row["payload"]) for row in frame.collect()} == states
        with pytest.raises(InvalidInputError, match="a directory that they share"), writer.checkpoint() as refused:
            refused.state_frame(frame)
        assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [cp.id]
