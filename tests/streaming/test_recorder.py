"""What queries say is recorded in batches, off their thread; what goes wrong is counted and never theirs."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import QUERY_PROGRESS
from laminar_delta.errors import CommitUnknownError, InvalidInputError, StorageError
from laminar_delta.streaming.progress import PROGRESS, STARTED, TERMINATED, Told
from laminar_delta.streaming.recorder import Recorder, pipeline_by
from tests.support.catalogs import QUICK_ENGINES, catalog_opener

SAID = {
    "id": "q",
    "runId": "r",
    "name": "orders",
    "timestamp": "2026-11-16T18:42:46.310Z",
    "batchId": 7,
    "batchDuration": 1500,
    "numInputRows": 4,
    "inputRowsPerSecond": 2.5,
    "processedRowsPerSecond": 2,
    "durationMs": {"addBatch": 900, "walCommit": 30},
    "eventTime": {"watermark": "2024-01-01T00:00:00.000Z"},
    "stateOperators": [
        {"operatorName": "save", "numRowsTotal": 4, "memoryUsedBytes": 1488, "customMetrics": {"hits": -1, "odd": "x"}},
        {"operatorName": "join", "numRowsTotal": 6, "memoryUsedBytes": 12, "commitTimeMs": 17},
    ],
    "sources": [
        {"description": "Kafka", "startOffset": None, "endOffset": {"t": {"0": 5}}, "numInputRows": 4},
        {"description": "rate", "startOffset": 3, "endOffset": 4, "metrics": {"lag": "9"}},
    ],
    "sink": {"description": "DeltaSink[x]", "numOutputRows": -1},
}


@pytest.fixture(params=QUICK_ENGINES)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return catalog_opener(request.param, tmp_path / "catalog", request)()


def told(number: int = 7, **more: Any) -> Told:
    return Told(
        event=PROGRESS,
        query_id="q",
        run_id="r",
        query_name="orders",
        progress=json.dumps({**SAID, "batchId": number, **more}),
    )


def recorder(catalog: ld.Catalog, **options: Any) -> Recorder:
    return Recorder(catalog.engine, pipeline_by(None), owner="me", **{"every_s": 3600, **options})


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # the thread that is waited for needs the processor too


def batches(catalog: ld.Catalog) -> list[int]:
    return [
        row["batch_id"] for row in catalog.sql("SELECT batch_id FROM progress_history ORDER BY batch_id").to_pylist()
    ]


def test_an_event_is_taken_apart_for_sql(catalog: ld.Catalog) -> None:
    recording = recorder(catalog)
    recording.tell(Told(event=STARTED, query_id="q", run_id="r", timestamp="2026-11-16T18:42:45.850Z"))
    recording.tell(told())
    recording.tell(Told(event=TERMINATED, query_id="q", run_id="r", error="it broke"))
    assert recording.close()
    rows = catalog.sql("SELECT * FROM progress_history ORDER BY told_at, event").to_pylist()
    assert [(row["event"], row["pipeline"], row["error"]) for row in rows] == [
        ("started", None, None),
        ("progress", "orders", None),
        ("terminated", None, "it broke"),
    ]
    assert {
        name: rows[1][name] for name in ("batch_id", "batch_ms", "input_rows", "state_rows", "state_bytes", "sources")
    } == {
        "batch_id": 7,
        "batch_ms": 1500,
        "input_rows": 4,
        "state_rows": 10,
        "state_bytes": 1500,
        "sources": 2,
    }
    assert (rows[1]["input_rows_per_second"], rows[1]["processed_rows_per_second"]) == (2.5, 2.0)
    assert (rows[1]["watermark"], rows[1]["output_rows"]) == (1_704_067_200_000, None)
    assert rows[1]["told_at"].isoformat() == "2026-11-16T18:42:46.310000+00:00"
    durations = catalog.sql("SELECT phase, elapsed_ms FROM progress_durations ORDER BY phase").to_pylist()
    assert [tuple(row.values()) for row in durations] == [("addBatch", 900), ("walCommit", 30)]
    query = "SELECT description, start_offset, end_offset, input_rows FROM progress_sources ORDER BY description"
    assert [tuple(row.values()) for row in catalog.sql(query).to_pylist()] == [
        ("Kafka", None, '{"t":{"0":5}}', 4),
        ("rate", "3", "4", None),
    ]
    query = "SELECT operator, rows_total, memory_bytes, commit_ms FROM progress_state ORDER BY operator"
    assert [tuple(row.values()) for row in catalog.sql(query).to_pylist()] == [
        ("join", 6, 12, 17),
        ("save", 4, 1488, None),
    ]
    (stored,) = [row for row in catalog.engine.read(QUERY_PROGRESS.name).to_pylist() if row["event"] == PROGRESS]
    assert json.loads(stored["progress"]) == SAID
    assert stored["state_operators"][0]["metrics"] == [("hits", -1)]
    assert next(entry.owner for entry in catalog.audit() if entry.table == QUERY_PROGRESS.name) == "me"


def test_many_events_are_one_commit(catalog: ld.Catalog) -> None:
    recording = recorder(catalog)
    for number in range(50):
        recording.tell(told(number))
    recording.close()
    assert batches(catalog) == list(range(50))
    assert catalog.engine.version(QUERY_PROGRESS.name) == 1
    assert (recording.counts.told, recording.counts.recorded, recording.counts.dropped) == (50, 50, 0)


def test_a_query_never_waits_and_what_does_not_fit_is_counted(catalog: ld.Catalog) -> None:
    entered, go = threading.Event(), threading.Event()
    really = catalog.engine.append

    def slow(*arguments: Any, **named: Any) -> Any:
        entered.set()
        assert go.wait(60)
        return really(*arguments, **named)

    recording = recorder(catalog, capacity=3, batch_rows=1)
    with patch.object(type(catalog.engine), "append", lambda _, *arguments, **named: slow(*arguments, **named)):
        recording.tell(told(0), soon=True)
        assert entered.wait(60)
        for number in range(1, 6):
            recording.tell(told(number))  # returns, although nothing can be written
        go.set()
        recording.close()
    assert batches(catalog) == [0, 1, 2, 3]
    assert (recording.counts.told, recording.counts.recorded, recording.counts.dropped) == (6, 4, 2)
    recording.tell(told(9))
    assert recording.counts.dropped == 3


def failing_once(catalog: ld.Catalog, error: Exception, *, after: bool) -> Callable[..., Any]:
    really = catalog.engine.append
    failed: list[Exception] = []

    def append(_: Any, *arguments: Any, **named: Any) -> Any:
        if after and not failed:
            really(*arguments, **named)
        if not failed:
            failed.append(error)
            raise error
        return really(*arguments, **named)

    return append


@pytest.mark.parametrize("after", [False, True], ids=["not-written", "answer-lost"])
def test_a_failed_write_is_tried_again_and_nothing_is_there_twice(catalog: ld.Catalog, after: bool) -> None:
    error = CommitUnknownError("who knows") if after else StorageError("disk full")
    recording = recorder(catalog, every_s=0.01)
    with patch.object(type(catalog.engine), "append", failing_once(catalog, error, after=after)):
        recording.tell(told(1), soon=True)
        recording.tell(told(2))
        wait_for(lambda: recording.counts.recorded == 2)
    recording.close()
    assert batches(catalog) == [1, 2]
    assert recording.counts.failures == 1
    assert recording.counts.last_error == str(error)


def test_what_cannot_be_written_to_the_end_is_counted_and_raises_nothing(catalog: ld.Catalog) -> None:
    def broken(_: Any, *arguments: Any, **named: Any) -> Any:
        raise StorageError("gone")

    recording = recorder(catalog)
    with patch.object(type(catalog.engine), "append", broken):
        recording.tell(told(1))
        recording.tell(Told(event=PROGRESS, query_id="q", run_id="r", progress="{half a"))
        assert recording.close()
    assert (recording.counts.recorded, recording.counts.dropped, recording.counts.failures) == (0, 2, 1)
    assert recording.counts.last_error is not None


def test_every_event_that_is_lost_at_the_end_is_counted(catalog: ld.Catalog) -> None:
    """Also those behind the batch that could not be written."""

    def broken(_: Any, *arguments: Any, **named: Any) -> Any:
        raise StorageError("gone")

    recording = recorder(catalog, batch_rows=10)
    with patch.object(type(catalog.engine), "append", broken):
        for number in range(25):
            recording.tell(told(number))
        assert recording.close()
    assert (recording.counts.told, recording.counts.recorded, recording.counts.dropped) == (25, 0, 25)


def test_an_event_that_no_row_can_hold_does_not_hold_up_the_others(catalog: ld.Catalog) -> None:
    recording = recorder(catalog)
    recording.tell(Told(event=TERMINATED, query_id="q", run_id="r", error="half a character: \ud800"))
    for number in range(3):
        recording.tell(told(number))
    assert recording.close()
    assert batches(catalog) == [0, 1, 2]
    assert (recording.counts.recorded, recording.counts.dropped, recording.counts.failures) == (3, 1, 0)


def test_a_query_belongs_to_the_pipeline_it_is_said_to() -> None:
    by_name = pipeline_by({"orders": "main", "q2": "second"})
    assert by_name(told()) == "main"
    assert by_name(Told(event=STARTED, query_id="q2", run_id="r")) == "second"
    assert by_name(Told(event=STARTED, query_id="q3", run_id="r", query_name="other")) is None
    assert pipeline_by(None)(told()) == "orders"
    with pytest.raises(InvalidInputError):
        pipeline_by({"orders": ""})


def test_options_that_make_no_sense_are_refused(catalog: ld.Catalog) -> None:
    for option in ("capacity", "batch_rows", "every_s"):
        with pytest.raises(InvalidInputError, match=option):
            recorder(catalog, **{option: 0})


class Awake(threading.Event):
    """Has the recorder closed at the moment when it is about to forget that it was woken."""

    def __init__(self) -> None:
        super().__init__()
        self.closer: threading.Thread | None = None
        self.told_to_end = threading.Event()
        self.recording: Recorder | None = None
        self.answers: list[bool] = []

    def set(self) -> None:
        super().set()
        if self.closer is not None:
            self.told_to_end.set()

    def clear(self) -> None:
        if self.closer is None and self.recording is not None:
            closing = self.recording
            self.closer = threading.Thread(target=lambda: self.answers.append(closing.close(20)))
            self.closer.start()
            assert self.told_to_end.wait(60)
        super().clear()


def test_closed_while_it_is_being_woken_it_ends_at_once(catalog: ld.Catalog) -> None:
    recording, awake = recorder(catalog), Awake()
    recording._awake, awake.recording = awake, recording
    recording.tell(told(1), soon=True)
    wait_for(lambda: bool(awake.answers))
    assert awake.answers == [True]
    assert batches(catalog) == [1]
