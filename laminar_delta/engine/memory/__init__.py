"""The `memory` engine: the reference the others are held against, and the quick one for unit tests."""

from laminar_delta.engine.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
