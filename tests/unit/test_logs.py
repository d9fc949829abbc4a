"""Log records have stable names, and are JSON where that is wanted."""

import json
import logging
import re
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.logs import Event, JsonFormatter, log_event

PACKAGE = Path(ld.__file__).parent


def test_a_record_is_one_json_object_with_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("laminar_delta.test")
    try:
        raise ValueError("broken\nin two")
    except ValueError as error:
        with caplog.at_level(logging.INFO, "laminar_delta"):
            log_event(logger, logging.WARNING, Event.SINK_STATUS, "sink %s", "a\nb", cause=error, pipeline="ü", n=1)
    line = JsonFormatter().format(caplog.records[0])
    assert "\n" not in line
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", found.pop("at"))
    assert "ValueError: broken" in found.pop("exception")
    assert found == {
        "level": "warning",
        "logger": "laminar_delta.test",
        "event": "sink.status",
        "message": "sink a\nb",
        "fields": {"pipeline": "ü", "n": 1},
    }
    assert caplog.records[0].filename == "test_logs.py"


def test_a_line_can_be_written_whatever_words_it_holds() -> None:
    line = JsonFormatter().format(logging.makeLogRecord({"msg": "cannot move f\udcff", "levelname": "INFO"}))
    assert json.loads(line.encode())["message"] == "cannot move f\udcff"


def test_records_of_others_are_formatted_too() -> None:
    found = json.loads(JsonFormatter().format(logging.makeLogRecord({"msg": "plain", "levelname": "INFO"})))
    assert (found["event"], found["message"], found["fields"]) == (None, "plain", {})


def test_a_life_is_told_in_events(caplog: pytest.LogCaptureFixture) -> None:
    catalog = ld.open_catalog("x", engine="memory", store={})
    with caplog.at_level(logging.INFO, "laminar_delta"):
        with catalog.writer("orders", owner="job-7") as writer:
            for _ in range(2):
                with writer.checkpoint() as cp:
                    cp.sink("warehouse")
            writer.sink_committed(1, "warehouse")
            writer.sink_failed(2, "warehouse", "full")
            writer.recover()
        catalog.pipeline("orders").pin(1, reason="audit")
        catalog.maintain()
    told = [(getattr(record, "event", None), record.levelname) for record in caplog.records]
    assert told == [
        ("writer.taken", "INFO"),
        ("checkpoint.committed", "INFO"),
        ("checkpoint.committed", "INFO"),
        ("sink.status", "INFO"),
        ("sink.status", "WARNING"),
        ("retention.decided", "INFO"),
        ("recovery.done", "WARNING"),
        ("writer.released", "INFO"),
        ("retention.decided", "INFO"),
        ("maintenance.done", "INFO"),
    ]
    recovery = next(record for record in caplog.records if getattr(record, "event", "") == "recovery.done")
    fields = recovery.fields  # type: ignore[attr-defined]  # set by `log_event`
    assert (fields["pipeline"], fields["chosen_id"], fields["skipped"][0]["checkpoint_id"]) == ("orders", 1, 2)


def test_every_event_is_logged_somewhere_and_nothing_is_said_above_debug_without_one() -> None:
    source = {path: path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "logs.py"}
    for event in Event:
        assert any(f"Event.{event.name}" in text for text in source.values()), event
    nameless = [
        str(path) for path, text in source.items() if re.search(r"_LOG\.(info|warning|error|exception)\(", text)
    ]
    assert nameless == []
