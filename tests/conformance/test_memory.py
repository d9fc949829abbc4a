import pytest

from laminar_delta.testing.conformance import EngineConformance
from tests.support.harnesses import MemoryHarness


class TestMemory(EngineConformance):
    rounds = 30

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()
