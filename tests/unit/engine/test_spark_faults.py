"""Which errors leave a JVM that may still be committing. Those that a real Spark raises: tests/spark/test_faults.py."""

import pytest
from py4j.protocol import Py4JNetworkError

from laminar_delta.engine.settle import FenceRefused, OutcomeUnknown, WriteConflict
from laminar_delta.engine.spark.faults import may_be_at_work
from laminar_delta.errors import StorageError
from tests.support.faults import INTERRUPTS


@pytest.mark.parametrize("error", [*INTERRUPTS, lambda: Py4JNetworkError("the line broke")])
def test_what_came_while_python_waited_says_nothing_of_the_jvm(error: type[BaseException]) -> None:
    assert may_be_at_work(error())


@pytest.mark.parametrize(
    "error",
    [StorageError("full"), FenceRefused({}), WriteConflict("meanwhile"), OutcomeUnknown("failed", may_still_land=True)],
)
def test_after_an_answer_the_jvm_is_done(error: Exception) -> None:
    assert not may_be_at_work(error)
