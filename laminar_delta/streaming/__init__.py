"""Structured Streaming on the catalog: checkpoints per micro-batch, resume and rewind, progress as history.

Names are loaded when they are first used: some need Spark, some only its files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta._lazy import lazy_names

if TYPE_CHECKING:
    from laminar_delta.streaming.batch import Batch, BatchResult, BatchStep, Delivery, Written
    from laminar_delta.streaming.capturing import capture_spark_checkpoint
    from laminar_delta.streaming.checks import ResumeCheck, ResumeCode, ResumeFinding, check_resume, schema_hash
    from laminar_delta.streaming.delta_sink import DeltaSink
    from laminar_delta.streaming.foreach import ForeachBatch, foreach_batch
    from laminar_delta.streaming.lines import Line
    from laminar_delta.streaming.listener import CheckpointListener
    from laminar_delta.streaming.restoring import RestoredCheckpoint, restore_spark_checkpoint
    from laminar_delta.streaming.sinks import FrameSink
    from laminar_delta.streaming.starting import files_read, starting_options

_HOME = {
    "Batch": "batch",
    "BatchResult": "batch",
    "BatchStep": "batch",
    "CheckpointListener": "listener",
    "Delivery": "batch",
    "DeltaSink": "delta_sink",
    "ForeachBatch": "foreach",
    "FrameSink": "sinks",
    "Line": "lines",
    "RestoredCheckpoint": "restoring",
    "ResumeCheck": "checks",
    "ResumeCode": "checks",
    "ResumeFinding": "checks",
    "Written": "batch",
    "capture_spark_checkpoint": "capturing",
    "check_resume": "checks",
    "files_read": "starting",
    "foreach_batch": "foreach",
    "restore_spark_checkpoint": "restoring",
    "schema_hash": "checks",
    "starting_options": "starting",
}

__getattr__, __dir__ = lazy_names(__name__, {name: f"{__name__}.{home}" for name, home in _HOME.items()})

__all__ = [
    "Batch",
    "BatchResult",
    "BatchStep",
    "CheckpointListener",
    "Delivery",
    "DeltaSink",
    "ForeachBatch",
    "FrameSink",
    "Line",
    "RestoredCheckpoint",
    "ResumeCheck",
    "ResumeCode",
    "ResumeFinding",
    "Written",
    "capture_spark_checkpoint",
    "check_resume",
    "files_read",
    "foreach_batch",
    "restore_spark_checkpoint",
    "schema_hash",
    "starting_options",
]
