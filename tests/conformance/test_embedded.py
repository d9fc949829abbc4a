from pathlib import Path

import pytest

from laminar_delta.testing.conformance import LocalConformance
from tests.support.harnesses import EmbeddedHarness


class TestEmbedded(LocalConformance):
    rounds = 20
    process_rounds = 50
    process_count = 4

    @pytest.fixture
    def harness(self, tmp_path: Path) -> EmbeddedHarness:
        return EmbeddedHarness(tmp_path / "catalog")
