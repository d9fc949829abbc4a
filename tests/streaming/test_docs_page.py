"""The examples of the streaming page, run one after another on Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.streams import quick
from tests.test_docs import FENCE, ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_examples_run(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    page = (ROOT / "docs" / "streaming.md").read_text()
    blocks = [match[3] for match in FENCE.finditer(page) if "test_docs_page.py" in match[2]]
    assert len(blocks) == 2
    known: dict[str, object] = {"__name__": "block", "spark": quick(spark)}
    for code in blocks:
        exec(compile(code, "block", "exec"), known)
