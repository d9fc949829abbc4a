"""Structured Streaming on the catalog: checkpoints per micro-batch, resume and rewind, progress as history.

Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laminar_delta.streaming.capturing import capture_spark_checkpoint
    from laminar_delta.streaming.checks import ResumeCheck, ResumeCode, ResumeFinding, check_resume, schema_hash
    from laminar_delta.streaming.listener import CheckpointListener
    from laminar_delta.streaming.restoring import RestoredCheckpoint, restore_spark_checkpoint
    from laminar_delta.streaming.starting import files_read, starting_options

_HOME = {
    "CheckpointListener": "listener",
    "RestoredCheckpoint": "restoring",
    "ResumeCheck": "checks",
    "ResumeCode": "checks",
    "ResumeFinding": "checks",
    "capture_spark_checkpoint": "capturing",
    "check_resume": "checks",
    "files_read": "starting",
    "restore_spark_checkpoint": "restoring",
    "schema_hash": "checks",
    "starting_options": "starting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'laminar_delta.streaming' has no attribute {name!r}")
    return getattr(import_module(f"laminar_delta.streaming.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


__all__ = [
    "CheckpointListener",
    "RestoredCheckpoint",
    "ResumeCheck",
    "ResumeCode",
    "ResumeFinding",
    "capture_spark_checkpoint",
    "check_resume",
    "files_read",
    "restore_spark_checkpoint",
    "schema_hash",
    "starting_options",
]
