"""The conformance suite: one class of tests per capability. An engine runs all of them, with no skip.

    class TestMyEngine(EngineConformance):
        @pytest.fixture
        def harness(self, tmp_path): return MyHarness(tmp_path)

`EngineConformance` is for every engine; `LocalConformance` adds what only tables on a local disk can show.
"""

from laminar_delta.testing.conformance.answers import Answers
from laminar_delta.testing.conformance.fences import Fences
from laminar_delta.testing.conformance.filters import Filters
from laminar_delta.testing.conformance.histories import Histories
from laminar_delta.testing.conformance.local_files import LocalFiles
from laminar_delta.testing.conformance.merges import Merges
from laminar_delta.testing.conformance.processes import Processes
from laminar_delta.testing.conformance.queries import Queries
from laminar_delta.testing.conformance.races import Races
from laminar_delta.testing.conformance.round_trips import RoundTrips
from laminar_delta.testing.conformance.sizes import Sizes
from laminar_delta.testing.conformance.upkeep import Upkeep
from laminar_delta.testing.conformance.versions import Versions


class EngineConformance(
    RoundTrips, Filters, Queries, Versions, Fences, Merges, Races, Answers, Histories, Upkeep, Sizes
):
    """Everything every engine must do."""


class LocalConformance(EngineConformance, LocalFiles, Processes):
    """The same, and what local files need."""


__all__ = ["EngineConformance", "LocalConformance"]
