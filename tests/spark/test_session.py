"""The engine beside a user's session: what it needs it sets in sessions of its own."""

import json
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from laminar_delta.engine.local import durability
from laminar_delta.engine.local.lock import HOLDER_FILE, Process
from laminar_delta.engine.predicate import target
from laminar_delta.engine.request import Fence, Merge
from laminar_delta.engine.spark import SparkEngine
from laminar_delta.testing.conformance.tables import LINES, line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_users_session_is_left_as_it_was(spark: "SparkSession", tmp_path: Path) -> None:
    before = spark.conf.getAll
    engine = SparkEngine(str(tmp_path / "catalog"), spark=spark)
    engine.create(LINES)
    engine.append(LINES.name, line("p", 1), fences=[Fence("a", 1)], metadata={"owner": "me"})
    engine.merge(
        LINES.name, line("p", 2), Merge(keys=("id",), scope=target("pipeline").eq("p")), fences=[Fence("a", 2)]
    )
    engine.vacuum(LINES.name, older_than_hours=1)
    assert spark.conf.getAll == before
    assert spark.catalog.listTables() == []
    # A user's own write beside it carries neither the engine's fence nor its metadata.
    place = str(tmp_path / "own")
    spark.range(3).write.format("delta").save(place)
    spark.range(3).write.format("delta").mode("append").save(place)
    assert spark.read.format("delta").load(place).count() == 6
    told = spark.sql(f"DESCRIBE HISTORY delta.`{place}`").collect()
    assert [row["userMetadata"] for row in told] == [None, None]


def test_the_jvm_that_commits_is_named_beside_the_lock_while_it_does(spark: "SparkSession", tmp_path: Path) -> None:
    engine = SparkEngine(str(tmp_path), spark=spark)
    engine.create(LINES)
    seen: list[Process] = []
    real = durability.acknowledge

    def acknowledge(table: str, directory: Path, version: int) -> None:
        seen.append(Process(**json.loads((tmp_path / HOLDER_FILE).read_text())))
        real(table, directory, version)

    with patch.object(durability, "acknowledge", acknowledge):
        engine.append(LINES.name, line("p", 1))
    assert len(seen) == 1
    assert seen[0].alive()
    assert Path(f"/proc/{seen[0].pid}/comm").read_text().strip() == "java"
    assert not (tmp_path / HOLDER_FILE).exists()
