"""Checkpoint directories of Spark Structured Streaming, read as history: offsets, commits, sources, and what state there is."""

from laminar_delta.interop.sparkdir.source import SparkSource

__all__ = ["SparkSource"]
