"""The `embedded` engine: Delta through delta-rs, in this process, without a JVM."""

from laminar_delta.engine.embedded.engine import EmbeddedEngine

__all__ = ["EmbeddedEngine"]
