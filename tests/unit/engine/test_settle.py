"""What a writer is told when its commit has no answer, and the look back meets the same storage."""

from unittest.mock import patch

import pytest

from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine import open_engine
from laminar_delta.engine.base import Engine
from laminar_delta.engine.request import Fence
from laminar_delta.errors import CommitUnknownError, StorageError
from tests.support.faults import unanswered_appends


@pytest.mark.parametrize("looks", [0, 1])
def test_storage_that_ends_between_the_looks_back_is_no_answer_to_the_write(looks: int) -> None:
    """The first look is for the commit itself, the second for whoever came after it."""
    engine = open_engine("memory", "settled", store={})
    engine.create(MANIFESTS)
    real, left = Engine.told_history, [None] * looks

    def told(self: Engine, table: str, *, limit: int | None = None) -> object:
        if not left:
            raise StorageError("the storage does not answer")
        left.pop()
        return real(self, table, limit=limit)

    with (
        unanswered_appends(engine, MANIFESTS.name),
        patch.object(Engine, "told_history", told),
        pytest.raises(CommitUnknownError, match="the line went dead; reading back: the storage does not answer"),
    ):
        engine.append(MANIFESTS.name, MANIFESTS.schema.empty_table(), fences=[Fence("laminar:orders", 1)])
