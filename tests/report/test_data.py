"""What a report tells is what the Python API says."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import laminar_delta as ld
from laminar_delta.errors import ErrorCode, InvalidInputError, NotFoundError, NotInstalledError
from laminar_delta.report import CHARTS, chart, page, write_report
from laminar_delta.report import data as reported
from laminar_delta.report.charts import drawn
from laminar_delta.report.data import gather
from tests.support.reported import ATTACKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_checkpoints_sinks_and_recoveries_are_told_as_they_are(catalog: ld.Catalog) -> None:
    data = gather(catalog, ["orders"]).pipelines[0]
    orders = catalog.pipeline("orders")
    assert [row["id"] for row in data.checkpoints] == [head.checkpoint_id for head in orders.list()]
    assert [row["epoch"] for row in data.checkpoints] == [20, 30, 50]
    assert [row["owner"] for row in data.checkpoints] == ["job-7", "job-7", "job-8"]
    assert [row["id"] for row in data.checkpoints if row["pinned"]] == [2]
    assert {(row["id"], row["sink"], row["status"]) for row in data.sinks} == {
        (2, "warehouse", "Committed"),
        (3, "warehouse", "Committed"),
    }
    assert [(row["chosen"], row["skipped"], row["owner"]) for row in data.recoveries] == [
        (3, 1, "job-8"),
        (5, 0, "ops"),
    ]
    assert data.recoveries[0]["why"] == "4 skipped: undelivered: sink 'warehouse' is Failed: timeout"
    offsets = {(row["id"], row["source"]): row["offset"] for row in data.offsets}
    assert offsets[3, "kafka 0"] == 3000
    assert offsets[5, "kafka 0"] == 5000
    lanes = {event["lane"] for event in data.events}
    assert lanes == {"checkpoints", "recoveries", "writers", "decisions"}
    summary = data.summary()
    assert (summary["latest"], summary["outcome"], summary["delivered"], summary["pinned"]) == (5, "delivered", 5, 1)


def test_storage_tells_what_is_live_pinned_and_to_be_given_back(catalog: ld.Catalog) -> None:
    data = {pipeline.name: pipeline for pipeline in gather(catalog, ["orders", "changing", "forked"]).pipelines}
    storage = {row["standing"]: row["bytes"] for row in data["orders"].storage}
    (told,) = [found for found in catalog.usage().pipelines if found.pipeline == "orders"]
    # 1 and 4 are retired, 2 is pinned.
    assert set(storage) == {"live", "pinned", "reclaimable"}
    assert storage["live"] + storage["pinned"] == told.live_bytes
    assert (storage["pinned"], storage["reclaimable"]) == (told.pinned_bytes, told.reclaimable_bytes)
    sizes = {(row["id"], row["form"]): row["bytes"] for row in data["changing"].sizes}
    assert sizes == {(8, "full"): 50_000, (9, "delta"): 2048}
    assert [(row["id"], row["needs"], row["needed"]) for row in data["changing"].checkpoints] == [
        (8, 0, ""),
        (9, 1, "8"),
    ]
    assert [row["needed"] for row in data["forked"].checkpoints] == ["orders 2", "orders 2"]
    assert [row["derived"] for row in data["forked"].checkpoints] == ["fork", "edit"]


def test_state_that_is_inline_in_manifests_is_told_like_any_other(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    with catalog.writer("small") as writer, writer.checkpoint() as cp:
        cp.state("agg", b"s" * 10_000)
    (data,) = gather(catalog).pipelines
    assert data.summary()["bytes"] == 10_000
    assert [row["state_bytes"] for row in data.checkpoints] == [10_000]


def test_a_save_took_from_its_attempt_to_its_commit(catalog: ld.Catalog) -> None:
    committed = {
        entry.attempt_id: entry.timestamp_ms
        for entry in catalog.audit(pipeline="orders")
        if (entry.table, entry.operation) == ("manifests", "save")
    }
    heads = {head.checkpoint_id: head for head in catalog.pipeline("orders").list()}
    for row in gather(catalog, ["orders"]).pipelines[0].checkpoints:
        head = heads[row["id"]]
        # The time of a manifest is taken when its attempt begins.
        assert row["duration_ms"] == pytest.approx(committed[head.attempt_id] - head.timestamp_ms, abs=5)


def test_what_a_pipeline_waits_for_is_in_the_overview(catalog: ld.Catalog) -> None:
    name = ATTACKS[0]
    summary = gather(catalog, [name]).pipelines[0].summary()
    assert (summary["outcome"], summary["waiting"], summary["delivered"]) == ("abandoned", f"{name}: Failed", None)


def test_a_checkpoint_is_worth_what_its_sinks_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    with catalog.writer("orders") as writer:
        for number in range(1, 5):
            with writer.checkpoint() as cp:
                for sink in ("a", "b")[: number - 1]:
                    cp.sink(sink)
        writer.sink_committed(2, "a")
        writer.sink_committed(3, "a")
        writer.sink_committed(4, "a")
        writer.sink_failed(4, "b", "full")
    data = gather(catalog).pipelines[0]
    assert [row["outcome"] for row in data.checkpoints] == ["delivered", "delivered", "pending", "failed"]
    summary = data.summary()
    assert (summary["outcome"], summary["waiting"], summary["delivered"]) == ("failed", "b: Failed", 2)
    assert catalog.pipeline("orders").recover(dry_run=True).chosen_id == 2
    # Of many pipelines less is shown of each, and the answers stay the same.
    monkeypatch.setattr(reported, "ALTOGETHER", 1)
    monkeypatch.setattr(reported, "FEWEST", 1)
    cut = gather(catalog).pipelines[0]
    assert [row["id"] for row in cut.checkpoints] == [4]
    assert cut.summary() == summary


def test_long_histories_are_cut_and_say_so(catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reported, "NEWEST", 2)
    monkeypatch.setattr(reported, "SERIES", 1)
    data = gather(catalog, ["orders"]).pipelines[0]
    assert [row["id"] for row in data.checkpoints] == [3, 5]
    assert {row["id"] for row in (*data.sinks, *data.sizes, *data.offsets)} <= {3, 5}
    assert data.notes[0] == "The newest 2 of 3 checkpoints are shown."
    assert data.notes[1].startswith("Offsets of 1 of ")


def test_a_catalog_as_it_was_and_an_empty_one_can_be_reported_on(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    write_report(catalog, tmp_path / "empty.html")
    assert "There are no checkpoints yet." in (tmp_path / "empty.html").read_text()
    with catalog.writer("orders") as writer:
        for _ in range(2):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": "1"})
    then = catalog.as_of(versions={"manifests": catalog.engine.version("manifests") - 1})
    assert [row["id"] for row in gather(then).pipelines[0].checkpoints] == [1]


def test_every_chart_can_be_drawn_in_a_notebook(catalog: ld.Catalog) -> None:
    data = gather(catalog, ["orders"]).pipelines[0]
    for name in CHARTS:
        made = drawn(data, name).to_dict(validate=True)
        assert made["title"].startswith("orders: ")
        (rows,) = made["datasets"].values() if "datasets" in made else [made["data"]["values"]]
        assert rows, name
    assert chart(catalog, "orders", "offsets").to_dict() == drawn(data, "offsets").to_dict()


def test_mistakes_are_named_and_leave_nothing(catalog: ld.Catalog, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no-such"):
        write_report(catalog, tmp_path / "report.html", pipelines=["orders", "no-such"])
    with pytest.raises(InvalidInputError, match="timeline, sizes"):
        chart(catalog, "orders", "pie")
    with pytest.raises(InvalidInputError, match="is no place for a file"):
        write_report(catalog, tmp_path / "missing" / "report.html")
    with pytest.raises(InvalidInputError, match="is no place for a file"):
        write_report(catalog, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_without_the_extra_it_says_what_to_install(
    catalog: ld.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    page._libraries.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    with pytest.raises(NotInstalledError, match=r"pip install 'laminar-delta\[report\]'") as caught:
        write_report(catalog, tmp_path / "report.html")
    assert caught.value.code is ErrorCode.NOT_INSTALLED
    assert list(tmp_path.iterdir()) == []
    # What notebooks show of objects needs neither.
    assert "orders" in catalog._repr_html_()


@pytest.mark.spark
@pytest.mark.soak
def test_spark_tells_the_same(catalog: ld.Catalog, spark: "SparkSession") -> None:
    from laminar_delta.engine.spark import SparkEngine

    there = ld.Catalog(SparkEngine(catalog.engine.location, spark=spark))
    here, answer = gather(catalog), gather(there)
    assert [pipeline.name for pipeline in answer.pipelines] == [pipeline.name for pipeline in here.pipelines]
    for pipeline, other in zip(here.pipelines, answer.pipelines, strict=True):
        # Spark takes the time of a commit from its file, delta-rs from what it says: some milliseconds lie between.
        took = [[row.pop("duration_ms") is None for row in found.checkpoints] for found in (pipeline, other)]
        assert took[0] == took[1]
        assert other == pipeline
    assert [row["operation"] for row in answer.audit] == [row["operation"] for row in here.audit]
