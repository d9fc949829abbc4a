"""Structured Streaming on the catalog: checkpoints per micro-batch, resume and rewind, progress as history."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "CheckpointListener": "laminar_delta.streaming.listener",
    "capture_spark_checkpoint": "laminar_delta.streaming.capturing",
    "check_resume": "laminar_delta.streaming.checks",
    "files_read": "laminar_delta.streaming.starting",
    "restore_spark_checkpoint": "laminar_delta.streaming.restoring",
    "starting_options": "laminar_delta.streaming.starting",
}
"""Names are loaded when they are first used: some need Spark, some only its files."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'laminar_delta.streaming' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
