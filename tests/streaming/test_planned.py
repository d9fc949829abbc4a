"""What is kept of a batch's logs, as Spark wrote them."""

import json
from pathlib import Path
from typing import Any

from laminar_delta.interop.sparkdir.sourcelogs import LONGEST_SOURCE_LOG
from laminar_delta.streaming.query import Directory, RunningQuery


def test_a_batch_over_many_files_is_kept_however_long_its_list_is(tmp_path: Path) -> None:
    for name in ("offsets", "sources/0"):
        (tmp_path / name).mkdir(parents=True)
    said = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
    (tmp_path / "offsets" / "0").write_text(f'v1\n{said}\n{{"logOffset":0}}')
    line = json.dumps({"path": "file:///in/events.json", "timestamp": 1, "batchId": 0})
    listed = "\n".join(["v1", *[line] * (LONGEST_SOURCE_LOG // len(line) + 1)])
    (tmp_path / "sources" / "0" / "0").write_text(listed)
    no_spark: Any = None  # a directory of this machine is read without
    query = RunningQuery(query_id="q", run_id=None, directory=Directory(str(tmp_path), no_spark))
    assert query.planned(0).texts["sources/0/0"] == listed
