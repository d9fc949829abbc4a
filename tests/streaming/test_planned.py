"""What is kept of a batch's logs, as Spark wrote them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laminar_delta.errors import FormatError, InvalidInputError
from laminar_delta.interop.place import Limits
from laminar_delta.interop.sparkdir.sourcelogs import LONGEST_SOURCE_LOG
from laminar_delta.streaming.query import Directory, RunningQuery
from tests.support.stream_plans import Frame, Planned

NO_SPARK: Any = None  # a directory of this machine is read without


def query_at(location: str | Path) -> RunningQuery:
    return RunningQuery(query_id="q", run_id=None, directory=Directory(str(location), NO_SPARK))


def test_a_batch_over_many_files_is_kept_however_long_its_list_is(tmp_path: Path) -> None:
    for name in ("offsets", "sources/0"):
        (tmp_path / name).mkdir(parents=True)
    said = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
    (tmp_path / "offsets" / "0").write_text(f'v1\n{said}\n{{"logOffset":0}}')
    line = json.dumps({"path": "file:///in/events.json", "timestamp": 1, "batchId": 0})
    listed = "\n".join(["v1", *[line] * (LONGEST_SOURCE_LOG // len(line) + 1)])
    (tmp_path / "sources" / "0" / "0").write_text(listed)
    assert query_at(tmp_path).planned(0).texts["sources/0/0"] == listed


def test_a_query_goes_on_however_much_its_source_has_noted(tmp_path: Path) -> None:
    """Every tenth entry has a line for each file the query ever read: there is no length at which it may stop."""
    planned = Planned(tmp_path)
    planned.plan(8)
    (tmp_path / "offsets" / "9").write_text((tmp_path / "offsets" / "8").read_text().replace(":8", ":9"))
    with (tmp_path / "sources/0/9.compact").open("wb") as file:
        file.truncate(Limits().document_bytes + 1)
    found = query_at(tmp_path).planned(9)
    assert [(key, len(entry)) for key, entry in found.compacted.items()] == [((0, 9), Limits().document_bytes + 1)]


@pytest.mark.parametrize("name", ["run#1", "a?b", "100%25", "50%", "with space", "a://b"])
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_directory_is_read_where_spark_says_it_is(tmp_path: Path, name: str, scheme: str) -> None:
    """Spark tells the path as it is: nothing in it stands for another character."""
    Planned(tmp_path / name).plan(0, "file:///in/7.json")
    assert "7.json" in query_at(f"{scheme}{tmp_path / name}").planned(0).texts["sources/0/0"]


def test_a_thread_that_spark_does_not_know_needs_the_directory_named(tmp_path: Path) -> None:
    """Without pinned threads a batch comes on any thread of the JVM's, and that one works for no query."""
    planned, frame = Planned(tmp_path), Frame()
    unpinned: Any = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda name: None))
    frame.sparkSession = unpinned
    batch: Any = frame
    assert RunningQuery.of(batch, str(tmp_path)).query_id == planned.query_id
    with pytest.raises(InvalidInputError, match="checkpoint_location"):
        RunningQuery.of(batch)


def test_the_second_version_of_the_log_is_refused(tmp_path: Path) -> None:
    Planned(tmp_path)
    (tmp_path / "offsets" / "0").write_text("v2\n{}")
    with pytest.raises(FormatError, match="log version 'v2'"):
        query_at(tmp_path).planned(0)
