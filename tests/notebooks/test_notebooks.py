"""The notebooks run as they are, on real Spark; they assert what they show."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

DATABRICKS = """
class _Widgets:
    def __init__(self):
        self.values = {}

    def text(self, name, default):
        self.values[name] = {"catalog": "spark_catalog", "schema": "on_databricks"}[name]

    def get(self, name):
        return self.values[name]


class dbutils:
    widgets = _Widgets()


from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "ERROR")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
"""
"""What a notebook finds on Databricks: its session, and widgets that name a schema."""


def run(paths: Sequence[Path], place: Path, *, first: str = "") -> None:
    """Runs notebooks one after another in one kernel, which starts one JVM; each finds no names of the one before."""
    whole = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "", "language": "python"}}
    )
    for path in paths:
        whole.cells.append(nbformat.v4.new_code_cell(f"%reset -f\n{first}"))
        whole.cells.extend(nbformat.reads(path.read_text(), as_version=4).cells)
    NotebookClient(whole, timeout=540, resources={"metadata": {"path": str(place)}}).execute()


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return found


@pytest.mark.spark
def test_all_of_them_run(tmp_path: Path) -> None:
    run(NOTEBOOKS, tmp_path)


@pytest.mark.spark
@pytest.mark.soak
def test_they_run_on_a_schema_as_on_databricks(tmp_path: Path) -> None:
    run(NOTEBOOKS, tmp_path, first=DATABRICKS)


def test_there_is_one_for_each_task() -> None:
    names = [path.stem.partition("_")[2] for path in NOTEBOOKS]
    assert names == [
        "quick_start",
        "crash_and_recover",
        "sql_over_history",
        "audit_and_time_travel",
        "stage_and_commit_with_merge",
        "operator_state_on_spark",
        "importing_from_laminardb",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_are_kept_without_outputs(path: Path) -> None:
    nbformat.validate(nbformat.reads(path.read_text(), as_version=4))
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    source = "\n".join("".join(cell["source"]) for cell in code)
    assert "dbutils.widgets.get('catalog')" in source
    assert len(re.findall(r"^ *assert ", source, re.MULTILINE)) >= 4
